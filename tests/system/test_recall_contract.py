"""What a caller may ask of a recall besides the question, end to end: filters, extras, limits,
floors, deadlines, and an answer when the reranker fails."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from retrieval.errors import DeadlineExceeded
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.text import tokens
from retrieval.types import (
    FactType,
    Filters,
    Include,
    MinScores,
    TagAll,
    TagAny,
    TagGroup,
    TagLeaf,
    TagNot,
    TagsMatch,
)
from tests.support.system import Memory, System, system
from tests.system.asking import Bank, bank
from tests.system.rerankers import Hanging, Scripted, overlap

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

KITES: list[Memory] = [
    {"key": "plain", "text": "The first kite flew over the harbour", "metadata": {"price": "7"}},
    {"key": "red", "text": "The second kite flew over the school", "tags": ["red"],
     "metadata": {"price": "12", "shop": "Leeds"}},
    {"key": "both", "text": "The third kite flew over the bridge", "tags": ["red", "blue"],
     "metadata": {"price": "30", "shop": "York"}},
    {"key": "blue", "text": "The fourth kite flew over the castle", "tags": ["blue"],
     "metadata": {"price": "100", "shop": "Leeds"}},
    {"key": "all", "text": "The fifth kite flew over the meadow", "tags": ["red", "blue", "old"]},
]  # fmt: skip
EVERY = {"plain", "red", "both", "blue", "all"}

GARDEN: list[Memory] = [
    {"key": "june", "text": "Odile planted forty tulips in June", "entities": ["Odile"]},
    {"key": "july", "text": "Odile planted twenty roses in July", "entities": ["Odile"]},
    {"key": "pond", "text": "Odile dug a pond for the frogs", "entities": ["Odile"]},
    {"key": "gardener", "text": "Odile plants flowers every summer", "type": "observation",
     "sources": ["june", "july"], "proof_count": 2},
    {"key": "copy", "text": "Odile dug a pond for the frogs.", "entities": ["Odile"]},
    {"key": "copy-two", "text": "Odile dug a pond for frogs", "entities": ["Odile"]},
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[System]:
    chunked = RetainSettings(retain_extraction_mode="chunks", retain_chunk_size=200)
    async with system(retain=chunked) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kites(run: System) -> Bank:
    return await bank(run, "kites", KITES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def garden(run: System) -> Bank:
    return await bank(run, "garden", GARDEN)


def ids(bank: Bank, *keys: str) -> tuple[bytes, ...]:
    return tuple(UUID(bank.ids[key]).bytes for key in keys)


# Filters


@pytest.mark.parametrize(
    ("match", "tags", "found"),
    [
        (TagsMatch.ANY, ("red",), {"plain", "red", "both", "all"}),
        (TagsMatch.ANY_STRICT, ("red",), {"red", "both", "all"}),
        (TagsMatch.ALL, ("red", "blue"), {"plain", "both", "all"}),
        (TagsMatch.ALL_STRICT, ("red", "blue"), {"both", "all"}),
        (TagsMatch.EXACT, ("blue", "red"), {"both"}),
        (TagsMatch.EXACT, (), {"plain"}),
        (TagsMatch.ANY, ("unknown",), {"plain"}),
        (TagsMatch.ALL_STRICT, ("red", "unknown"), set()),
        (TagsMatch.ANY_STRICT, (), EVERY),
    ],
)
async def test_tags(kites: Bank, match: TagsMatch, tags: tuple[str, ...], found: set[str]) -> None:
    asked = Filters(tags=tags, tags_match=match)
    assert set(await kites.keys("Where did a kite fly?", filters=asked)) == found


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (TagLeaf(("red",)), {"red", "both", "all"}),
        (TagNot(TagLeaf(("red",))), {"plain", "blue"}),
        (TagNot(TagLeaf(("red",), TagsMatch.ANY)), {"blue"}),
        (TagAll((TagLeaf(("red",)), TagNot(TagLeaf(("old",))))), {"red", "both"}),
        (TagAny((TagLeaf(("old",)), TagLeaf(("blue",), TagsMatch.EXACT))), {"all", "blue"}),
    ],
)
async def test_groups_of_tags(kites: Bank, group: TagGroup, found: set[str]) -> None:
    asked = Filters(tag_groups=(group,))
    assert set(await kites.keys("Where did a kite fly?", filters=asked)) == found


@pytest.mark.parametrize(
    ("predicates", "found"),
    [
        ({"shop": {"eq": "Leeds"}}, {"red", "blue"}),
        ({"shop": {"in": ["York", "Hull"]}}, {"both"}),
        ({"price": {"gte": 12, "lt": 100}}, {"red", "both"}),
        ({"price": {"gt": 9}}, {"red", "both", "blue"}),
        ({"price": {"exists": True}}, {"plain", "red", "both", "blue"}),
        ({"price": {"exists": False}}, {"all"}),
        ({"shop": {"eq": "Leeds"}, "price": {"lte": 12}}, {"red"}),
        ({"shop": {"eq": "Nowhere"}}, set()),
    ],
)
async def test_metadata(
    kites: Bank, predicates: Mapping[str, Mapping[str, Any]], found: set[str]
) -> None:
    asked = Filters(metadata=predicates)
    assert set(await kites.keys("Where did a kite fly?", filters=asked)) == found


async def test_types_limit_and_exclusions(kites: Bank, garden: Bank) -> None:
    question = "Where did a kite fly?"
    every = await kites.keys(question)
    assert set(every) == EVERY
    assert await kites.keys(question, limit=2) == every[:2]
    without = Filters(exclude_ids=ids(kites, every[0], every[2]))
    assert set(await kites.keys(question, filters=without)) == EVERY - {every[0], every[2]}
    only = Filters(types=(FactType.OBSERVATION,))
    assert await garden.keys("What does Odile plant?", filters=only) == ["gardener"]
    assert await kites.keys(question, filters=only) == []


# What goes along


async def test_near_duplicates_are_one_result(garden: Bank) -> None:
    question = "What did Odile dig for the frogs?"
    alike = {"pond", "copy", "copy-two"}
    assert set((await garden.keys(question))[:3]) == alike
    body = (await garden.recall(question, dedupe=0.9, trace=True)).body
    found = garden.named(body["results"])
    assert len(alike & set(found)) == 1
    assert found[0] in alike
    assert body["results"][0]["merged"] == 2
    assert not any("merged" in result for result in body["results"][1:])
    reasons = [decision["reason"] for decision in body["trace"]["decisions"]]
    assert reasons.count("duplicate") == 2


async def test_an_observation_of_one_memory_is_its_duplicate(run: System) -> None:
    told = await bank(
        run,
        "roof",
        [
            {"key": "leak", "text": "Rain came through the roof of the shed on Monday"},
            {"key": "paint", "text": "The shed was painted green"},
            {"key": "one", "text": "The shed is not tight", "type": "observation",
             "sources": ["leak"]},
            {"key": "both", "text": "The shed gets a lot of attention", "type": "observation",
             "sources": ["leak", "paint"]},
        ],
    )  # fmt: skip
    question = "What is the matter with the shed?"
    assert set(await told.keys(question)) == {"leak", "paint", "one", "both"}
    body = (await told.recall(question, dedupe=0.99)).body
    found = told.named(body["results"])
    assert len({"leak", "one"} & set(found)) == 1
    assert {"paint", "both"} <= set(found)
    assert [r.get("merged") for r in body["results"]].count(1) == 1


async def test_an_observation_stands_for_what_it_was_made_from(garden: Bank) -> None:
    question = "What did Odile plant?"
    told = {"gardener", "june", "july"}
    assert told <= set(await garden.keys(question, prefer_observations=False))
    preferred = await garden.keys(question, prefer_observations=True)
    assert told & set(preferred) == {"gardener"}
    assert "pond" in preferred
    plain = await garden.keys(question, prefer_observations=False)
    others = [key for key in plain if key not in told]
    before = others[: next(i for i, key in enumerate(plain) if key in told)]
    assert preferred == [*before, "gardener", *others[len(before) :]]


async def test_source_facts_within_their_budgets(garden: Bank) -> None:
    june, july = (tokens.count(GARDEN[i]["text"]) for i in (0, 1))
    sources = [garden.ids["june"], garden.ids["july"]]
    for budget, each, kept in (
        (-1, -1, sources),
        (june + july, -1, sources),
        (june, -1, sources[:1]),
        (0, -1, []),
        (0, june, sources[:1]),
        (0, june + july, sources),
    ):
        include = Include(None, source_facts=budget, source_facts_per_observation=each)
        only = Filters(types=(FactType.OBSERVATION,))
        body = (await garden.recall("What does Odile plant?", include=include, filters=only)).body
        assert list(body.get("source_facts", {})) == kept
        assert body["source_facts_truncated"] is (len(kept) < 2)
        assert body["results"][0]["source_fact_ids"] == sources


async def test_chunks_within_their_budget(run: System) -> None:
    texts = [
        "The ferry to the island leaves at nine." + " It carries bicycles and parcels." * 4,
        "The lighthouse was painted white." + " Its lamp was made in Antwerp long ago." * 3,
    ]
    items = [{"content": text, "document_id": f"d{i}"} for i, text in enumerate(texts)]
    await retain(run.ingest, run.tenant, "island", items)
    island = Bank(run, "island", {})
    cost = [tokens.count(text) for text in texts]

    async def chunks(budget: int | None) -> list[dict[str, Any]]:
        include = Include(None, chunks=budget)
        body = (await island.recall("When does the ferry leave?", include=include)).body
        return list(body.get("chunks", {}).values())

    assert await chunks(None) == []
    assert await chunks(0) == []
    whole = await chunks(1000)
    assert [chunk["text"] for chunk in whole] == texts
    assert not any(chunk["truncated"] for chunk in whole)
    first, second = await chunks(cost[0] + 5)
    assert (first["truncated"], second["truncated"]) == (False, True)
    assert texts[1].startswith(second["text"])
    assert tokens.count(second["text"]) <= 5


async def test_only_what_fits_is_packed_and_a_match_is_never_empty(kites: Bank) -> None:
    question = "Where did a kite fly?"
    every = await kites.keys(question)
    cost = {memory["key"]: tokens.count(memory["text"]) for memory in KITES}
    body = (await kites.recall(question, max_tokens=cost[every[0]] + cost[every[1]])).body
    assert kites.named(body["results"]) == every[:2]
    assert body["results_truncated"] is True
    assert await kites.keys(question, max_tokens=1) == every[:1]
    assert await kites.keys(question, max_tokens=0) == []


# Floors


async def test_floors(kites: Bank) -> None:
    question = "Which kite flew over the castle?"
    body = (await kites.recall(question)).body
    assert kites.named(body["results"])[0] == "blue"
    for name in ("semantic", "keyword", "final"):
        best = max(result["scores"][name] for result in body["results"])
        kept = await kites.recall(question, min_scores=MinScores(**{name: best}))
        scores = [result["scores"][name] for result in kept.body["results"]]
        assert scores == [best, *[None] * (len(scores) - 1)]
        assert len(scores) == (1 if name == "final" else len(EVERY))
    nothing = await kites.recall(question, min_scores=MinScores(final=99.0))
    assert nothing.body["results"] == []


async def test_the_floor_of_the_reranker_is_on_its_own_scale(kites: Bank) -> None:
    question = "Which kite flew over the castle?"
    reader = Scripted(overlap)
    floor = MinScores(reranker=0.7)
    assert await kites.keys(question, reranker=reader, min_scores=floor) == ["blue"]
    # Nothing reranked: there is no score to hold against the floor.
    assert set(await kites.keys(question, min_scores=floor)) == EVERY


# Time and failure


@pytest.mark.parametrize("left", [-5.0, 0.0, 1e-4])
async def test_a_deadline_that_cannot_be_met_names_the_stage(kites: Bank, left: float) -> None:
    with pytest.raises(DeadlineExceeded) as caught:
        await kites.recall("Where did a kite fly?", deadline=time.monotonic() + left)
    assert caught.value.stage in ("parallel_retrieval", "backend_acquisition")


async def test_a_reranker_that_hangs_costs_its_order_and_not_the_answer(kites: Bank) -> None:
    question = "Where did a kite fly?"
    expected = await kites.keys(question)
    begin = time.monotonic()
    answer = await kites.recall(question, reranker=Hanging(), deadline=begin + 1.5)
    assert time.monotonic() < begin + 1.5
    assert answer.degraded == ("rerank",)
    assert answer.body["degraded"] == ["rerank"]
    assert kites.named(answer.body["results"]) == expected


def _nan(question: str, document: str) -> float:
    return math.nan


def _some_nan(question: str, document: str) -> float:
    return math.nan if "castle" in document else 0.5 + overlap(question, document) / 2


@pytest.mark.parametrize(
    "reranker",
    [Scripted(_nan), Scripted(overlap, short=1), Hanging()],
    ids=["nan", "one-short", "hanging"],
)
async def test_an_unusable_answer_of_the_reranker_degrades(
    kites: Bank, reranker: Scripted | Hanging
) -> None:
    question = "Which kite flew over the bridge?"
    answer = await kites.recall(question, reranker=reranker, deadline=time.monotonic() + 1.0)
    results = answer.body["results"]
    assert answer.degraded == ("rerank",)
    assert {result["explain"]["ranked_by"] for result in results} == {"fused"}
    assert {result["scores"]["reranker"] for result in results} == {None}
    assert all(math.isfinite(result["scores"]["final"]) for result in results)
    assert kites.named(results) == await kites.keys(question)


async def test_a_score_that_is_no_number_counts_as_nothing(kites: Bank) -> None:
    body = (await kites.recall("Which kite is it?", reranker=Scripted(_some_nan))).body
    assert kites.named(body["results"])[-1] == "blue"
    assert body["results"][-1]["scores"]["reranker"] == 0.0
    assert "degraded" not in body
