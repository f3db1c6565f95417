"""The runner on cases of our own: what it does to banks is what the checks then find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.cases.case import RecallCase
from tests.cases.ground import CannotSetUp, Ground, own_ground
from tests.cases.player import play

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base() -> AsyncIterator[Ground]:
    async with own_ground() as made:
        yield made


def facts(*texts: str, **fields: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"text": text, "type": "world", **fields} for text in texts)


def all_of(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "all_of", "of": list(parts)}


FERRY = facts("The ferry leaves at seven.", "The ferry has two decks.", "The ferry is blue.")
SCORES = {"reranker": {"stub": "scores", "by_memory": {"0": 0.2, "1": None, "2": 0.9}}}

CASES = [
    RecallCase(
        "update",
        FERRY,
        "what about the ferry",
        all_of(
            {"kind": "text_of", "memory": 0, "value": "The ferry leaves at nine."},
            {"kind": "no_text", "value": "seven"},
            {"kind": "text_matches_id"},
            {"kind": "ids_known"},
        ),
        after=({"op": "update", "memory": 0, "text": "The ferry leaves at nine."},),
    ),
    RecallCase(
        "update of what the update route lacks",
        FERRY,
        "what about the ferry",
        all_of(
            {"kind": "field_equals", "memory": 1, "field": "tags", "value": ["deck"]},
            {"kind": "text_matches_id"},
        ),
        after=({"op": "update", "memory": 1, "tags": ["deck"]},),
    ),
    RecallCase(
        "insert and delete",
        FERRY,
        "what about the ferry",
        {"kind": "exact_set", "memories": [1, 2, 3]},
        after=(
            {"op": "insert", "memory": {"text": "The ferry carries cars.", "type": "world"}},
            {"op": "delete", "memory": 0},
        ),
    ),
    RecallCase(
        "documents",
        (*facts("The pier is new.", document_id="a"), *facts("The pier is long.", document_id="b")),
        "what is the pier like",
        {"kind": "exact_set", "memories": [1]},
        after=({"op": "delete_document", "document_id": "a"},),
    ),
    RecallCase(
        "scores",
        FERRY,
        "what about the ferry",
        all_of(
            {"kind": "stub_scores_passthrough"},
            {"kind": "first", "memory": 2},
            {"kind": "nan_ranked_last", "rotate": True},
            {"kind": "scores_finite"},
        ),
        setup=SCORES,
    ),
    RecallCase(
        "sources",
        (
            *facts("Ona bought oats.", "Ona bought barley.", "Ona sold a plough."),
            {"text": "Ona buys grain.", "type": "observation", "sources": [0, 1]},
        ),
        "what does Ona buy",
        all_of(
            {"kind": "contains", "memories": [3]},
            {"kind": "sources_exclude", "memory": 3, "memories": [2]},
            {"kind": "field_equals", "memory": 3, "field": "type", "value": "observation"},
        ),
        params={"include": {"source_facts": {}}},
    ),
    RecallCase(
        "packing",
        FERRY,
        "what about the ferry",
        all_of({"kind": "token_total_at_most", "tokens": 13}, {"kind": "packing_maximal"}),
        params={"max_tokens": 13},
    ),
    RecallCase(
        "tenants",
        (
            *facts("The safe code is 1111.", tenant="north", bank="vault"),
            *facts("The safe code is 2222.", tenant="south", bank="vault"),
        ),
        "what is the safe code",
        all_of({"kind": "exact_set", "memories": [1]}, {"kind": "isolated"}),
        params={"tenant": "south", "bank_id": "vault"},
        load={"concurrency": 8, "requests": 24, "round_robin_banks": True},
    ),
    RecallCase(
        "load",
        FERRY,
        "what about the ferry",
        all_of(
            {"kind": "no_error"},
            {"kind": "not_degraded"},
            {"kind": "neighbours_unaffected"},
            {"kind": "latency_at_most", "seconds": 20, "stage": "retrieval"},
            {"kind": "peak_memory_growth_at_most", "mb": 500},
            {"kind": "stable_across_calls", "calls": 5, "concurrency": 4},
        ),
        load={"concurrency": 4, "requests": 12},
    ),
    RecallCase(
        "a limit of the server",
        FERRY,
        "what about the ferry " * 3,
        {"kind": "status", "in": [400]},
        setup={"config": {"recall_max_query_tokens": 5}},
    ),
]

WRONG = [
    RecallCase("first", FERRY, "when does the ferry leave", {"kind": "first", "memory": 2}),
    RecallCase("status", FERRY, "when does the ferry leave", {"kind": "status", "in": [400]}),
    RecallCase(
        "a deleted memory",
        FERRY,
        "what about the ferry",
        {"kind": "contains", "memories": [0]},
        after=({"op": "delete", "memory": 0},),
    ),
    RecallCase(
        "scores as they are not",
        FERRY,
        "what about the ferry",
        {"kind": "score_equals", "memory": 0, "field": "reranker", "value": 0.3},
        setup=SCORES,
    ),
]

BEYOND = [
    RecallCase("needs", FERRY, "which ferry", {"kind": "no_error"}, needs=frozenset({"a tide"})),
    RecallCase("setup", FERRY, "which ferry", {"kind": "no_error"}, setup={"tide": "high"}),
    RecallCase("step", FERRY, "which ferry", {"kind": "no_error"}, after=({"op": "sink"},)),
    RecallCase("field", facts("Blue.", tide=1), "which ferry", {"kind": "no_error"}),
]


def named(case: RecallCase) -> str:
    return case.id


@pytest.mark.parametrize("case", CASES, ids=named)
async def test_plays(case: RecallCase, base: Ground) -> None:
    await play(case, base)


@pytest.mark.parametrize("case", WRONG, ids=named)
async def test_a_wrong_expectation_fails(case: RecallCase, base: Ground) -> None:
    with pytest.raises(AssertionError):
        await play(case, base)


@pytest.mark.parametrize("case", BEYOND, ids=named)
async def test_says_what_it_cannot_set_up(case: RecallCase, base: Ground) -> None:
    with pytest.raises(CannotSetUp):
        await play(case, base)
