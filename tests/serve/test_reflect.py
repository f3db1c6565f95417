"""Reflect through the real application: real searches, a language model by script."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
import pytest_asyncio

from retrieval import errors
from retrieval.reflect.seams import FoundModel
from retrieval.store.directives import Directive
from tests.retrieval.llm.scripted import Asked, Said, Scripted
from tests.retrieval.reflect.bank import calls, handle
from tests.serve.conftest import B, Live
from tests.serve.reflecting import BANK, MEMORIES, Known, scripted

pytestmark = pytest.mark.integration


async def ask(live: Live, query: str = "Where does Ann live?", **body: Any) -> dict[str, Any]:
    answer = await live.http.post(f"{B}/{BANK}/reflect", json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def bank(live: Live) -> Live:
    await live.import_memories(BANK, *MEMORIES)
    return live


async def test_an_answer_with_its_evidence(bank: Live) -> None:
    def answered(asked: Asked) -> str:
        move, seen = handle(asked, "5 May 2024"), handle(asked, "at home")
        return (
            f"Ann moved to Lisbon in May 2024. [{move}] She feels at home there [{seen}, {move}]."
        )

    with scripted(bank, answered) as llm:
        found = await ask(bank, include={"facts": {}, "tool_calls": {"output": True}})
    text = "Ann moved to Lisbon in May 2024. She feels at home there."
    assert found["text"] == text
    facts = {fact["text"]: fact for fact in found["based_on"]["memories"]}
    assert set(facts) == {MEMORIES[1]["text"], MEMORIES[3]["text"]}
    move = facts[MEMORIES[1]["text"]]
    assert (move["type"], move["document_id"]) == ("world", "letters")
    first, second = found["citations"]
    assert text[first["start"] : first["end"]] == "Ann moved to Lisbon in May 2024."
    assert first["ids"] == [move["id"]]
    assert set(second["ids"]) == {fact["id"] for fact in facts.values()}
    assert found["grounding"] == {"sentences": 2, "supported": 2, "unsupported": 0, "marks": []}
    assert (found["finish"], found.get("degraded")) == ("done", None)
    assert found["usage"]["input_tokens"] == 100
    assert [(call["tool"], call["iteration"]) for call in found["trace"]["tool_calls"]] == [
        ("search_mental_models", 0), ("search_observations", 0), ("recall", 0),
    ]  # fmt: skip
    assert [call["scope"] for call in found["trace"]["llm_calls"]] == ["agent_1"]
    assert len(llm.asked) == 1
    offered = {tool["function"]["name"] for tool in llm.asked[0].more["tools"]}
    assert offered == {"search_observations", "recall", "expand", "done"}


async def test_tools_then_done(bank: Live) -> None:
    def done(asked: Asked) -> Said:
        return calls(("done", {"answer": f"Bob works at Siemens [{handle(asked, 'Siemens')}].",
                               "memory_ids": []}))  # fmt: skip

    asks = calls(("recall", {"reason": "who", "query": "Where does Bob work?"}),
                 ("expand", {"memory_ids": ["F1"]}))  # fmt: skip
    with scripted(bank, asks, done) as llm:
        found = await ask(bank, "Tell me about Bob", include={"facts": {}, "tool_calls": {}})
    assert found["text"] == "Bob works at Siemens."
    assert [fact["tags"] for fact in found["based_on"]["memories"]] == [["work"]]
    assert [c["tool"] for c in found["trace"]["tool_calls"] if c["iteration"] == 1] == [
        "recall", "expand",
    ]  # fmt: skip
    results = [m for m in llm.asked[1].messages if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["c0", "c1"]
    assert "Shown above already" in results[0]["content"]


async def test_nothing_is_listed_that_is_not_cited(bank: Live) -> None:
    with scripted(bank, "Hello! How can I help you?") as llm:
        found = await ask(bank, "hi", include={"facts": {}})
    assert found["based_on"] == {"memories": [], "mental_models": [], "directives": []}
    assert (found["citations"], found["grounding"]["sentences"]) == ([], 0)
    assert len(llm.asked) == 1


async def test_a_sentence_without_support_is_asked_for_again(bank: Live) -> None:
    def bad(asked: Asked) -> str:
        return f"Ann moved to Lisbon in 2019 [{handle(asked, '5 May 2024')}]. She hates fish."

    def good(asked: Asked) -> str:
        return f"Ann moved to Lisbon in 2024 [{handle(asked, '5 May 2024')}]."

    with scripted(bank, bad, good) as llm:
        found = await ask(bank)
    assert found["text"] == "Ann moved to Lisbon in 2024."
    assert found["grounding"]["unsupported"] == 0
    assert "2019 cannot be found" in llm.asked[1].user
    assert "She hates fish" in llm.asked[1].user
    with scripted(bank, bad, bad):
        found = await ask(bank, include={"facts": {}})
    assert found["grounding"] | {"marks": []} == {
        "sentences": 2, "supported": 0, "unsupported": 2, "marks": [],
    }  # fmt: skip
    assert [found["text"][m["start"] : m["end"]] for m in found["grounding"]["marks"]] == [
        "Ann moved to Lisbon in 2019.", "She hates fish.",
    ]  # fmt: skip
    assert (found["citations"], found["based_on"]["memories"]) == ([], [])
    with scripted(bank, bad, bad, reflect_strict_grounding=True):
        found = await ask(bank)
    assert found["text"].startswith("I do not know")
    assert found["grounding"]["unsupported"] == 0


async def test_no_information_despite_evidence(bank: Live) -> None:
    def answered(asked: Asked) -> str:
        assert "Look again" in asked.user
        return f"In Lisbon [{handle(asked, '5 May 2024')}]."

    with scripted(bank, "I have no information about that.", answered):
        found = await ask(bank)
    assert (found["text"], found.get("degraded")) == ("In Lisbon.", None)
    with scripted(bank, "I don't know.", "I don't know."):
        found = await ask(bank)
    assert (found["text"], found["degraded"]) == ("I don't know.", ["declined"])
    with scripted(bank, "I don't know.") as llm:  # and nothing that has to do with it
        found = await ask(bank, "What is the boiling point of tungsten?")
    assert (found["text"], found.get("degraded")) == ("I don't know.", None)
    assert len(llm.asked) == 1


async def test_models_and_directives(bank: Live) -> None:
    known = Known(
        [FoundModel("ann-page", "About Ann", "Ann lives in Lisbon and plays chess.")],
        [Directive("d1", "tone", "Be formal.", 9)],
        [Directive("d2", "other", "Swear.", 1)],
    )
    with scripted(bank, "Ann plays chess [M1].", known=known) as llm:
        found = await ask(bank, include={"facts": {}, "tool_calls": {}}, tags=["x"])
    assert found["based_on"]["mental_models"] == [
        {"id": "ann-page", "text": "Ann lives in Lisbon and plays chess.", "context": "About Ann"}
    ]
    assert [d["id"] for d in found["based_on"]["directives"]] == ["d1"]
    assert found["trace"]["directives_left_out"] == [{"id": "d2", "name": "other"}]
    assert "Be formal." in llm.asked[0].system
    assert "Swear" not in llm.asked[0].system
    assert known.asked[0] == (("x",), "any", False)
    with scripted(bank, "Ann plays chess [M1].", "I do not know.", known=known):
        found = await ask(bank, exclude_mental_model_ids=["ann-page"], include={"facts": {}})
    assert found["based_on"]["mental_models"] == []


async def test_structured(bank: Live) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "year": {"type": "integer"}},
        "required": ["city", "year"],
    }

    def answered(asked: Asked) -> str:
        return f"In Lisbon [{handle(asked, '5 May 2024')}]."

    good = {"city": "Lisbon", "year": 2024}
    with scripted(bank, answered, {"city": "Lisbon"}, good) as llm:
        found = await ask(bank, response_schema=schema)
    assert found["structured_output"] == good
    assert "'year' is a required property" in llm.asked[2].user
    with scripted(bank, answered, {"city": "Lisbon"}, "no"):
        found = await ask(bank, response_schema=schema)
    assert (found["text"], found.get("structured_output")) == ("In Lisbon.", None)
    assert "no JSON object" in found["structured_output_error"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.Unavailable("the language model"), 503),
        (errors.ModelExhausted("no quota", 30), 503),
        (errors.RateLimited("budget", 5), 429),
        (errors.DeadlineExceeded("x"), 504),
    ],
)
async def test_no_provider(bank: Live, error: Exception, status: int) -> None:
    def fail(asked: Asked) -> str:
        raise error

    with scripted(bank, fail, fail):
        answer = await bank.http.post(f"{B}/{BANK}/reflect", json={"query": "Where is Ann?"})
    assert answer.status_code == status, answer.text
    assert ("retry-after" in answer.headers) == (status != 504)
    if status == 504:
        assert "REFLECT_WALL_TIMEOUT" in answer.json()["detail"]


async def test_stream(bank: Live) -> None:
    def answered(asked: Asked) -> str:
        return f"Hello! Ann moved to Lisbon [{handle(asked, '5 May 2024')}]."

    with scripted(bank, answered):
        answer = await bank.http.post(
            f"{B}/{BANK}/reflect",
            json={"query": "Where is Ann?", "include": {"facts": {}}},
            headers={"accept": "text/event-stream"},
        )
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answer.text)
    assert [name for name, _ in events] == ["tool"] * 3 + ["usage", "sentence", "done"]
    last = json.loads(events[-1][1])
    assert last["text"] == "Hello! Ann moved to Lisbon."
    assert "".join(json.loads(d)["text"] for n, d in events if n == "sentence") == last["text"]
    missing = await bank.http.post(
        f"{B}/not-there/reflect",
        json={"query": "Where?"},
        headers={"accept": "text/event-stream"},
    )
    assert missing.status_code == 400  # no language model here


async def test_whoever_goes_away_stops_it(bank: Live) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    class Hanging(Scripted):
        async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            raise AssertionError

    with scripted(bank) as _:
        services = bank.api.state.services
        services.reflector._llm = Hanging()
        sent: list[Any] = []
        body = json.dumps({"query": "Where is Ann?"}).encode()
        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": f"{B}/{BANK}/reflect", "raw_path": f"{B}/{BANK}/reflect".encode(),
            "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
            "server": ("test", 80),
            "headers": [(b"host", b"test"), (b"content-type", b"application/json"),
                        (b"content-length", str(len(body)).encode())],
        }  # fmt: skip
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            for message in messages:
                return message
            await started.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(20):
            await bank.api(scope, receive, send)
        assert stopped.is_set()
        assert sent[0]["status"] == 499
        assert services.reflect_admission.running == 0


async def test_bad_requests(live: Live) -> None:
    async def status(**body: Any) -> httpx.Response:
        return await live.http.post(f"{B}/sample/reflect", json={"query": "q", **body})

    remote = {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}
    wrong: tuple[dict[str, Any], ...] = (
        {"query": "?!"},
        {"budget": "huge"},
        {"tags": ["a"], "tag_groups": [{"tags": ["a"]}]},
        {"fact_types": []},
        {"fact_types": ["opinion"]},
        {"max_tokens": 0},
        {"response_schema": {}},
        {"response_schema": {"type": "array", "items": {}}},
        {"response_schema": {"type": "object", "properties": {"a": {"type": "date"}}}},
        {"response_schema": remote},
        {"reflect_search_observations_max_tokens": 0},
    )
    for body in wrong:
        assert (await status(**body)).status_code == 422, body
    answer = await status()
    assert answer.status_code == 400
    assert "language model" in answer.json()["detail"]
