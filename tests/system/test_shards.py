"""A bank that is split by ordinal range answers every recall as an unsplit one, wherever its ranges
are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import LocalShards
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.bank.vectors.partitioned import PartitionedBackend, PartitionedVectors
from retrieval.ingest.curation import delete_memory
from retrieval.settings import RecallSettings
from retrieval.store import banks
from retrieval.types import (
    Budget,
    FactType,
    Filters,
    Include,
    RecallQuery,
    Window,
)
from tests.support.system import System, system
from tests.system.embedding import HashEmbedder
from tests.system.holders import Holders

pytestmark = pytest.mark.integration

SHARD = 7
BANK = "large"
DAY = datetime(2025, 3, 1, 12, tzinfo=UTC)
PLACES = ("mill", "quay", "orchard", "kiln", "chapel", "tannery")
PEOPLE = ("Ada", "Bruno", "Celia", "Dmitri")


def memories(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "key": f"m{n}",
            "text": f"{PEOPLE[n % 4]} saw lantern {n % 17} at the {PLACES[n % 6]}, {n % 5} ropes.",
            "type": "experience" if n % 3 else "world",
            "occurred_start": (DAY + timedelta(hours=7 * n)).isoformat(),
            "document_id": f"d{n // 9}",
            "tags": [PLACES[n % 6]],
            "entities": [PEOPLE[n % 4], PLACES[n % 6]],
        }
        for n in range(first, first + count)
    ]


def questions(tenant: str) -> list[RecallQuery]:
    plain = RecallQuery(
        tenant=tenant,
        bank_id=BANK,
        text="",
        now=DAY + timedelta(days=60),
        max_tokens=100_000,
        include=Include(entities=500),
        budget=Budget.HIGH,
    )
    week = Window(DAY + timedelta(days=5), DAY + timedelta(days=12))
    return [
        replace(plain, text="who saw the lantern at the mill"),
        replace(plain, text="Ada and Bruno with ropes", budget=Budget.LOW, limit=9),
        replace(plain, text="lantern 11", filters=Filters(types=(FactType.WORLD,))),
        replace(plain, text="what happened to Dmitri", window=week),
        replace(plain, text="the quay", filters=Filters(tags=("quay", "kiln"), window=week)),
        replace(plain, text="Celia", filters=Filters(as_of=DAY + timedelta(days=3))),
        replace(plain, text="ropes at the chapel in March 2025", dedupe=0.9),
        replace(plain, text="what did Ada see before the lantern 8 at the quay"),
    ]


async def same(split: System, whole: System) -> None:
    """Everything but the last bits of the final scores: a mean is summed range by range."""
    for query in questions(whole.tenant):
        bodies = []
        for run in (split, whole):
            result = await run.engine(RecallSettings()).recall(query)
            assert not result.degraded
            bodies.append(result.body)
        finals = [[row["scores"].pop("final") for row in body["results"]] for body in bodies]
        assert finals[0], query.text
        assert finals[0] == pytest.approx(finals[1], rel=1e-12, abs=1e-12), query.text
        assert bodies[0] == bodies[1], query.text


@asynccontextmanager
async def in_one_store(whole: System) -> AsyncIterator[System]:
    """Vectors in ranges, inside the process that holds the bank."""
    split_by = PartitionedBackend(FlatBackend(), SHARD, threads=2)
    residency = Residency(whole.pool, ResidencySettings(vectors=split_by))
    try:
        yield over(whole, residency)
        bank = await residency.open(await banks.head(whole.pool, whole.tenant, BANK))
        assert isinstance(bank.vectors, PartitionedVectors)
        assert len(bank.vectors.shards) == 14
    finally:
        await residency.close()
        split_by.close()


@asynccontextmanager
async def elsewhere(whole: System) -> AsyncIterator[System]:
    """Vectors and postings in ranges that two others hold."""
    holders = [LocalShards(whole.pool, ResidencySettings(), SHARD) for _ in range(2)]
    index = ScatterGather(Holders(holders), SHARD)
    residency = Residency(whole.pool, ResidencySettings(), split=index)
    try:
        yield over(whole, residency)
        bank = await residency.open(await banks.head(whole.pool, whole.tenant, BANK))
        assert not bank.whole
        assert bank.nbytes["vectors"] == bank.nbytes["postings"] == 0
        assert [ranges.metrics().resident_banks for ranges in holders] == [7, 7]
    finally:
        await residency.close()
        for ranges in holders:
            await ranges.close()


def over(whole: System, residency: Residency) -> System:
    ingest = replace(whole.ingest, neighbours=residency, committed=residency.refresh)
    return replace(whole, residency=residency, ingest=ingest)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", [in_one_store, elsewhere])
async def test_a_split_bank_answers_as_an_unsplit_one(
    way: Callable[[System], AbstractAsyncContextManager[System]],
) -> None:
    # Written through the split replica, whose neighbours become the semantic links.
    async with system(embedder=HashEmbedder()) as whole, way(whole) as split:
        await split.import_bank(BANK, memories(90, 5))  # one range holds it yet
        await split.engine(RecallSettings()).recall(questions(split.tenant)[0])
        for first in range(0, 90, 30):  # each write ends inside a shard
            ids = await split.import_bank(BANK, memories(first, 30))
            await same(split, whole)
        await delete_memory(split.ingest, split.tenant, BANK, ids["m61"])
        await split.import_bank(BANK, memories(3, 1))  # the same key: a new ordinal
        await same(split, whole)
