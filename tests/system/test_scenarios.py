"""What a memory server has to find, told as small stories among sixty other memories.

One system for the module, with the packaged embedding model and a real database; no cross-encoder
answers unless a test brings its own reranker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from retrieval.settings import RecallSettings
from tests.bench.harness import System, system
from tests.system import stories
from tests.system.asking import Bank, bank

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[System]:
    async with system() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def life(run: System) -> Bank:
    return await bank(run, "life", stories.LIFE, stories.HOMES, stories.distractors())


async def test_an_outage_is_found_through_a_project(run: System) -> None:
    told = await bank(run, "atlas", stories.ATLAS, stories.distractors())
    results = (await told.recall("Was Alice affected by recent issues?")).body["results"]
    place = told.named(results).index("outage")
    assert place < 5
    assert results[place]["explain"]["path"] == {
        "from": told.ids["uses"],
        "link": "subject",
        "hop": 2,
        "via": "Kubernetes",
    }


async def test_no_word_or_vector_finds_that_outage(run: System) -> None:
    told = await bank(run, "atlas-flat", stories.ATLAS, stories.distractors())
    flat = RecallSettings(enable_graph_retrieval=False)
    assert "outage" not in (await told.keys("Was Alice affected by recent issues?", flat))[:5]


async def test_a_manager_is_known_through_the_project(run: System) -> None:
    told = await bank(run, "manager", stories.MANAGER, stories.distractors())
    found = await told.keys("Is Rosalind's manager available in July?")
    assert found[:3] == ["works", "heads", "away"]


async def test_facts_of_an_account_come_from_every_session(run: System) -> None:
    told = await bank(run, "account", stories.ACCOUNT, stories.distractors())
    found = await told.keys("What should I know before calling Fennel Foods?")
    assert set(found[:3]) == {"contract", "renewal", "discount"}


@pytest.mark.parametrize(
    ("question", "chain"),
    [
        ("Why did the delivery to the hospital come late?", ["late", "pump", "valve"]),
        ("What did the rusted cooling valve lead to?", ["valve", "pump", "late"]),
    ],
)
async def test_a_chain_of_causes_is_followed_both_ways(
    run: System, question: str, chain: list[str]
) -> None:
    told = await bank(run, f"why-{chain[0]}", stories.WHY, stories.distractors())
    results = (await told.recall(question)).body["results"]
    assert told.named(results)[:3] == chain
    assert [r["explain"].get("path", {}).get("hop", 0) for r in results[:3]] == [0, 1, 2]
    assert {r["explain"]["path"]["link"] for r in results[1:3]} == {"causal"}
