"""Language models over real HTTP, against a scripted server that keeps the protocols."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from models.llm import Account, CallRecord, LanguageModel, LLMSettings, ModelMember
from models.llm.outcomes import Outcome, judge, wait
from models.llm.types import CutOff, Exhausted, Misconfigured, Refused, TooLong, Turn
from models.settings import ModelSettingsError
from models.types import BadOutput, DeadlineExceeded, Overloaded, RemoteError, Unavailable
from tests.models.llm_server import Asked, LLMServer, Reply
from tests.models.virtual_time import run

pytestmark = pytest.mark.unit

SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}},
    "required": ["n"],
    "additionalProperties": False,
}
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "recall",
            "description": "Searches.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as made:
        yield made
        assert not made.unmatched


def settings(url: str, **more: Any) -> LLMSettings:
    given = {"provider": "vllm", "model": "m", "initial_backoff_s": 0.001, "max_backoff_s": 5.0}
    return LLMSettings(**{**given, "url": url, **more})


@asynccontextmanager
async def model(*members: LLMSettings, **more: Any) -> AsyncIterator[LanguageModel]:
    account = Account(8)
    made = LanguageModel([ModelMember(one, account) for one in members], **more)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


# What goes out, and what comes back


async def test_an_answer(server: LLMServer) -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    server.then(Reply(text="Hi.", usage=usage))
    own = settings(
        server.url,
        api_key="sk-1",
        temperature=0.1,
        reasoning_effort="low",
        num_ctx=4096,
        send_bank=True,
        cache_affinity=True,
        extra_body={"seed": 7},
        headers={"X-Team": "blue"},
    )
    async with model(own) as llm:
        answer = await llm.chat("retain", HELLO, max_tokens=50, tenant="t", bank="b")
    assert (answer.text, answer.finish, answer.model, answer.member) == ("Hi.", "stop", "m", "vllm")
    assert answer.usage.input_tokens == 90
    assert (answer.usage.output_tokens, answer.usage.thoughts_tokens) == (10, 20)
    assert (answer.usage.cached_tokens, answer.usage.total_tokens) == (40, 120)
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer sk-1"
    assert asked.headers["x-team"] == "blue"
    assert asked.body == {
        "model": "m",
        "max_tokens": 50,
        "temperature": 0.1,
        "reasoning_effort": "low",
        "options": {"num_ctx": 4096},
        "user": "b",
        "prompt_cache_key": "retain:t:b",
        "messages": HELLO,
        "seed": 7,
    }


async def test_messages_of_anthropic(server: LLMServer) -> None:
    server.then(Reply(json={"n": [1]}), Reply(text="so", calls=[("recall", {"query": "x"})]))
    own = settings(server.url, provider="anthropic", model="c", api_key="k", temperature=0.2)
    talk: list[dict[str, Any]] = [
        *HELLO,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "recall", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "recall", "arguments": "no"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "nothing"},
        {"role": "tool", "tool_call_id": "b", "content": "bad"},
    ]
    async with model(own) as llm:
        shaped = await llm.chat("retain", HELLO, max_tokens=50, schema=("facts", SHAPE))
        called = await llm.chat("reflect", talk, max_tokens=50, tools=TOOLS, tool_choice="required")
    assert json.loads(shaped.text) == {"n": [1]}
    assert (shaped.calls, shaped.usage.input_tokens) == ((), 100)
    assert called.finish == "tool_calls"
    assert [(call.name, json.loads(call.arguments)) for call in called.calls] == [
        ("recall", {"query": "x"})
    ]
    first, second = server.asked
    assert first.path == "/v1/messages"
    assert (first.headers["x-api-key"], first.headers["anthropic-version"]) == ("k", "2023-06-01")
    assert first.body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert first.body["tool_choice"] == {"type": "tool", "name": "facts"}
    assert first.body["max_tokens"] == 50
    assert second.body["tool_choice"] == {"type": "any"}
    roles = [
        (m["role"], [block["type"] for block in m["content"]]) for m in second.body["messages"]
    ]
    assert roles == [
        ("user", ["text"]),
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
    ]


@pytest.mark.parametrize(
    ("more", "unsupported", "shapes"),
    [
        ({"strict": True}, (), ["strict"]),
        ({}, (), ["schema"]),
        ({"forced_tool": True}, (), ["tool"]),
        ({"strict": True}, ("json_schema",), ["strict", "schema", "tool"]),
        ({}, ("json_schema", "tools"), ["schema", "tool", "object"]),
        ({}, ("response_format", "tool_choice"), ["schema", "tool", "plain"]),
        ({"provider": "deepseek", "api_key": "k"}, (), ["object"]),
        ({"provider": "deepseek", "api_key": "k"}, ("response_format",), ["object", "plain"]),
    ],
)
async def test_rungs(
    server: LLMServer, more: dict[str, Any], unsupported: Sequence[str], shapes: list[str]
) -> None:
    server.unsupported = set(unsupported)
    server.rule("Hello?", Reply(json={"n": [2]}))
    async with model(settings(server.url, **more)) as llm:
        for _ in range(2):
            answer = await llm.chat("retain", HELLO, max_tokens=50, schema=("facts", SHAPE))
            assert json.loads(answer.text) == {"n": [2]}
    # What was refused once is not asked for again.
    assert [asked.shape for asked in server.asked] == [*shapes, shapes[-1]]
    if shapes[-1] in ("plain", "object") and "tool_choice" not in unsupported:
        assert '"maxItems":3' in server.asked[-1].text


async def test_parameters_that_a_model_does_not_know_are_left_out_for_good(
    server: LLMServer,
) -> None:
    server.unsupported = {"temperature", "reasoning_effort", "max_tokens"}
    server.rule("Hello?", Reply(text="Hi."))
    own = settings(server.url, temperature=0.5, reasoning_effort="low", max_retries=0)
    async with model(own) as llm:
        assert (await llm.chat("retain", HELLO, max_tokens=9)).requests == 4
        assert (await llm.chat("retain", HELLO, max_tokens=9)).requests == 1
    last = server.asked[-1].body
    assert last["max_completion_tokens"] == 9
    assert not {"temperature", "reasoning_effort", "max_tokens"} & set(last)


async def test_items_need_not_be_bounded(server: LLMServer) -> None:
    server.then(Reply(json={"n": []}))
    async with model(settings(server.url, max_items=False)) as llm:
        await llm.chat("retain", HELLO, max_tokens=50, schema=("facts", SHAPE))
    assert "maxItems" not in json.dumps(server.asked[0].body)


# What an answer means


async def test_a_cut_answer_is_asked_for_once_with_twice_the_tokens(server: LLMServer) -> None:
    server.then(Reply(text="{", finish="length"), Reply(text="{}"))
    server.then(Reply(text="", reasoning="hm"), Reply(text="{", finish="length"))
    async with model(settings(server.url)) as llm:
        answer = await llm.chat("retain", HELLO, max_tokens=10)
        assert (answer.text, answer.requests, answer.usage.input_tokens) == ("{}", 2, 200)
        with pytest.raises(CutOff, match="20 tokens"):
            await llm.chat("retain", HELLO, max_tokens=10)
    assert [asked.body["max_tokens"] for asked in server.asked] == [10, 20, 10, 20]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(text="no", finish="content_filter"), Refused),
        (Reply(status=400, error={"message": "x", "code": "content_filter"}), Refused),
        (Reply(status=400, error="This model's maximum context length is 9 tokens"), TooLong),
        (Reply(status=413, error="too large"), TooLong),
        (Reply(status=401, error="bad key"), Misconfigured),
        (Reply(status=404, error="no such model"), Misconfigured),
        (Reply(status=400, error="messages must not be empty"), RemoteError),
        (Reply(status=429, error={"message": "x", "code": "insufficient_quota"}), Exhausted),
        (Reply(status=402, error="Payment required"), Exhausted),
        (Reply(status=429, headers={"Retry-After": "90"}), Exhausted),
    ],
)
async def test_final_answers_are_not_asked_again(
    server: LLMServer, reply: Reply, error: type[Exception]
) -> None:
    server.then(reply)
    async with model(settings(server.url)) as llm:
        with pytest.raises(error):
            await llm.chat("retain", HELLO, max_tokens=10)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=500),
        Reply(status=529),
        Reply(status=408),
        Reply(reset_after=5, text="Hi."),
        Reply(raw=b"<html>"),
        Reply(raw=b"[" * 100_000),
        Reply(raw=b'{"choices": []}'),
        Reply(raw=b'{"choices": [{"message": "x"}]}'),
        Reply(raw=b""),
    ],
)
async def test_passing_failures_are_tried_again(server: LLMServer, reply: Reply) -> None:
    server.then(reply, reply, Reply(text="Hi."))
    async with model(settings(server.url)) as llm:
        assert (await llm.chat("retain", HELLO, max_tokens=10)).requests == 3


async def test_tries_are_bounded(server: LLMServer) -> None:
    server.then(*[Reply(status=500)] * 9)
    async with model(settings(server.url)) as llm:
        with pytest.raises(Unavailable):
            await llm.chat("retain", HELLO, max_tokens=10)
    assert len(server.asked) == 4


async def test_hostile_text_is_text(server: LLMServer) -> None:
    server.then(
        Reply(raw=b'{"choices":[{"message":{"content":"a\\ud800b"},"finish_reason":"stop"}]}'),
        Reply(text="x" * 5_000_000, usage=None),
        Reply(raw=b'{"choices":[{"message":{"content":"y"}}],"usage":{"prompt_tokens":"many"}}'),
    )
    async with model(settings(server.url)) as llm:
        said = [*HELLO, {"role": "user", "content": "\ud800 \x00"}]
        assert (await llm.chat("retain", said, max_tokens=10)).text == "a?b"
        assert len((await llm.chat("retain", HELLO, max_tokens=10)).text) == 5_000_000
        assert (await llm.chat("retain", HELLO, max_tokens=10)).text == "y"


# Limits


async def test_a_limit_holds_the_whole_account_and_costs_no_attempt(server: LLMServer) -> None:
    server.then(Reply(status=429, headers={"retry-after-ms": "300"}))
    server.rule("Hello?", Reply(text="Hi."))
    async with model(settings(server.url, max_retries=0)) as llm:
        first = asyncio.create_task(llm.chat("retain", HELLO, max_tokens=10))
        async with asyncio.timeout(10):
            while not llm.members[0].account.held_s:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        others = [llm.chat("reflect", HELLO, max_tokens=10, turn="reflect") for _ in range(3)]
        answers = await asyncio.gather(first, *others)
    assert [answer.requests for answer in answers] == [2, 1, 1, 1]
    refused, *later = server.asked
    assert min(asked.at for asked in later) - refused.at >= 0.29


async def test_who_cannot_wait_for_a_limit_hears_when_to_come_back(server: LLMServer) -> None:
    server.then(Reply(status=429, headers={"Retry-After": "4"}))
    async with model(settings(server.url)) as llm:
        with pytest.raises(Overloaded) as caught:
            await llm.chat("retain", HELLO, max_tokens=10, deadline=time.monotonic() + 1)
    assert 3 < caught.value.retry_after_s <= 4


async def test_an_exhausted_account_is_left_alone(server: LLMServer) -> None:
    server.then(Reply(status=429, error={"message": "x", "type": "insufficient_quota"}))
    async with model(settings(server.url)) as llm:
        for _ in range(3):
            with pytest.raises(Exhausted) as caught:
                await llm.chat("retain", HELLO, max_tokens=10)
    assert len(server.asked) == 1
    assert caught.value.retry_after_s > 60


async def test_deadlines(server: LLMServer) -> None:
    server.rule("Hello?", Reply(hang=True))
    async with model(settings(server.url, timeout_s=0.2, max_retries=1)) as llm:
        with pytest.raises(DeadlineExceeded):
            await llm.chat("retain", HELLO, max_tokens=10, deadline=time.monotonic() + 0.1)
        with pytest.raises(Unavailable):
            await llm.chat("retain", HELLO, max_tokens=10)
    assert len(server.asked) == 3


# Members


async def test_failover(server: LLMServer) -> None:
    server.rule(lambda asked: asked.body["model"] == "second", Reply(text="from the second"))
    server.rule(lambda asked: asked.body["model"] == "first", Reply(status=401, error="bad key"))
    first, second = (settings(server.url, model=name) for name in ("first", "second"))
    async with model(first, second) as llm:
        for _ in range(3):
            assert (await llm.chat("retain", HELLO, max_tokens=10)).model == "second"
    # A wrong key opens the breaker at once.
    assert [asked.body["model"] for asked in server.asked].count("first") == 1


async def test_what_one_input_makes_of_a_server_keeps_nobody_else_from_it(
    server: LLMServer,
) -> None:
    server.rule("Break it", Reply(raw=b'{"choices": []}'))
    server.rule("Hello?", Reply(text="Hi."))
    async with model(settings(server.url, max_retries=0)) as llm:
        for _ in range(5):
            with pytest.raises(BadOutput):
                await llm.chat("retain", [{"role": "user", "content": "Break it"}], max_tokens=10)
        assert (await llm.chat("retain", HELLO, max_tokens=10)).text == "Hi."


async def test_an_input_that_is_refused_is_taken_nowhere_else(server: LLMServer) -> None:
    server.then(Reply(text="no", finish="content_filter"))
    async with model(settings(server.url), settings(server.url, model="second")) as llm:
        with pytest.raises(Refused):
            await llm.chat("retain", HELLO, max_tokens=10)
    assert len(server.asked) == 1


async def test_round_robin(server: LLMServer) -> None:
    server.rule("Hello?", Reply(text="Hi."))
    members = [settings(server.url, model=name) for name in "abc"]
    async with model(*members, weights=[3, 1, 1]) as llm:
        said = [(await llm.chat("retain", HELLO, max_tokens=10)).model for _ in range(10)]
    assert {name: said.count(name) for name in "abc"} == {"a": 6, "b": 2, "c": 2}
    assert said[:5] != ["a", "a", "a", "b", "c"]


async def test_every_call_is_accounted_for(server: LLMServer) -> None:
    class Books:
        def __init__(self) -> None:
            self.open = 0
            self.records: list[CallRecord] = []

        async def reserve(self, tenant: str, tokens: int) -> int:
            self.open += tokens
            return 1

        async def settle(self, record: CallRecord, reserved: int) -> None:
            self.open -= reserved
            self.records.append(record)

    server.then(Reply(text="Hi."), Reply(text="{", finish="length"), Reply(status=400, error="no"))
    books = Books()
    async with model(settings(server.url, api_key="sk-secret"), accounting=books) as llm:
        await llm.chat("retain", HELLO, max_tokens=10, tenant="t")
        with pytest.raises(RemoteError):
            await llm.chat("consolidation", HELLO, max_tokens=10, tenant="t")
    assert books.open == 0
    good, bad = books.records
    assert (good.answer, good.requests, good.usage.input_tokens, good.error) == ("Hi.", 1, 100, "")
    assert (bad.requests, bad.usage.input_tokens, bad.kind) == (2, 100, "RemoteError")
    assert "sk-secret" not in repr(books.records) + repr(llm.members[0].settings)


# Turns, in virtual time


def test_turns_go_by_class_then_by_tenant_with_fewest_running() -> None:
    async def work() -> list[str]:
        account, done = Account(2, asyncio.get_running_loop().time), []

        async def call(name: str, turn: Turn, tenant: str) -> None:
            async with account.turn(turn, tenant):
                await asyncio.sleep(1)
                done.append(name)

        calls = [call(f"loud{i}", Turn.RETAIN, "loud") for i in range(4)]
        calls += [call("quiet", Turn.RETAIN, "quiet"), call("reflect", Turn.REFLECT, "loud")]
        await asyncio.gather(*calls)
        return done

    assert run(work()) == ["loud0", "loud1", "reflect", "quiet", "loud2", "loud3"]


def test_background_leaves_a_quarter_free() -> None:
    async def work() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        account, most = Account(8, loop.time), 0

        async def background() -> None:
            nonlocal most
            async with account.turn(Turn.CONSOLIDATION, "t"):
                most = max(most, account.running)
                await asyncio.sleep(10)

        tasks = [asyncio.create_task(background()) for _ in range(20)]
        await asyncio.sleep(1)
        async with account.turn(Turn.REFLECT, "t"):
            at = loop.time()
        await asyncio.gather(*tasks)
        return most, at

    assert run(work()) == (6, 1.0)


def test_one_permit_is_enough_for_background() -> None:
    async def work() -> bool:
        account = Account(1, asyncio.get_running_loop().time)
        async with account.turn(Turn.REFRESH, "t"):
            return True

    assert run(work())


def test_a_tenant_has_so_many_calls_at_once() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        account = Account(8, loop.time)

        async def call() -> None:
            async with account.turn(Turn.RETAIN, "t", at_once=2):
                await asyncio.sleep(1)

        await asyncio.gather(*(call() for _ in range(6)))
        return loop.time()

    assert run(work()) == pytest.approx(3)


def test_fewer_at_once_after_a_limit_and_more_again() -> None:
    async def work() -> list[int]:
        loop = asyncio.get_running_loop()
        account = Account(8, loop.time)
        seen = [account.limit]
        account.limited(2)
        account.limited(2)  # of the same flood
        seen.append(account.limit)
        with pytest.raises(DeadlineExceeded):
            async with account.turn(Turn.REFLECT, "t", deadline=loop.time() + 1):
                pass
        async with account.turn(Turn.REFLECT, "t", deadline=loop.time() + 2):
            assert loop.time() == pytest.approx(2)
        for _ in range(30):
            account.good()
        seen.append(account.limit)
        return seen

    assert run(work()) == [8, 4, 7]


def test_who_gives_up_in_line_leaves_no_trace() -> None:
    async def work() -> None:
        account = Account(1, asyncio.get_running_loop().time)
        async with account.turn(Turn.RETAIN, "t"):
            waiting = [asyncio.create_task(_enter(account)) for _ in range(3)]
            await asyncio.sleep(0)
            assert account.waiting == 3
            waiting[0].cancel()
            await asyncio.sleep(0)
        waiting[1].cancel()  # called and cancelled in the same moment
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (account.running, account.waiting) == (0, 0)

    run(work())


async def _enter(account: Account) -> None:
    async with account.turn(Turn.RETAIN, "t"):
        await asyncio.sleep(1)


def test_pauses_double_and_keep_the_deadline() -> None:
    async def work() -> tuple[list[float], float]:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        def answer(_: httpx.Request) -> httpx.Response:
            times.append(loop.time())
            return httpx.Response(503)

        own = LLMSettings("vllm", "m", url="http://x.test/v1", max_retries=5)
        account = Account(2, loop.time)
        member = ModelMember(
            own,
            account,
            transport=httpx.MockTransport(answer),
            clock=loop.time,
            jitter=lambda: 1.0,
        )
        llm = LanguageModel([member], clock=loop.time)
        await llm.start()
        with pytest.raises(Unavailable):
            await llm.chat("retain", HELLO, max_tokens=10, deadline=loop.time() + 10)
        await llm.close()
        return times, loop.time()

    times, end = run(work())
    assert times == pytest.approx([0, 1, 3, 7])
    assert end == pytest.approx(7)


# Reading what servers say


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": format_datetime(NOW.replace(minute=1), usegmt=True)}, 60),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "9"}, 0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "20ms"}, 1),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 30)}, 30),
        ({"x-ratelimit-reset": str((int(NOW.timestamp()) + 30) * 1000)}, 30),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2026-03-01T12:00:10Z",
                "anthropic-ratelimit-tokens-remaining": "0",
            },
            10,
        ),
    ],
)
def test_waits(headers: dict[str, str], seconds: float) -> None:
    assert wait(headers, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("status", "error", "outcome", "parameter"),
    [
        (400, {"message": "x", "param": "temperature"}, Outcome.UNSUPPORTED, "temperature"),
        (
            400,
            {"message": "Use 'max_completion_tokens' instead of 'max_tokens': not supported"},
            Outcome.UNSUPPORTED,
            "max_completion_tokens",
        ),
        (
            400,
            {"message": "'max_tokens' is unsupported. Use 'max_completion_tokens' instead."},
            Outcome.UNSUPPORTED,
            "max_tokens",
        ),
        (422, {"message": "json_schema is not supported"}, Outcome.UNSUPPORTED, "response_format"),
        (400, {"message": "reasoning_effort: Extra inputs are not permitted"}, Outcome.UNSUPPORTED,
         "reasoning_effort"),
        (400, {"message": "prompt is too long: 9 tokens > 8 maximum"}, Outcome.TOO_LONG, ""),
        (400, {"message": "temperature was fine, the messages are not"}, Outcome.REJECTED, ""),
        (403, {"message": "Your credit balance is too low"}, Outcome.EXHAUSTED, ""),
        (418, {"message": "teapot"}, Outcome.REJECTED, ""),
        (503, {}, Outcome.TRANSIENT, ""),
    ],
)  # fmt: skip
def test_outcomes(status: int, error: dict[str, Any], outcome: Outcome, parameter: str) -> None:
    body = json.dumps({"error": error}).encode()
    found = judge(status, {}, body, now=NOW, longest_wait_s=60)
    assert (found.outcome, found.parameter) == (outcome, parameter)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"[[]]", b'"x"', b"\xff", b'{"error": 3}'])
def test_any_error_body_can_be_read(body: bytes) -> None:
    assert judge(500, {}, body, now=NOW, longest_wait_s=60).outcome is Outcome.TRANSIENT


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"provider": "bedrock"}, "LiteLLM proxy"),
        ({"provider": "nobody"}, "choose one of"),
        ({"model": ""}, "llm_model"),
        ({"provider": "openai", "url": ""}, "llm_api_key"),
        ({"url": "ftp://x"}, "http"),
        ({"url": ""}, "llm_base_url"),
        ({"timeout_s": 0}, "llm_timeout"),
        ({"initial_backoff_s": 9.0, "max_backoff_s": 1.0}, "backoff"),
        ({"extra_body": {"messages": []}}, "llm_extra_body"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelSettingsError, match=says):
        settings(**{"url": "http://x", **wrong})


def test_scripts_that_do_not_answer_are_seen() -> None:
    with LLMServer() as lonely:
        lonely.reply(Asked("/v1/chat/completions", {"messages": HELLO}, {}, 0.0))
        assert lonely.unmatched
