"""What follows one request through all processes: its id, and a W3C trace context.

Both cross handles as a field of the call, never by what a framework carries along: a context that
is lost there gives two trees, and one that leaks gives strangers a parent. Without the
OpenTelemetry packages, or with no exporter set up, spans are nobody's and cost nothing; what came
in still goes out.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from models import outward

ID_HEADER = "x-request-id"
PARENT_HEADER, STATE_HEADER = "traceparent", "tracestate"

_SAFE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,64}")
_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE_MOST = 512


@dataclass(frozen=True, slots=True)
class Trace:
    """`parent` and `state` are the headers of W3C Trace Context, empty where nobody traces."""

    request_id: str = ""
    parent: str = ""
    state: str = ""

    def headers(self) -> dict[str, str]:
        """What a request to another server carries of it."""
        if not self.parent:
            return {}
        state = {STATE_HEADER: self.state} if self.state else {}
        return {PARENT_HEADER: self.parent, **state}


NONE = Trace()
current: ContextVar[Trace] = ContextVar("fourfold_trace", default=NONE)
"""The request that the running task works for."""


def arrived(headers: Mapping[str, str]) -> Trace:
    """The trace of a request that came in: its own id and parent where they are well formed, else a
    new id and no parent."""
    given = headers.get(ID_HEADER, "")
    parent = headers.get(PARENT_HEADER, "")
    known = _PARENT.fullmatch(parent) is not None
    state = headers.get(STATE_HEADER, "") if known else ""
    return Trace(
        given if _SAFE.fullmatch(given) else secrets.token_hex(8),
        parent if known else "",
        state if len(state) <= _STATE_MOST and state.isprintable() else "",
    )


@contextmanager
def within(trace: Trace) -> Iterator[None]:
    """Work inside belongs to `trace`."""
    token, sent = current.set(trace), outward.headers.set(trace.headers())
    try:
        yield
    finally:
        outward.headers.reset(sent)
        current.reset(token)


@cache
def _tracer() -> Any:
    """OpenTelemetry's tracer; None without its package."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("fourfold")


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[bool]:
    """A span under the current trace, and the parent of what is called inside; gives whether it is
    recorded.

    Attributes come from closed sets: never a question, a text, a bank or a key.
    """
    trace, tracer = current.get(), _tracer()
    if tracer is None or (not trace.parent and not tracing()):
        yield False
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    above = propagator.extract(trace.headers())
    with tracer.start_as_current_span(name, context=above, attributes=attributes) as own:
        if not own.get_span_context().is_valid:
            yield False
            return
        carried: dict[str, str] = {}
        propagator.inject(carried)
        inner = Trace(
            trace.request_id, carried.get(PARENT_HEADER, ""), carried.get(STATE_HEADER, "")
        )
        with within(inner):
            yield own.is_recording()


KEPT = "fourfold.kept"
"""Why a request that nobody sampled is in the traces: slow, degraded or failed."""


def keep(name: str, why: str, seconds: float, stages: Mapping[str, float]) -> None:
    """Traces a request that ended just now and was not sampled: a span of so many seconds, and in
    it one of each stage, as long as that took. Their order is that of `stages`; when each began is
    not known. Costs nothing before, so it can be had of every request that somebody will ask about.
    """
    tracer = _tracer()
    if tracer is None or not tracing():
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    now = time.time_ns()
    above = TraceContextTextMapPropagator().extract(current.get().headers())
    begin = at = now - int(seconds * 1e9)
    whole = tracer.start_span(name, context=above, attributes={KEPT: why}, start_time=begin)
    inside = trace.set_span_in_context(whole, above)
    for stage, spent in stages.items():
        part = tracer.start_span(stage, context=inside, attributes={KEPT: why}, start_time=at)
        at = min(now, at + int(spent * 1e9))
        part.end(at)
    whole.end(now)


def tracing() -> bool:
    """Whether spans go anywhere."""
    return _state.exporting


class _State:
    exporting = False


_state = _State()


def export_to(processor: Any, sampled: float = 1.0) -> None:
    """Hands spans to an OpenTelemetry span processor; of requests without a parent, the share
    `sampled` is traced. Once in a process."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import (
        Decision,
        ParentBased,
        Sampler,
        SamplingResult,
        TraceIdRatioBased,
    )

    usual = ParentBased(TraceIdRatioBased(sampled))

    class AlsoKept(Sampler):
        """The usual ones, and what is kept."""

        def should_sample(self, *args: Any, **named: Any) -> SamplingResult:
            attributes = named.get("attributes") or (args[4] if len(args) > 4 else None)
            if attributes and KEPT in attributes:
                return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
            return usual.should_sample(*args, **named)

        def get_description(self) -> str:
            return f"AlsoKept({sampled})"

    provider = TracerProvider(
        resource=Resource.create({"service.name": "fourfold"}), sampler=AlsoKept()
    )
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    _tracer.cache_clear()
    _state.exporting = True


def setup(endpoint: str | None, sampled: float) -> None:
    """Sends spans to an OTLP collector at `endpoint` (HTTP); None: nowhere. Without the packages
    for it, a warning and no spans."""
    if endpoint is None or _state.exporting:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logging.getLogger(__name__).warning(
            "TRACES_ENDPOINT is set, but traces need: pip install 'fourfold[traces]'"
        )
        return
    export_to(BatchSpanProcessor(OTLPSpanExporter(endpoint)), sampled)
