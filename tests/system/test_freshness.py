"""Whoever writes a bank has it up to date before the next recall asks."""

from __future__ import annotations

import asyncio

import pytest

from retrieval.ingest.curation import delete_memory
from retrieval.ingest.importing import import_memories
from retrieval.store import banks
from tests.support.system import System, system
from tests.system.embedding import HashEmbedder

pytestmark = pytest.mark.integration


async def _caught_up(run: System) -> None:
    head = await banks.head(run.pool, run.tenant, "bank")
    for _ in range(2000):
        held = run.residency.held(head.bank)
        if held is not None and held.head == head:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not brought up to version {head.version}")


async def test_a_writer_s_bank_is_brought_up_to_date_after_each_commit() -> None:
    async with system(embedder=HashEmbedder()) as run:
        answer = await import_memories(
            run.ingest, run.tenant, "bank", [{"key": "a", "text": "one"}]
        )
        await run.residency.open(await banks.head(run.pool, run.tenant, "bank"))
        more = [{"key": "b", "text": "two"}]
        await import_memories(run.ingest, run.tenant, "bank", more)
        await _caught_up(run)
        await delete_memory(run.ingest, run.tenant, "bank", answer["ids"]["a"])
        await _caught_up(run)
        before = run.residency.metrics()
        await run.residency.open(await banks.head(run.pool, run.tenant, "bank"))
        after = run.residency.metrics()
        assert (after.hits, after.deltas) == (before.hits + 1, before.deltas)


async def test_a_bank_that_nobody_reads_here_is_left_alone() -> None:
    async with system(embedder=HashEmbedder()) as run:
        await import_memories(run.ingest, run.tenant, "bank", [{"key": "a", "text": "one"}])
        head = await banks.head(run.pool, run.tenant, "bank")
        run.residency.evict(head.bank)
        loads = run.residency.metrics().misses
        run.residency.refresh(head)
        await asyncio.sleep(0.05)
        assert run.residency.held(head.bank) is None
        assert run.residency.metrics().misses == loads
