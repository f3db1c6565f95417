"""Ranges of a bank say at every version what the whole bank says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from retrieval.bank import probe
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.loader import next_snapshot
from retrieval.bank.probe import Probe
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards import scatter as split
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import LocalShards
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.errors import DeadlineExceeded, StaleSnapshot, Unavailable
from retrieval.keyword.analyser import Query
from retrieval.settings import RecallSettings
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta
from retrieval.types import FactType
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory

pytestmark = pytest.mark.unit

ROWS = 4
SETTINGS = RecallSettings()


class Database:
    """One ledger behind the signature of `deltas.load`, cut to the ordinals that are asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def load(
        self,
        pool: Pool,
        head: BankHead,
        *,
        have_generation: int,
        have_version: int,
        have_ordinal: int,
        kinds: Sequence[str],
        span: tuple[int, int] | None = None,
    ) -> Delta:
        assert span is not None
        full = have_generation != self.ledger.head.generation
        delta = self.ledger.delta(None if full else have_version)
        first, end = max(span[0], 0 if full else have_ordinal), span[1]
        segments = {
            kind: deltas.cut(kind, delta.segments.get(kind, ()), first, end) for kind in kinds
        }
        inside = (delta.tombstones >= span[0]) & (delta.tombstones < span[1])
        order = np.argsort(delta.tombstones[inside])
        return replace(
            delta,
            segments=segments,
            tombstones=delta.tombstones[inside][order],
            died_at=delta.died_at[inside][order],
            entities=[],
            tags=[],
        )


def memory(number: int, chance: random.Random) -> Memory:
    given = chance.random() < 0.85
    return Memory(
        id=number.to_bytes(16, "big"),
        fact_type=chance.choice([*FactType]),
        terms=tuple(chance.sample(range(1, 12), chance.randrange(5))),
        vector=tuple(chance.gauss(0, 1) for _ in range(DIMENSION)) if given else None,
    )


def question(chance: random.Random, *, blind: bool = False) -> Probe:
    vector = np.array([chance.gauss(0, 1) for _ in range(DIMENSION)], np.float32)
    terms = np.array(sorted(chance.sample(range(1, 14), 3)), np.uint64)
    found = Query(terms, np.ones(3, np.float32))
    return Probe(None if blind else vector / np.linalg.norm(vector), found)


def history(chance: random.Random, writes: int) -> tuple[Ledger, list[ResidentBank]]:
    """A bank that was written to, and the whole of it after each write."""
    ledger, whole = Ledger(), []
    for _ in range(writes):
        count = len(ledger.memories)
        alive = [o for o in range(count) if o not in ledger.dead]
        ledger.write(
            [memory(count + i, chance) for i in range(chance.randrange(6))],
            dead=chance.sample(alive, min(len(alive), chance.randrange(3))),
        )
        if chance.random() < 0.2:
            ledger.merge(0, len(ledger.segments.get("columns", [])))
        whole.append(next_snapshot(None, ledger.delta(None), FlatBackend()))
    return ledger, whole


async def check(index: ScatterGather, whole: ResidentBank, asked: Sequence[Probe]) -> None:
    everyone = np.arange(whole.size, dtype=np.int32)
    given = np.arange(whole.size) % 3 > 0
    frame = replace(whole, whole=False)
    for one, found in zip(asked, await index.readings(frame, asked, SETTINGS), strict=True):
        expected = probe.answer(whole, one, SETTINGS)
        for name in ("ordinals", "scores"):
            ours, theirs = getattr(found.matches, name), getattr(expected.matches, name)
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(
            found.matches.terms_at(everyone), expected.matches.terms_at(everyone)
        )
        # FAISS sums so few dimensions in one order for a run of rows and in another for one row.
        np.testing.assert_allclose(found.scan.at(everyone), expected.scan.at(everyone), atol=1e-6)
        assert found.scan.moments(None) == pytest.approx(expected.scan.moments(None), abs=1e-6)
        for kind in FactType:
            for allowed in (None, given):
                ours, theirs = (r.scan.top(5, allowed, kind) for r in (found, expected))
                np.testing.assert_array_equal(ours.ordinals, theirs.ordinals)
                np.testing.assert_allclose(ours.scores, theirs.scores, atol=1e-6)
    await check_vectors(index, whole)


async def check_vectors(index: ScatterGather, whole: ResidentBank) -> None:
    some = np.arange(whole.size, dtype=np.int32)[::-2]
    np.testing.assert_array_equal(await index.rows(whole.head, some), whole.vectors.rows(some))


@pytest.mark.parametrize("seed", range(12))
async def test_at_every_version_while_ranges_run_ahead(seed: int) -> None:
    chance = random.Random(seed)
    ledger, whole = history(chance, 12)
    whole = [bank for bank in whole if bank.size > ROWS]
    ranges = LocalShards(cast(Pool, None), ResidencySettings(), ROWS, load=Database(ledger).load)
    index = ScatterGather(ranges, ROWS)
    try:
        for bank in whole:  # what a range reads is the newest state, whatever was asked
            asked = [question(chance), question(chance, blind=True), question(chance)]
            await check(index, bank, asked)
        assert ranges.held(1) is not None
        vectors = np.stack([cast(np.ndarray, question(chance).vector) for _ in range(3)])
        types = np.array([0, 1, 2], np.uint8)
        ours = await index.nearest(whole[-1].head, vectors, types, k=3, floor=0.1)
        for got, expected in zip(
            ours, whole[-1].vectors.nearest(vectors, types, 3, 0.1), strict=True
        ):
            np.testing.assert_allclose(got, expected, atol=1e-6)
    finally:
        await ranges.close()


@pytest.mark.parametrize("seed", range(6))
async def test_ranges_that_follow_equal_ranges_that_are_read_anew(seed: int) -> None:
    chance = random.Random(100 + seed)
    ledger, _ = history(chance, 3)
    database = Database(ledger)
    ranges = LocalShards(cast(Pool, None), ResidencySettings(), ROWS, load=database.load)
    index = ScatterGather(ranges, ROWS)
    try:
        for _ in range(10):
            count = len(ledger.memories)
            alive = [o for o in range(count) if o not in ledger.dead]
            dead = chance.sample(alive, min(len(alive), chance.randrange(3)))
            ledger.write([memory(count + i, chance) for i in range(chance.randrange(1, 4))], dead)
            bank = next_snapshot(None, ledger.delta(None), FlatBackend())
            if bank.size > ROWS:
                await check(index, bank, [question(chance)])
        assert ranges.metrics().deltas > 0
    finally:
        await ranges.close()


async def test_what_is_gone_is_refused() -> None:
    chance = random.Random(3)
    ledger, whole = history(chance, 8)
    database = Database(ledger)
    ranges = LocalShards(cast(Pool, None), ResidencySettings(), ROWS, load=database.load)
    index = ScatterGather(ranges, ROWS)
    bank, asked = whole[-1], [question(chance)]
    try:
        await check(index, bank, asked)
        earlier = whole[-2].head
        vectors = np.zeros((1, DIMENSION), np.float32)
        with pytest.raises(Unavailable, match="version moved"):
            await index.nearest(earlier, vectors, np.zeros(1, np.uint8), k=1, floor=0.0)
        with pytest.raises(DeadlineExceeded):
            await index.readings(bank, asked, SETTINGS, deadline=time.monotonic() - 1)
        database.ledger = ledger.compacted()
        ranges.evict(1, 0)
        with pytest.raises(StaleSnapshot):
            await index.readings(bank, asked, SETTINGS)
        compacted = next_snapshot(None, database.ledger.delta(None), FlatBackend())
        await check(index, compacted, asked)
    finally:
        await ranges.close()


async def test_another_bank_of_that_name_does_not_answer() -> None:
    chance = random.Random(4)
    ledger, whole = history(chance, 8)
    ranges = LocalShards(cast(Pool, None), ResidencySettings(), ROWS, load=Database(ledger).load)
    index = ScatterGather(ranges, ROWS)
    bank = replace(whole[-1], head=replace(whole[-1].head, bank=ledger.head.bank + 1))
    try:
        with pytest.raises(StaleSnapshot):
            await index.readings(bank, [question(chance)], SETTINGS)
        newer = replace(bank, head=replace(bank.head, version=bank.head.version + 10))
        with pytest.raises(StaleSnapshot):
            await index.readings(newer, [question(chance)], SETTINGS)
    finally:
        await ranges.close()


async def test_answers_are_joined_where_it_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    ledger, whole = history(chance, 8)
    ranges = LocalShards(cast(Pool, None), ResidencySettings(), ROWS, load=Database(ledger).load)
    index = ScatterGather(ranges, ROWS)
    frame, asked = replace(whole[-1], whole=False), [question(chance)]
    join, joining = split._joined, []

    def joined(*given: Any) -> probe.ProbeResult:
        joining.append(threading.current_thread().name)
        return join(*given)

    monkeypatch.setattr(split, "_joined", joined)
    try:
        with ThreadPoolExecutor(1, "beside") as threads:
            await index.readings(frame, asked, SETTINGS, threads=threads)
        assert joining == ["beside_0"]
    finally:
        await ranges.close()
