"""Banks are kept in shape while they are used, by one process at a time, whoever dies."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import numpy as np
import pytest

from retrieval.ingest.context import WriteContext
from retrieval.ingest.curation import clear
from retrieval.ingest.importing import import_memories
from retrieval.ingest.write.transaction import Change, write
from retrieval.keyword.analyser import Analyser
from retrieval.maintenance import jobs
from retrieval.maintenance.health import examine
from retrieval.maintenance.reembed import reembed
from retrieval.maintenance.reindex import reindex
from retrieval.maintenance.upkeep import Upkeep, UpkeepSettings
from retrieval.store import banks, planner
from retrieval.store.database.pool import Pool
from retrieval.store.rebuilds import KINDS, REEMBED, REINDEX
from retrieval.store.segments import table as segments
from retrieval.store.segments.table import MERGE_FAN
from tests.retrieval.store.servers import HashEmbedder, Replica, database, deps, server

pytestmark = pytest.mark.integration

ANALYZE = planner.analyze
QUICK = UpkeepSettings(period_s=0.05, page=3, rest=0.1)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A schema of its own: upkeep looks at every bank there is."""
    async with database() as opened:
        yield opened


async def fill(
    ingest: WriteContext, bank: str, writes: int, each: int = 2, document: str = "d"
) -> None:
    for i in range(writes):
        items = [
            {
                "text": f"the boat{i} of Ann{i}x sails {j} {document}",
                "entities": [f"Ann{i}x"],
                "document_id": document,
            }
            for j in range(each)
        ]
        await import_memories(ingest, "default", bank, items)


async def count(pool: Pool, table: str) -> int:
    number: int = await pool.fetchval(f"select count(*) from {table}")
    return number


async def rounds(upkeep: Upkeep, n: int = 4) -> None:
    for _ in range(n):
        assert await upkeep.round()
        await upkeep.settled()


async def contents(pool: Pool, bank: str) -> tuple[list[str], set[tuple[str, str, int]]]:
    replica = await Replica.of(pool, await banks.head(pool, "default", bank))
    return replica.ids(), replica.links()


async def test_small_segments_are_merged(pool: Pool) -> None:
    ingest = deps(pool)
    for bank in "abcdefg":
        await fill(ingest, bank, 8)
    before = {bank: await contents(pool, bank) for bank in "abcdefg"}
    upkeep = Upkeep(ingest, QUICK)
    await rounds(upkeep)
    assert await count(pool, "segments") == 7 * 4
    assert {bank: await contents(pool, bank) for bank in "abcdefg"} == before
    seen = upkeep.metrics()
    assert (seen.rounds, seen.merged_segments, seen.failures) == (4, 7 * 4 * 7, 0)
    assert seen.work_seconds > 0


async def test_the_planner_is_told_of_banks_that_were_filled_fast(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "KNOWN_FROM", 20)
    ingest = deps(pool)
    told: list[str] = []

    async def analyze(asked: Pool) -> None:
        told.append("")
        await ANALYZE(asked)

    monkeypatch.setattr(planner, "analyze", analyze)

    async def unknown() -> int:
        async with pool.acquire() as connection:
            banks_there = await connection.fetch("select bank from banks")
            return len(await planner.unknown(connection, [row["bank"] for row in banks_there]))

    upkeep = Upkeep(ingest, QUICK)
    await fill(ingest, "small", 2)
    await fill(ingest, "first", 1, each=30)
    assert await unknown() == 1
    await rounds(upkeep, 2)
    assert (await unknown(), len(told)) == (0, 1)
    await fill(ingest, "second", 1, each=40)
    assert await unknown() == 1
    await rounds(upkeep, 2)
    assert (await unknown(), len(told)) == (0, 2)


async def test_a_planner_that_learns_nothing_is_not_told_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this server may not make statistics."""
    monkeypatch.setattr(planner, "KNOWN_FROM", 20)
    told: list[str] = []

    async def analyze(_: Pool) -> None:
        told.append("")

    monkeypatch.setattr(planner, "analyze", analyze)
    ingest = deps(pool)
    upkeep = Upkeep(ingest, QUICK)
    for each, times in ((30, 1), (20, 1), (15, 2)):
        await fill(ingest, "a", 1, each=each)
        await rounds(upkeep, 2)
        assert len(told) == times


async def test_dead_ordinals_and_orphans_go(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segments, sys.modules["retrieval.maintenance.health"]):
        monkeypatch.setattr(module, "COMPACT_LEAST", 5)
    ingest = deps(pool)
    await fill(ingest, "a", 4, document="kept")
    await fill(ingest, "a", 9, document="gone")

    async def replaced(change: Change) -> None:  # as a retain of the document does it
        rows = await change.connection.fetch(
            "select id from memory_units where document_id = 'gone'"
        )
        await change.remove([row["id"] for row in rows])

    await write(ingest, "default", "a", replaced)
    left = await contents(pool, "a")
    assert await count(pool, "entities") == 9
    upkeep = Upkeep(ingest, QUICK)
    await rounds(upkeep, 2)
    head = await banks.head(pool, "default", "a")
    assert (head.generation, head.next_ordinal) == (1, 8)
    assert await contents(pool, "a") == left
    assert await count(pool, "entities") == 4
    assert await count(pool, "tombstones") == 0
    seen = upkeep.metrics()
    assert (seen.dropped_ordinals, seen.pruned_entities) == (18, 5)


class Later(Analyser):
    def _fingerprint(self) -> str:
        return "later"


LATER = Later()


async def test_outdated_postings_are_made_anew(pool: Pool) -> None:
    for bank in "abcdefg":
        await fill(deps(pool), bank, 2)
    await clear(deps(pool), "default", "g")
    upkeep = Upkeep(deps(pool, analyser=lambda _: LATER), QUICK)
    await rounds(upkeep, 4)
    rows = await pool.fetch("select bank_id, analyser from banks order by bank_id")
    assert [tuple(row) for row in rows] == [*((bank, "later") for bank in "abcdef"), ("g", "")]
    assert upkeep.metrics().reindexed_banks == 6
    assert upkeep.metrics().job == ""


async def test_a_bank_that_fails_does_not_stop_the_others(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = deps(pool)
    for bank in "ab":
        await fill(ingest, bank, 8)
    bad = (await banks.head(pool, "default", "a")).bank
    merge = segments.merge

    async def broken(pool: Pool, bank: int) -> int:
        if bank == bad:
            raise ValueError("not a segment: bad magic")
        return await merge(pool, bank)

    monkeypatch.setattr(segments, "merge", broken)
    upkeep = Upkeep(ingest, QUICK)
    await rounds(upkeep)
    assert upkeep.metrics().failures == 1  # and it is left alone for a while
    rows = await pool.fetch("select bank, count(*) from segments group by bank order by bank")
    assert [row[1] for row in rows] == [8 * 4, 4]


async def test_one_process_at_a_time(pool: Pool) -> None:
    async with pool.acquire() as other, other.transaction():
        await other.execute("select pg_advisory_xact_lock(5, hashtext(current_schema()))")
        assert not await Upkeep(deps(pool), QUICK).round()
    assert await Upkeep(deps(pool), QUICK).round()


async def test_processes_share_the_banks(pool: Pool) -> None:
    """Each looks after its own, at the same time; together after all."""
    ingest = deps(pool)
    for bank in "abcdef":
        await fill(ingest, bank, 8)
    first = Upkeep(deps(pool), QUICK, share=lambda: (0, 2))
    second = Upkeep(deps(pool), QUICK, share=lambda: (1, 2))
    async with pool.acquire() as other, other.transaction():  # the first is at work
        await other.execute("select pg_advisory_xact_lock(5, hashtext(current_schema()))")
        assert not await first.round()
        assert await second.round()
    merged = "select bank from segments where kind = 'columns' group by bank having count(*) = 1"
    odd = {row["bank"] for row in await pool.fetch(merged)}
    assert {bank % 2 for bank in odd} == {1}
    assert await first.round()
    assert len(await pool.fetch(merged)) == 6


async def test_it_runs_beside_writers(pool: Pool) -> None:
    ingest = deps(pool)
    keepers = [Upkeep(deps(pool), QUICK) for _ in range(2)]
    for upkeep in keepers:
        upkeep.start()
    await asyncio.gather(*(fill(ingest, bank, 12) for bank in "abc"))
    for _ in range(100):
        if await count(pool, "segments") <= 3 * 4 * (MERGE_FAN - 1):
            break
        await asyncio.sleep(0.1)
    for upkeep in keepers:
        await upkeep.close()
    assert await count(pool, "segments") <= 3 * 4 * (MERGE_FAN - 1)
    for bank in "abc":
        assert len((await contents(pool, bank))[0]) == 24
    assert sum(upkeep.metrics().failures for upkeep in keepers) == 0


async def test_no_bank_is_passed_over(pool: Pool) -> None:
    ingest = deps(pool)
    for i in range(8):
        await fill(ingest, f"b{i}", 6, each=1)
    await pool.execute("update banks set last_write_at = null")
    seen: list[str] = []
    after = 0
    for _ in range(3):
        found, after = await examine(ingest, (), after, 3)
        seen += [health.head.bank_id for health in found]
    assert (seen, after) == ([f"b{i}" for i in range(8)], 0)


_CHILD = """
import asyncio, sys
import numpy as np
from dataclasses import replace
from retrieval.maintenance.reembed import reembed
from retrieval.maintenance.reindex import reindex
from retrieval.maintenance.upkeep import Upkeep, UpkeepSettings
from retrieval.store.database.pool import PoolSettings, open_pool
from tests.retrieval.store.servers import HashEmbedder, deps

class Slow(HashEmbedder):
    async def embed_passages(self, texts, **kwargs):
        print("embedding", flush=True)
        await asyncio.sleep(0.2)
        return await super().embed_passages(texts)

async def main():
    pool = await open_pool(PoolSettings(sys.argv[1], schema=sys.argv[2]))
    upkeep = Upkeep(deps(pool, embedder=Slow(48, "new")), UpkeepSettings(period_s=0.01, rest=0.0))
    upkeep.start()
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_killed_in_the_middle_another_process_goes_on(pool: Pool) -> None:
    """kill -9 while it re-embeds and merges: nothing is lost, the next one finishes."""
    ingest = deps(pool)
    await fill(ingest, "a", 60, each=20)
    before = await contents(pool, "a")
    await jobs.begin(pool, "default", "a", REEMBED, "new:48", lease_s=0.0)
    schema = await pool.fetchval("select current_schema()")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, server().dsn, schema, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    for _ in range(3):
        assert await asyncio.wait_for(child.stdout.readline(), 60) == b"embedding\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()
    made = await pool.fetchval("select coalesce(sum(count), 0) from segments where kind like '%48'")
    assert 0 < made < 1200
    await pool.execute("update operations set leased_until = now()")  # as after a minute
    embedder = HashEmbedder(48, "new")
    upkeep = Upkeep(deps(pool, embedder=embedder), QUICK)
    for _ in range(50):
        await upkeep.round()
        await upkeep.settled()
        head = await banks.head(pool, "default", "a")
        if head.vector_set == "new:48":
            break
    assert head.vector_set == "new:48"
    assert len(embedder.seen) == 1200 - made
    replica = await Replica.of(pool, head)
    assert (replica.ids(), replica.links()) == before
    assert np.isfinite(replica.vectors).all()
    assert replica.vectors.any(axis=1).all()
    statuses = await pool.fetch("select status from operations")
    assert [row[0] for row in statuses] == ["completed"]


_DOOMED = """
import asyncio, os, signal, sys
from retrieval.maintenance.reembed import reembed
from retrieval.maintenance.reindex import reindex
from retrieval.maintenance.upkeep import Upkeep, UpkeepSettings
from retrieval.keyword.analyser import Analyser
from retrieval.store.database.pool import PoolSettings, open_pool
from tests.retrieval.store.servers import HashEmbedder, deps

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

class Deadly(HashEmbedder):
    async def embed_passages(self, *_, **__):
        die()

async def main():
    pool = await open_pool(PoolSettings(sys.argv[1], schema=sys.argv[2], min_size=1, max_size=4))
    if sys.argv[3] == "reindex":
        Analyser.weigh = die
    upkeep = Upkeep(deps(pool, embedder=Deadly(48, "new")), UpkeepSettings(rest=0.0))
    await upkeep.round()
    await upkeep.settled()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_kills_three_processes_has_failed(pool: Pool, kind: str) -> None:
    """And upkeep does not begin it again by itself, though the bank would want it."""
    ingest = deps(pool)
    await fill(ingest, "a", 2)
    target = "new:48"
    if kind == REINDEX:  # as an older version of the program left it
        target = ingest.analyser(ingest.settings).version
        await pool.execute("delete from segments where kind like 'postings:%'")
    await jobs.begin(pool, "default", "a", kind, target, lease_s=0.0)
    schema = await pool.fetchval("select current_schema()")
    for deaths in range(1, 3):
        await _die(schema, kind)
        await pool.execute("update operations set leased_until = now()")  # as after a minute
        assert await pool.fetchval("select deaths from operations") == deaths
    upkeep = Upkeep(deps(pool, embedder=HashEmbedder(48, "new")), QUICK)
    await upkeep.round()
    await upkeep.settled()
    rows = await pool.fetch("select status, error_message from operations")
    assert [row["status"] for row in rows] == ["failed"]
    assert "died 3 times" in rows[0]["error_message"]
    await fill(ingest, "a", 1)  # the bank is usable, and grows
    await upkeep.round()
    await upkeep.settled()
    assert await count(pool, "operations") == 1
    head = await banks.head(pool, "default", "a")
    if kind == REEMBED:
        steps = reembed(pool, HashEmbedder(48, "new"), "default", "a")
    else:
        steps = reindex(pool, ingest.settings, "default", "a")
    async for _ in steps:  # on somebody's word
        pass
    head = await banks.head(pool, "default", "a")
    assert kind == REINDEX or head.vector_set == "new:48"
    statuses = await pool.fetch("select status from operations order by created_at")
    assert [row[0] for row in statuses] == ["failed", "completed"]


async def _die(schema: str, kind: str) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DOOMED, server().dsn, schema, kind
    )
    assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
