"""Segments on a real database: what a replica loads is the same, however it comes to it."""

import asyncio
import random
from uuid import uuid4

import numpy as np
import pytest

from retrieval.ingest.importing import import_memories
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.segments import delta as deltas
from retrieval.store.segments import table as segments
from retrieval.store.segments.merge import SegmentPart, join, within
from tests.retrieval.store.servers import Replica, deps, unpacked

pytestmark = pytest.mark.integration


_WORDS = "red green blue boat car house sails drives stands north south"


async def _write(pool: Pool, bank: str, writes: int, rng: random.Random) -> None:
    """`writes` imports of a few memories each, some of them under a known key."""
    ingest = deps(pool)
    words = _WORDS.split()
    for _ in range(writes):
        items = [
            {
                "key": key,
                "text": " ".join(rng.choices(words, k=5)),
                "entities": rng.sample(["Ann", "Bo", "Cy"], k=rng.randint(0, 3)),
                "tags": rng.sample(["x", "y"], k=rng.randint(0, 2)),
                "document_id": rng.choice(["d1", "d2"]),
            }
            for key in rng.sample([f"k{i}" for i in range(12)], k=rng.randint(1, 4))
        ]
        await import_memories(ingest, "default", bank, items)


def _flat(replica: Replica, kind: str) -> dict[str, np.ndarray]:
    """All of a kind as one segment, links in a fixed order."""
    parts = replica.parts[kind]
    if kind == "links":
        rows = [
            row
            for part in parts
            for row in zip(
                *(part.arrays[n].tolist() for n in ("source", "target", "type")), strict=True
            )
        ]
        return {"links": np.array(sorted(rows))}
    return dict(join(kind, parts).arrays)


async def _kinds(replica: Replica) -> list[str]:
    head = replica.head
    return ["columns", "links", f"vectors:{head.vector_set}", f"postings:{head.analyser}"]


def _assert_same(left: Replica, right: Replica) -> None:
    for kind in left.parts:
        a, b = _flat(left, kind), _flat(right, kind)
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{kind}.{name}")


async def test_merging_changes_nothing_that_is_read(pool: Pool) -> None:
    bank = f"m-{uuid4().hex[:8]}"
    await _write(pool, bank, 15, random.Random(1))
    head = await banks.head(pool, "default", bank)
    before = await Replica.of(pool, head)
    assert await segments.merge(pool, head.bank) > 0
    after_merge = await Replica.of(pool, head)
    _assert_same(before, after_merge)
    assert len(after_merge.columns) < len(before.columns)
    assert (await banks.head(pool, "default", bank)) == head


async def test_a_delta_is_what_a_full_load_has_more(pool: Pool) -> None:
    bank, rng = f"d-{uuid4().hex[:8]}", random.Random(2)
    await _write(pool, bank, 4, rng)
    old = await Replica.of(pool, await banks.head(pool, "default", bank))
    await _write(pool, bank, 5, rng)
    head = await banks.head(pool, "default", bank)
    new = await Replica.of(pool, head)
    await segments.merge(pool, head.bank)  # across the point that the replica holds
    delta = await deltas.load(
        pool,
        head,
        have_generation=old.head.generation,
        have_version=old.head.version,
        have_ordinal=old.head.next_ordinal,
        kinds=await _kinds(new),
    )
    assert not delta.full
    assert set(new.delta.tombstones) == {*old.delta.tombstones, *delta.tombstones}
    assert all(tag_no >= len(old.delta.tags) for tag_no, _ in delta.tags)
    for kind in await _kinds(new):
        parts = unpacked(delta, kind)
        assert all(part.first >= old.head.next_ordinal for part in parts)
        for expected, found in zip(
            [within(kind, join(kind, new.parts[kind]), old.head.next_ordinal, 10**6)],
            [join(kind, parts)],
            strict=True,
        ):
            assert kind == "links" or (expected.first, expected.count) == (found.first, found.count)
            for name in expected.arrays:
                a, b = expected.arrays[name], found.arrays[name]
                if kind == "links":
                    a, b = np.sort(a), np.sort(b)
                np.testing.assert_array_equal(a, b, err_msg=f"{kind}.{name}")


async def test_nothing_new_is_an_empty_delta(pool: Pool) -> None:
    bank = f"e-{uuid4().hex[:8]}"
    await _write(pool, bank, 1, random.Random(3))
    head = await banks.head(pool, "default", bank)
    delta = await deltas.load(
        pool,
        head,
        have_generation=head.generation,
        have_version=head.version,
        have_ordinal=head.next_ordinal,
        kinds=["columns"],
    )
    assert (delta.full, list(delta.segments["columns"])) == (False, [])
    assert (len(delta.tombstones), len(delta.entities), len(delta.tags)) == (0, 0, 0)


async def test_vectors_by_ordinal(pool: Pool) -> None:
    bank = f"v-{uuid4().hex[:8]}"
    await _write(pool, bank, 6, random.Random(4))
    head = await banks.head(pool, "default", bank)
    held = await Replica.of(pool, head)
    wanted = np.array([5, 0, 3, 5], np.int32)
    async with pool.acquire() as connection:
        found = await segments.vectors(connection, head.bank, head.vector_set, wanted)
        none = await segments.vectors(connection, head.bank, head.vector_set, np.empty(0, np.int32))
        with pytest.raises(KeyError):
            await segments.vectors(
                connection, head.bank, head.vector_set, np.array([999], np.int32)
            )
    np.testing.assert_array_equal(found, held.vectors[wanted])
    assert len(none) == 0


async def test_compaction_keeps_the_living(pool: Pool) -> None:
    bank = f"c-{uuid4().hex[:8]}"
    await _write(pool, bank, 12, random.Random(5))
    head = await banks.head(pool, "default", bank)
    before = await Replica.of(pool, head)
    assert await segments.compact(pool, "default", bank) == 0  # few dead: not worth it
    gone = await segments.compact(pool, "default", bank, force=True)
    assert gone == head.next_ordinal - before.live.sum()
    now = await banks.head(pool, "default", bank)
    assert (now.generation, now.version) == (head.generation + 1, head.version + 1)
    assert now.next_ordinal == before.live.sum()
    after_compaction = await Replica.of(pool, now)
    assert after_compaction.live.all()
    assert after_compaction.ids() == before.ids()
    assert after_compaction.links() == before.links()
    np.testing.assert_array_equal(after_compaction.vectors, before.vectors[before.live])
    for name in ("fact_type", "position", "tokens", "subject"):
        np.testing.assert_array_equal(
            after_compaction.column(name), before.column(name)[before.live]
        )
    postings = f"postings:{head.analyser}"
    lengths = _flat(before, postings)["length"][before.live]
    np.testing.assert_array_equal(_flat(after_compaction, postings)["length"], lengths)
    rows = await pool.fetch(
        "select id::text, ordinal from memory_units where bank = $1 order by ordinal", head.bank
    )
    assert [row[0] for row in rows] == after_compaction.ids()
    assert [row[1] for row in rows] == list(range(now.next_ordinal))
    delta = await deltas.load(
        pool,
        now,
        have_generation=head.generation,
        have_version=head.version,
        have_ordinal=head.next_ordinal,
        kinds=["columns"],
    )
    assert delta.full


async def test_writes_and_upkeep_at_the_same_time(pool: Pool) -> None:
    bank = f"w-{uuid4().hex[:8]}"
    await _write(pool, bank, 1, random.Random(6))
    head = await banks.head(pool, "default", bank)

    async def upkeep() -> None:
        for _ in range(6):
            await segments.merge(pool, head.bank)
            await segments.compact(pool, "default", bank, force=True)

    await asyncio.gather(
        upkeep(),
        upkeep(),
        _write(pool, bank, 10, random.Random(7)),
        _write(pool, bank, 10, random.Random(8)),
    )
    held = await Replica.of(pool, await banks.head(pool, "default", bank))
    rows = await pool.fetch(
        "select id::text from memory_units where bank = $1 and ordinal is not null"
        " order by ordinal",
        head.bank,
    )
    assert held.ids() == [row[0] for row in rows]


def test_parts_that_are_not_adjacent_are_refused() -> None:
    part = SegmentPart(0, 1, {"vectors": np.zeros((1, 2), np.float32)})
    with pytest.raises(ValueError, match="adjacent"):
        join("vectors:x", [part, SegmentPart(2, 1, part.arrays)])
