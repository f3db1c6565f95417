"""The batch API as hostile servers speak it; what it does is tested in tests/serve."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from models.llm import Account, LLMSettings, ModelMember
from models.llm.batches import Batches, BatchState, batches
from models.llm.types import CompletionRequest, Exhausted, Misconfigured, Schema
from models.types import ModelError, Overloaded, RemoteError, Unavailable

pytestmark = pytest.mark.unit

Handle = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def speaking(handle: Handle, provider: str = "openai") -> AsyncIterator[Batches]:
    settings = LLMSettings(provider, "m", "sk-secret", "http://model/v1", initial_backoff_s=0.0)
    member = ModelMember(settings, Account(4), transport=httpx.MockTransport(handle))
    await member.start()
    found = batches([member])
    assert found is not None
    yield found
    await member.close()


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }


QUESTION = CompletionRequest(
    "retain", [{"role": "user", "content": "x"}], 10, schema=Schema("s", {})
)


async def test_rows_that_make_no_sense_are_left_out() -> None:
    def row(name: Any, body: Any, status: Any = 200) -> str:
        return json.dumps({"custom_id": name, "response": {"status_code": status, "body": body}})

    lines = [
        row("good", completion("a")),
        "not JSON", "", "[]", "7", '{"custom_id": "x"}', '{"response": 5, "custom_id": "x"}',
        row("late", completion("b"), 500),
        row("odd", {"choices": []}),
        row("cut", completion("half of", "length")),
        row("refused", completion("no", "content_filter")),
        row("tool", {"choices": [{"message": {"tool_calls": [
            {"id": "c", "function": {"name": "s", "arguments": '{"a": 1}'}}]}}]}),
        '{"custom_id": "lone \\ud800", "response": null}',
    ]  # fmt: skip

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("gone/content"):
            return httpx.Response(404)
        return httpx.Response(200, content="\n".join(lines).encode())

    async with speaking(handle) as found:
        state = BatchState(True, 0, 0, ("out", "gone"))
        answers = {name: answer async for name, answer in found.answers(state)}
    assert {name: answer.text for name, answer in answers.items()} == {
        "good": "a", "cut": "", "refused": "", "tool": '{"a": 1}',
    }  # fmt: skip
    assert answers["cut"].usage.input_tokens == 7  # it cost all the same


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(200, content=b"<html>"), RemoteError),
        (httpx.Response(200, json=[]), RemoteError),
        (httpx.Response(200, json={"id": 5}), RemoteError),
        (httpx.Response(401, json={"error": {"message": "no"}}), Misconfigured),
        (httpx.Response(429, headers={"retry-after": "3"}, content=b"slow"), Overloaded),
        (httpx.Response(429, json={"error": {"code": "insufficient_quota"}}), Exhausted),
        (httpx.Response(503), Unavailable),
        (httpx.ConnectError("refused"), Unavailable),
        (httpx.ReadTimeout("late"), Unavailable),
    ],
)
async def test_a_batch_that_cannot_be_sent(
    answer: httpx.Response | Exception, error: type[ModelError]
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with speaking(handle) as found:
        with pytest.raises(error) as raised:
            await found.submit({"a": QUESTION}, "mark")
        assert "sk-secret" not in str(raised.value)
        if error is Overloaded:  # a limit holds everybody of the account
            assert found.member.account.held_s > 1
            with pytest.raises(Overloaded):
                await found.look("b")


@pytest.mark.parametrize("status", [400, 404, 405, 422, 501])
async def test_a_server_that_takes_none(status: int) -> None:
    async with speaking(lambda request: httpx.Response(status, content=b"no batches")) as found:
        assert await found.submit({"a": QUESTION}, "mark") is None


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({}, BatchState(False, 0, 0)),
        ({"status": "cancelling", "request_counts": None}, BatchState(False, 0, 0)),
        (
            {"status": "expired", "request_counts": {"total": 3, "completed": True, "failed": 1},
             "output_file_id": 5, "error_file_id": "e", "input_file_id": "i"},
            BatchState(True, 1, 3, ("e",), "i"),
        ),
    ],
)  # fmt: skip
async def test_states(row: dict[str, Any], state: BatchState) -> None:
    async with speaking(lambda request: httpx.Response(200, json=row)) as found:
        assert await found.look("b") == state


async def test_ids_are_quoted_and_lists_end() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        row = {"id": f"b{len(asked)}", "metadata": ["odd"]}
        return httpx.Response(200, json={"data": [row, 5], "has_more": True})

    async with speaking(handle) as found:
        await found.look("../files")
        assert asked.pop() == "/v1/batches/..%2Ffiles"
        assert await found.find("mark") is None
        assert len(asked) == 5


def test_who_has_batches() -> None:
    one = ModelMember(LLMSettings("vllm", "m", url="http://x"), Account(1))
    two = ModelMember(LLMSettings("groq", "m", "k"), Account(1))
    assert batches([one]) is None
    found = batches([one, two])
    assert found is not None
    assert found.account == "groq https://api.groq.com/openai/v1"
