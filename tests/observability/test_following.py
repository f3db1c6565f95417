"""One request, one id and one tree of spans, across handles and out to model servers."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message, Receive, Scope, Send

from models.remote.http import JsonClient
from retrieval.errors import Overloaded
from serve import metrics, trace
from serve.cluster import deployments, remote
from serve.cluster.remote import call, outcome
from serve.http.following import Following, SlowLog
from serve.local.logs import JsonLines, TextLines
from serve.trace import NONE, Trace, arrived, current, span, within

pytestmark = pytest.mark.unit

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_an_id_is_kept_where_it_is_safe() -> None:
    assert arrived({"x-request-id": "abc-1.2:3"}).request_id == "abc-1.2:3"
    made = {arrived({"x-request-id": bad}).request_id for bad in ("", "a b", "x" * 65, "a\nb", "é")}
    assert len(made) == 5
    assert all(len(one) == 16 for one in made)


@pytest.mark.parametrize(
    ("parent", "kept"),
    [
        (PARENT, True),
        (PARENT.upper(), False),
        (PARENT[:-1], False),
        ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01", False),
        ("ff" + PARENT[2:], False),
        (PARENT + "-x", False),
    ],
)
def test_a_parent_is_kept_where_it_is_well_formed(parent: str, kept: bool) -> None:
    found = arrived({"traceparent": parent, "tracestate": "a=1"})
    assert (found.parent, found.state) == ((parent, "a=1") if kept else ("", ""))
    assert arrived({"traceparent": PARENT, "tracestate": "x" * 600}).state == ""


async def _through(headers: dict[str, str]) -> tuple[Trace, dict[str, str]]:
    """What the application saw, and the answer's headers."""
    seen: list[Trace] = []
    said: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(current.get())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Message) -> None:
        said.append(message)

    async def receive() -> Message:
        raise AssertionError

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await Following(app)({"type": "http", "headers": raw}, receive, send)
    return seen[0], {name.decode(): value.decode() for name, value in said[0]["headers"]}


async def test_every_answer_names_its_request() -> None:
    seen, answer = await _through({"x-request-id": "mine", "traceparent": PARENT})
    assert seen == Trace("mine", PARENT)
    assert answer["x-request-id"] == "mine"
    seen, answer = await _through({})
    assert answer["x-request-id"] == seen.request_id != ""
    assert current.get() is NONE


def _line(formatter: logging.Formatter) -> str:
    return formatter.format(logging.LogRecord("serve.x", logging.INFO, "", 0, "hello", None, None))


def test_each_line_names_the_request() -> None:
    with within(Trace("mine")):
        assert '"request_id":"mine"' in _line(JsonLines())
        assert _line(TextLines()).endswith("hello [mine]")
    assert "request_id" not in _line(JsonLines())
    assert _line(TextLines()).endswith("hello")


def _handle(received: list[Any]) -> Any:
    """A method behind a handle: what is sent is pickled, and the callee runs in a context of its
    own."""

    async def work(question: str) -> str:
        received.append(current.get())
        return question

    def remote(*args: Any, **named: Any) -> Any:
        args, named = pickle.loads(pickle.dumps((args, named)))

        async def callee() -> Any:
            return await outcome(work(*args), "embed", named.get("trace", NONE))

        return asyncio.get_running_loop().create_task(callee(), context=contextvars.Context())

    return remote


async def test_the_trace_crosses_a_handle_as_a_field_of_the_call() -> None:
    received: list[Any] = []
    method = _handle(received)
    with within(Trace("mine", PARENT, "a=1")):
        assert await call("embedder", method, "q", left_s=1.0) == "q"
    assert received == [Trace("mine", PARENT, "a=1")]
    await call("embedder", method, "q", left_s=1.0)
    assert received[1] is NONE  # nobody's work


async def test_model_servers_get_the_trace() -> None:
    asked: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers)
        return httpx.Response(200, json=[])

    client = JsonClient("tei", "http://tei", timeout_s=5.0, transport=httpx.MockTransport(answer))
    client.open()
    try:
        with within(Trace("mine", PARENT, "a=1")):
            await client.post("/rerank", {})
        await client.post("/rerank", {})
    finally:
        await client.close()
    assert (asked[0]["traceparent"], asked[0]["tracestate"]) == (PARENT, "a=1")
    assert "traceparent" not in asked[1]
    assert "mine" not in str(asked[0])  # ids of requests stay here


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    from opentelemetry import trace as api

    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(api, "_TRACER_PROVIDER_SET_ONCE", type(api._TRACER_PROVIDER_SET_ONCE)())
    monkeypatch.setattr(trace._state, "exporting", False)
    exporter = InMemorySpanExporter()
    trace.export_to(SimpleSpanProcessor(exporter))
    yield exporter
    trace._tracer.cache_clear()


async def test_one_recall_is_one_tree(spans: InMemorySpanExporter) -> None:
    received: list[Any] = []
    method = _handle(received)
    with within(Trace("mine")), span("recall"):
        await call("embedder", method, "q", left_s=1.0)
        await call("embedder", method, "q", left_s=1.0)
    done = spans.get_finished_spans()
    assert sorted(one.name for one in done) == ["embed", "embed", "recall"]
    root = next(one for one in done if one.name == "recall")
    assert root.parent is None
    ids = {one.context.trace_id for one in done if one.context}
    assert len(ids) == 1
    for one in done:
        if one is not root:
            assert one.parent is not None
            assert root.context is not None
            assert one.parent.span_id == root.context.span_id


async def test_the_caller_s_trace_goes_on(spans: InMemorySpanExporter) -> None:
    with within(Trace("mine", PARENT)), span("recall"):
        inside = current.get()
    (one,) = spans.get_finished_spans()
    assert one.parent is not None
    assert f"{one.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert inside.request_id == "mine"
    assert inside.parent.split("-")[1] == PARENT.split("-")[1]


async def test_unsampled_is_not_recorded_and_still_passed_on(spans: InMemorySpanExporter) -> None:
    with within(Trace("mine", PARENT[:-2] + "00")), span("recall"):
        assert current.get().parent.endswith("-00")
    assert not spans.get_finished_spans()


@pytest.fixture
def none_sampled(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> InMemorySpanExporter:
    from opentelemetry import trace as api

    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(api, "_TRACER_PROVIDER_SET_ONCE", type(api._TRACER_PROVIDER_SET_ONCE)())
    trace.export_to(SimpleSpanProcessor(spans), sampled=0.0)
    return spans


async def test_what_was_not_sampled_is_kept_where_somebody_will_ask(
    none_sampled: InMemorySpanExporter,
) -> None:
    with within(Trace("mine", PARENT[:-2] + "00")):
        with span("recall") as traced:
            assert not traced
        trace.keep("recall", "slow", 1.5, {"embed": 0.25, "search": 1.0})
    embed, search, whole = none_sampled.get_finished_spans()
    assert [one.name for one in (embed, search, whole)] == ["embed", "search", "recall"]
    for one, seconds in ((embed, 0.25), (search, 1.0), (whole, 1.5)):
        assert one.start_time is not None
        assert one.end_time is not None
        assert one.end_time - one.start_time == pytest.approx(seconds * 1e9)
        assert dict(one.attributes or {}) == {trace.KEPT: "slow"}
    assert whole.context is not None
    assert f"{whole.context.trace_id:032x}" == PARENT.split("-")[1]
    assert embed.parent == search.parent
    assert embed.parent is not None
    assert embed.parent.span_id == whole.context.span_id


async def test_others_are_not_kept(none_sampled: InMemorySpanExporter) -> None:
    with span("recall") as traced:
        assert not traced
    assert not none_sampled.get_finished_spans()


async def test_what_is_sampled_says_so(spans: InMemorySpanExporter) -> None:
    with span("recall") as traced:
        assert traced


def test_without_an_exporter_nothing_is_kept() -> None:
    trace.keep("recall", "slow", 1.5, {"embed": 0.25})


def test_without_an_exporter_a_span_changes_nothing() -> None:
    with within(Trace("mine")), span("recall"):
        assert current.get() == Trace("mine")


def test_slow_recalls_are_logged_and_not_too_many(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowLog(1.0)
    with caplog.at_level(logging.WARNING, logger="serve.slow"):
        slow.recalled(0.9, {"rank": 0.9}, (), 3)
        assert not caplog.records
        for _ in range(40):
            slow.recalled(1.5, {"rank": 1.2, "rows": 0.1}, ("rerank",), 3)
    assert 1 <= len(caplog.records) <= 2 * SlowLog.MOST  # the second may have ended meanwhile
    assert "1.500 s, 3 results, degraded: rerank; rank=1.200 rows=0.100" in caplog.text


async def test_a_hop_that_is_late_is_counted() -> None:
    before = _count("fourfold_hop_failures_total", stage="embedder", kind="late")

    def never(*_: Any) -> Any:
        return asyncio.get_running_loop().create_future()

    with pytest.raises(Exception, match="embedder"):
        await call("embedder", never, left_s=0.001)
    assert _count("fourfold_hop_failures_total", stage="embedder", kind="late") == before + 1


def _count(name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (Overloaded("full"), "refused"),
        (TimeoutError(), "late"),
        (asyncio.CancelledError(), "late"),
        (ValueError(), "failed"),
    ],
)
def test_requests_are_counted_by_how_they_end(error: BaseException, ended: str) -> None:
    before = _count("fourfold_requests_total", operation="recall", outcome=ended)
    with pytest.raises(type(error)), metrics.measured("recall"):
        raise error
    assert _count("fourfold_requests_total", operation="recall", outcome=ended) == before + 1


def test_every_method_behind_a_handle_takes_the_trace() -> None:
    """A call that belongs to a request carries it, whatever it calls."""
    source = (Path(remote.__file__)).read_text()
    called = set(re.findall(r"\b\w*(?:handle|near)\.(\w+)\.remote", source))
    assert {"embed", "rerank", "retrieve", "describe", "do"} <= called
    own = [each for each in vars(deployments).values() if isinstance(each, type)]
    replicas = [each for each in own if each.__module__ == deployments.__name__]
    for name in called:
        having = [each for each in replicas if name in vars(each)]
        assert having, name
        for each in having:
            assert "trace" in inspect.signature(vars(each)[name]).parameters, (each, name)
