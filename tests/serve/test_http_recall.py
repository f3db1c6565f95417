"""Recall over HTTP: the sample bank, every request field, nulls, limits and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serve.local import sample
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration
URL = f"{B}/{sample.BANK}/memories/recall"

WHAT_THE_CLIENT_SENDS = {
    "types": None,
    "budget": "mid",
    "max_tokens": 4096,
    "trace": False,
    "query_timestamp": None,
    "include": {"entities": None, "chunks": None, "source_facts": None},
    "tags": None,
    "tags_match": "any",
    "tag_groups": None,
    "prefer_observations": None,
    "min_scores": None,
    "temporal_window": None,
}


async def texts(live: Live, query: str, **body: Any) -> list[str]:
    return [result["text"] for result in (await live.recall(sample.BANK, query, **body))["results"]]


async def test_causes_over_two_hops(live: Live) -> None:
    found = (await live.recall(sample.BANK, sample.QUESTION, explain=True))["results"]
    place = {result["text"]: i for i, result in enumerate(found)}
    paths = {result["text"]: result["explain"].get("path", {}) for result in found}
    (why,) = (text for text in place if "could not be held in the Market Square" in text)
    (behind,) = (text for text in place if "lorries could no longer reach" in text)
    assert place[why] < 10
    assert (paths[why]["link"], paths[behind]["link"]) == ("causal", "causal")
    assert (paths[why]["hop"], paths[behind]["hop"]) == (1, 2)


async def test_an_account_comes_where_it_is_asked_for(live: Live) -> None:
    plain = await live.http.post(URL, json={"query": sample.QUESTION})
    assert not any("explain" in result for result in plain.json()["results"])
    assert len(plain.content) <= 70_000
    for asked in ({"explain": True}, {"trace": True}):
        found = (await live.recall(sample.BANK, sample.QUESTION, **asked))["results"]
        assert all({"arms", "fused_rank"} <= result["explain"].keys() for result in found)
        assert [r["id"] for r in found] == [r["id"] for r in plain.json()["results"]]


async def test_both_languages(live: Live) -> None:
    assert "两千本书" in (await texts(live, "洪水那天晚上图书馆的书怎么样了？"))[0]


async def test_a_time_in_the_question(live: Live) -> None:
    found = await texts(live, "What happened at the school in November 2024?")
    assert any("lost her voice" in text for text in found[:5])


async def test_a_name_that_the_bank_knows_is_no_time(live: Live) -> None:
    """ "Friday" by itself is somebody where the bank knows somebody who is called so."""
    when = "2025-06-18T12:00:00Z"
    fact = {"text": "Crusoe met a man on the beach.", "occurred_start": "2024-05-03"}
    await live.import_memories("island", {**fact, "entities": ["Friday"]})
    await live.import_memories("office", {**fact, "entities": ["Crusoe"]})

    async def window(bank: str, query: str) -> Any:
        found = await live.recall(bank, query, query_timestamp=when, trace=True)
        return found["trace"]["query"]["temporal_constraint"]

    assert await window("office", "What did Friday bring?") is not None
    assert await window("island", "What did Friday bring?") is None
    assert await window("island", "What did Crusoe bring on Friday?") is not None


async def test_the_request_of_the_public_client(live: Live) -> None:
    found = await live.recall(sample.BANK, "sourdough", **WHAT_THE_CLIENT_SENDS)
    assert "thirty hours" in found["results"][0]["text"]
    assert "entities" not in found


@pytest.mark.parametrize(
    "body",
    [
        {"budget": None, "tags_match": None, "trace": None, "max_tokens": None, "include": None},
        {"types": []},
        {"types": ["world", "opinion"]},
        {"min_scores": {"semantic": None, "keyword": 0.1, "reranker": None, "final": None}},
        {"temporal_window": {"start": "2024-09-01", "end": None}},
        {
            "temporal_window": {"start": "2024-09-01", "end": "2024-09-30"},
            "temporal_mode": "filter",
        },
        {"query_timestamp": "2025-01-01"},
        {"query_timestamp": "2025-01-01T10:00:00Z"},
        {"query_timestamp": "2025-01-01T10:00:00.123456+02:00"},
        {
            "tag_groups": [
                {"or": [{"tags": ["flood"], "resolve": "exact"}, {"not": {"tags": ["x"]}}]}
            ]
        },
        {"include": {"entities": {"max_tokens": 100}, "chunks": {}, "source_facts": {}}},
        {"max_tokens": 0},
        {"include": {"source_facts": {"max_tokens": -1, "max_tokens_per_observation": -1}}},
        {"limit": 1, "dedupe": 0.9, "as_of": "2024-01-01"},
        {"metadata_filter": {"source": "gazette", "page": {"in": ["1", "2"]}}},
        {"exclude_ids": ["00000000-0000-0000-0000-000000000000"]},
    ],
    ids=str,
)
async def test_bodies_that_are_right(live: Live, body: dict[str, Any]) -> None:
    await live.recall(sample.BANK, "the flood and the school", **body)


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 422, "query"),
        ({"query": "x", "max_tokens": -1}, 422, "max_tokens"),
        ({"query": "x", "max_tokens": -(2**40)}, 422, "max_tokens"),
        ({"query": "x", "include": {"chunks": {"max_tokens": -1}}}, 422, "max_tokens"),
        ({"query": "x", "include": {"entities": {"max_tokens": -1}}}, 422, "max_tokens"),
        ({"query": "x", "include": {"source_facts": {"max_tokens": -2}}}, 422, "max_tokens"),
        ({"query": ""}, 422, "query"),
        ({"query": "?! ..."}, 422, "letter or digit"),
        ({"query": 5}, 422, "query"),
        ({"query": "x", "types": ["wish"]}, 422, "wish"),
        ({"query": "x", "budget": "huge"}, 422, "budget"),
        ({"query": "x", "max_tokens": "many"}, 422, "max_tokens"),
        ({"query": "x", "tags": [], "tag_groups": []}, 422, "tag_groups"),
        ({"query": "x", "tag_groups": [{"and": []}]}, 422, "non-empty"),
        ({"query": "x", "tag_groups": [{}]}, 422, "tag group"),
        ({"query": "x", "tag_groups": [{"tags": "a"}]}, 422, "tags"),
        ({"query": "x", "tags_match": "some"}, 422, "tags_match"),
        (
            {"query": "x", "temporal_window": {"start": "2025-02-01", "end": "2025-01-01"}},
            422,
            "before",
        ),
        ({"query": "x", "temporal_window": {"start": "soon"}}, 422, "soon"),
        ({"query": "x", "query_timestamp": "yesterday"}, 400, "query_timestamp"),
        ({"query": "x", "query_timestamp": "2025-13-01"}, 400, "query_timestamp"),
        ({"query": "x", "min_scores": {"final": "NaN"}}, 422, "final"),
        ({"query": "x", "exclude_ids": ["1"]}, 400, "exclude_ids"),
        ({"query": "x", "limit": 0}, 422, "limit"),
        ({"query": "x", "metadata_filter": {"a": {"near": 1}}}, 422, "a"),
        ({"query": "word " * 2000}, 400, "500 tokens"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_bodies_that_are_wrong(
    live: Live, body: dict[str, Any], status: int, named: str
) -> None:
    answer = await live.http.post(URL, json=body)
    assert answer.status_code == status, answer.text
    assert named in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"query": "x", "max_tokens": NaN}', 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"", 422),
        (b'{"query": "\\ud800"}', 422),
        (b'{"query": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422),
    ],
)
async def test_bodies_that_are_no_json(live: Live, content: bytes, status: int) -> None:
    answer = await live.http.post(
        URL, content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


async def test_an_unknown_bank_is_told_and_not_made(live: Live) -> None:
    for body in ({"query": "x"}, {"query": "x", "types": ["opinion"]}):
        answer = await live.http.post(f"{B}/nobody/memories/recall", json=body)
        assert answer.status_code == 404
        assert "nobody" in answer.json()["detail"]
    listed = (await live.http.get(B)).json()["banks"]
    assert "nobody" not in [bank["bank_id"] for bank in listed]


async def test_what_was_ignored_is_named(live: Live) -> None:
    answer = await live.http.post(
        f"{URL}?colour=red", json={"query": "flood", "enable_graph": True, "ünknown\n": 1}
    )
    assert answer.status_code == 200
    assert answer.headers["x-ignored-params"] == "colour, enable_graph, %C3%BCnknown%0A"
    answer = await live.http.post(URL, json={"query": "flood"})
    assert "x-ignored-params" not in answer.headers


async def test_a_deadline_that_cannot_be_met(live: Live) -> None:
    answer = await live.http.post(
        URL, json={"query": "flood"}, headers={"x-request-timeout-s": "0.000001"}
    )
    assert answer.status_code == 504
    assert "ran out of time" in answer.json()["detail"]


async def test_only_a_retired_type(live: Live) -> None:
    assert await live.recall(sample.BANK, "flood", types=["opinion"]) == {"results": []}


async def test_many_at_once_while_the_bank_grows(live: Live) -> None:
    """Every recall sees what was acknowledged before it began, and nothing of another bank."""
    acknowledged = 0

    async def grow() -> None:
        nonlocal acknowledged
        for i in range(8):
            memory = {"key": f"g{i}", "text": f"Beacon number {i} was lit on the ridge."}
            await live.import_memories("growing", memory)
            await live.import_memories("other", {**memory, "text": f"Secret number {i} is kept."})
            acknowledged = i + 1

    async def ask() -> None:
        seen = acknowledged
        found = await live.recall("growing", "beacon lit on the ridge", max_tokens=10_000)
        texts = [result["text"] for result in found["results"]]
        assert all(text.startswith("Beacon") for text in texts)
        assert len(texts) >= seen

    await live.import_memories("growing", {"key": "first", "text": "Beacon zero was lit."})
    growing = asyncio.create_task(grow())
    while not growing.done():
        await asyncio.gather(*(ask() for _ in range(40)))
    await growing
