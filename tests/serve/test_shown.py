"""Nothing that the filters of a recall leave out appears anywhere in its answer.

One bank with open and hidden memories that hang together in every way there is: an observation made
from both, documents with chunks, links, shared entities, an event, a newer state of the same thing.
Hidden is what carries the tag, was said later, or has the level. The word, the entities and the ids
of the hidden ones are then looked for in the bytes of the answer.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_asyncio

from retrieval.store.database.pool import Connection, write
from tests.serve.conftest import B, Live

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

BANK = "shown"
WORD = "quagga"
OPEN = {"tags": ["open"], "metadata": {"level": 1}, "mentioned_at": "2023-03-01"}
HIDDEN = {"tags": ["hidden"], "metadata": {"level": 9}, "mentioned_at": "2025-03-01"}
QUESTION = "Why was the harbour bridge closed after the storm, and where do they meet now?"

FILTERS: list[dict[str, Any]] = [
    {"tags": ["open"], "tags_match": "any"},
    {"tags": ["open"], "tags_match": "any_strict"},
    {"tags": ["open"], "tags_match": "all"},
    {"tags": ["open"], "tags_match": "all_strict"},
    {"tags": ["open"], "tags_match": "exact"},
    {"tag_groups": [{"not": {"tags": ["hidden"]}}]},
    {"tag_groups": [{"or": [{"tags": ["open"]}, {"tags": ["none"], "match": "all"}]}]},
    {"as_of": "2024-01-01"},
    {"as_of": "2024-01-01T02:00:00+09:00"},
    {"metadata_filter": {"level": 1}},
    {"metadata_filter": {"level": {"lt": 5}}},
    {"exclude_ids": ["hidden"]},
]
EXTRAS: list[dict[str, Any]] = [
    {"include": {"entities": {}, "source_facts": {}, "chunks": {}}},
    {"include": {"source_facts": {"max_tokens": -1, "max_tokens_per_observation": 500}}},
    {"include": {"chunks": {"max_tokens": 9}}},
    {"explain": True},
    {"trace": True, "include": {"entities": {}, "source_facts": {}, "chunks": {}}},
    {"types": ["observation"], "trace": True, "include": {"source_facts": {}, "chunks": {}}},
    {"max_tokens": 0, "include": {"chunks": {}}},
    {"prefer_observations": True, "dedupe": 0.9, "trace": True, "include": {"chunks": {}}},
]


def fact(key: str, text: str, hidden: bool = False, **more: Any) -> dict[str, Any]:
    own = HIDDEN if hidden else OPEN
    return {"key": key, "text": f"{text} {WORD}" if hidden else text, **own, **more}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hidden(live: Live) -> list[str]:
    """The bank; the ids that must not be seen."""
    for name, section in (("open", OPEN), ("hidden", HIDDEN)):
        text = "The harbour bridge was inspected by the crew."
        item = {
            "content": f"{text} {WORD}" if section is HIDDEN else text,
            "document_id": name if section is OPEN else f"{WORD}-paper",
            "timestamp": section["mentioned_at"],
            "tags": section["tags"],
            "metadata": section["metadata"],
        }
        answer = await live.http.post(f"{B}/{BANK}/memories", json={"items": [item]})
        assert answer.status_code == 200, answer.text
    listed = (await live.http.get(f"{B}/{BANK}/memories/list")).json()["items"]
    cut = {item["chunk_id"]: item["id"] for item in listed}
    assert len(cut) == 2
    made = await live.import_memories(
        BANK,
        fact("closed", "The harbour bridge was closed.", entities=["Harbour Bridge"]),
        fact(
            "cause",
            "A crane struck a pillar of the harbour bridge.",
            hidden=True,
            entities=["Harbour Bridge", f"{WORD} Crane"],
            links=[{"to": "closed", "type": "causes"}],
        ),
        fact(
            "behind",
            "A gale tore the crane loose.",
            entities=["Gale"],
            links=[{"to": "cause", "type": "causes"}],
        ),
        fact(
            "storm",
            "The great storm hit the harbour.",
            hidden=True,
            occurred_start="2022-02-02",
            entities=[f"{WORD} Storm"],
        ),
        fact(
            "meet", "The crew meet in the old mill.", occurred_start="2022-01-01", entities=["Crew"]
        ),
        fact(
            "meet-now",
            "The crew meet in the new hall now.",
            hidden=True,
            occurred_start="2024-12-01",
            entities=["Crew", f"{WORD} Hall"],
        ),
        fact(
            "known",
            "The harbour bridge is often closed.",
            type="observation",
            sources=["closed", "cause", "meet-now", *cut.values()],
        ),
        fact("deeper", "Bridges are a worry.", type="observation", sources=["known", "inner"]),
        fact("inner", "Cranes are a worry.", True, type="observation", sources=["cause", "behind"]),
    )
    ids = [made["ids"][key] for key in ("cause", "storm", "meet-now", "inner")]
    return [*ids, *(id for chunk, id in cut.items() if WORD in chunk)]


def body(hidden: list[str], wanted: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    asked = {"query": QUESTION, "budget": "high", **wanted, **extra}
    if "exclude_ids" in asked:
        asked["exclude_ids"] = hidden
    return asked


async def answered(live: Live, asked: dict[str, Any]) -> str:
    answer = await live.http.post(f"{B}/{BANK}/memories/recall", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
@pytest.mark.parametrize("wanted", FILTERS, ids=str)
async def test_nothing_hidden_is_shown(
    live: Live, hidden: list[str], wanted: dict[str, Any], extra: dict[str, Any]
) -> None:
    text = await answered(live, body(hidden, wanted, extra))
    assert WORD not in text.lower()
    assert not [id for id in hidden if id in text]


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
async def test_without_a_filter_it_would_be(
    live: Live, hidden: list[str], extra: dict[str, Any]
) -> None:
    text = await answered(live, body(hidden, {}, extra))
    assert WORD in text.lower()


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
async def test_what_is_open_is_still_shown(
    live: Live, hidden: list[str], wanted: dict[str, Any]
) -> None:
    extra = {"explain": True, "include": {"entities": {}, "source_facts": {}, "chunks": {}}}
    found = json.loads(await answered(live, body(hidden, wanted, extra)))
    by_text = {result["text"]: result for result in found["results"]}
    known = by_text["The harbour bridge is often closed."]
    assert len(known["source_fact_ids"]) == 2
    assert set(known["source_fact_ids"]) == found["source_facts"].keys() - {known["id"]}
    assert known["entities"] == ["Harbour Bridge"]
    assert [chunk["text"] for chunk in found["chunks"].values()] == [
        "The harbour bridge was inspected by the crew."
    ]
    assert found["source_facts_truncated"] is False


async def test_a_chunk_is_as_hidden_as_the_most_hidden_memory_of_it(live: Live) -> None:
    bank = "shown-chunks"
    item = {"content": "The mill stands by the river.", "document_id": "d", "tags": ["open"]}
    answer = await live.http.post(f"{B}/{bank}/memories", json={"items": [item]})
    assert answer.status_code == 200, answer.text
    asked = {"query": "mill", "tags": ["open"], "tags_match": "all", "include": {"chunks": {}}}
    url = f"{B}/{bank}/memories/recall"
    assert len((await live.http.post(url, json=asked)).json()["chunks"]) == 1
    pool = live.services.pool
    async with pool.acquire() as connection:  # as an LLM would have cut two facts from it
        await connection.execute(
            "insert into memory_units (bank, id, text, fact_type, document_id, chunk_id, tags,"
            "  token_count)"
            " select bank, gen_random_uuid(), 'The mill is sold.', fact_type, document_id,"
            "  chunk_id, '{hidden}', 5 from memory_units"
            " where bank = (select bank from banks where bank_id = $1)",
            bank,
        )
    assert "chunks" not in (await live.http.post(url, json=asked)).json()
    open_ = {"query": "mill", "include": {"chunks": {}}}
    assert len((await live.http.post(url, json=open_)).json()["chunks"]) == 1


async def test_what_took_the_place_of_a_memory_is_as_hidden_as_itself(live: Live) -> None:
    bank = "shown-heirs"
    made = await live.import_memories(
        bank,
        fact("now", "They meet in the new hall.", hidden=True),
        fact("meet", "They meet in the old mill."),
        fact("mill", "They like the mill.", type="observation", sources=["meet"]),
    )
    meet, now = made["ids"]["meet"], made["ids"]["now"]

    async def ended(connection: Connection) -> None:
        await connection.execute(
            "update memory_units set valid_until = '2023-06-01Z', superseded_by = $2 where id = $1",
            meet,
            now,
        )

    await write(live.services.pool, ended)
    asked: dict[str, Any] = {"query": "Where do they meet?", "include": {"source_facts": {}}}
    for wanted in ({}, *FILTERS):
        if "exclude_ids" in wanted:
            wanted = {"exclude_ids": [now]}
        answer = await live.http.post(f"{B}/{bank}/memories/recall", json={**asked, **wanted})
        found = answer.json()
        shown = [one for one in found["results"] if one["id"] == meet]
        shown += [found["source_facts"][meet]]
        assert len(shown) == 2
        for one in shown:
            assert ("superseded_by" in one) == (not wanted)
            assert "valid_until" in one
    early = {**asked, "as_of": "2023-05-01"}
    found = (await live.http.post(f"{B}/{bank}/memories/recall", json=early)).json()
    assert not [one for one in found["source_facts"].values() if "valid_until" in one]
