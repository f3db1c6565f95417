"""Tools without a server: schemas, requests, results, and what is pasted into clients."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import orjson
import pytest
from mcp_types import CallToolResult
from pydantic import ValidationError

from retrieval.text import tokens
from serve.mcp import results, schemas
from serve.mcp.calls import Route, RouteResponse
from serve.mcp.snippets import SNIPPETS, ClientTarget
from serve.mcp.tool import Tool, problems
from serve.mcp.tools import MEMORY, TOOLS, reflection
from serve.mcp.tools.memory import Recall, Retain

pytestmark = pytest.mark.unit


def said(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


def test_ids_are_encoded_in_addresses() -> None:
    call = Route("GET", "/banks/{bank_id}/documents/{document_id}").call(
        {"bank_id": "a/b", "document_id": "../x?y#z ü"}, {"q": "1"}
    )
    assert call.path == "/banks/a%2Fb/documents/..%2Fx%3Fy%23z%20%C3%BC"
    assert (call.query, call.body) == ({"q": "1"}, None)


def test_a_retain_is_a_list_of_one_item() -> None:
    made = Retain.model_validate({"content": "a", "tags": '["x"]', "metadata": None, "more": 1})
    (call,) = made.calls("b")
    assert call.path == "/v1/default/banks/b/memories"
    assert call.body == {
        "items": [{"content": "a", "context": "general", "tags": ["x"]}],
        "async": True,
    }


def test_extras_of_a_recall() -> None:
    body = Recall.model_validate({"query": "a", "include_chunks": True}).calls("b")[0].body
    assert body is not None
    assert body["include"] == {
        "chunks": {"max_tokens": 8192},
        "entities": None,
        "source_facts": None,
    }
    assert (body["budget"], body["max_tokens"]) == ("high", 4096)


@pytest.mark.parametrize("tool", [*TOOLS.values(), *reflection.TOOLS], ids=lambda one: one.NAME)
def test_every_tool_says_what_it_is(tool: type[Tool]) -> None:
    schema = schemas.of(tool, bank=True)
    assert "anyOf" not in json.dumps(schema)
    assert "title" not in schema
    assert tool.__doc__
    assert tool.ROUTE.path.startswith("/v1/default/banks")
    missing = [name for name in schema.get("required", []) if name not in tool.model_fields]
    assert not missing


@pytest.mark.parametrize(
    ("tool", "given", "body"),
    [
        (
            reflection.Reflect,
            {"query": "q", "include_based_on": True},
            {
                "query": "q",
                "budget": "low",
                "max_tokens": 4096,
                "tags_match": "any",
                "include": {"facts": {}},
            },
        ),
        (
            reflection.CreateMentalModel,
            {"name": "n", "source_query": "q", "mental_model_id": "m", "tags_match": "any"},
            {
                "name": "n",
                "source_query": "q",
                "id": "m",
                "max_tokens": 2048,
                "trigger": {"refresh_after_consolidation": False, "tags_match": "any"},
            },
        ),
        (
            reflection.UpdateMentalModel,
            {"mental_model_id": "m", "tags": [], "trigger_refresh_after_consolidation": True},
            {"tags": [], "trigger": {"refresh_after_consolidation": True}},
        ),
        (reflection.UpdateKnowledgeNode, {"node_id": "n", "parent_id": ""}, {"parent_id": None}),
    ],
)
def test_requests_to_the_routes_of_models(tool: type[Tool], given: Any, body: Any) -> None:
    assert tool.model_validate(given).calls("b")[0].body == body


def test_the_small_toolset_is_six_tools() -> None:
    assert len(MEMORY) == 6
    assert set(TOOLS) >= MEMORY


def test_what_is_wrong_is_said_in_one_sentence() -> None:
    given = {
        "max_tokens": {},
        "budget": "x",
        "tags": 5,
        "types": [1],
        "min_scores": 3,
        "tags_match": 1,
    }
    with pytest.raises(ValidationError) as caught:
        Recall.model_validate(given)
    sentence = problems(caught.value)
    assert sentence.startswith("query: Field required")
    assert sentence.endswith("more")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (RouteResponse(404, {"detail": "there is no bank 'x'"}), "there is no bank 'x'"),
        (RouteResponse(429, {"detail": "slower"}, 7), "slower; try again in 7 s"),
        (RouteResponse(503, {"detail": "busy"}, 1), "busy; try again in 1 s"),
        (
            RouteResponse(
                422, {"detail": [{"loc": ["body", "items", 0, "content"], "msg": "is blank"}]}
            ),
            "content: is blank",
        ),
        (RouteResponse(500, []), "the server answered with status 500"),
    ],
)
def test_refusals(answer: RouteResponse, sentence: str) -> None:
    found = results.refused(answer)
    assert found.is_error
    assert said(found) == sentence


def test_a_sentence_is_bounded() -> None:
    assert len(said(results.failed("x" * 10**6))) < 2_100


def test_answers_are_bounded() -> None:
    rows = [{"id": str(number), "text": "wind and water " * 20} for number in range(3_000)]
    many = results.result({"items": rows, "total": 3_000, "none": None})
    assert 50 < len(many.structured_content["items"]) < 3_000
    assert many.structured_content["total"] == 3_000
    assert "offset" in many.structured_content["truncated"]
    long = results.result({"original_text": "風と水 " * 200_000, "id": "1"})
    named = results.result({"chunks": {row["id"]: row for row in rows}, "results": rows})
    for one in (many, long, named):
        assert tokens.count(said(one)) <= results.TOKENS_MAX
        assert json.loads(said(one)) == one.structured_content
    small = results.result({"items": rows[:3]})
    assert small.structured_content == {"items": rows[:3]}


@pytest.mark.parametrize("client", sorted(SNIPPETS))
@pytest.mark.parametrize("key", [None, 'odd "key"'])
def test_snippets(client: str, key: str | None) -> None:
    to = ClientTarget("http://memory.example:8888/", "team/a", key)
    text = SNIPPETS[client](to)
    if client == "codex":
        table = tomllib.loads(text.split("\n", 1)[1])["mcp_servers"]["memory"]
        assert table["url"] == to.url
    elif client == "claude-code":
        assert to.url in text
    else:
        content = orjson.loads(text.split(":\n", 1)[1])
        (servers,) = content.values()
        (entry,) = servers.values()
        assert to.url in entry.values() or "team/a" in entry["args"]
        assert (key is not None) == ("headers" in entry or "env" in entry)
    assert "team%2Fa" in text or "team/a" in text
