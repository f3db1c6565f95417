"""A snapshot is what was written, whatever the way it came to be."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval.bank.columns import Columns
from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta, EntityChange
from retrieval.types import NO_TIME, FactType, LinkType
from tests.bench import packs
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory, vector

pytestmark = pytest.mark.unit

HOUR = 3_600_000_000


def _id(n: int) -> bytes:
    return n.to_bytes(16, "big")


@st.composite
def _memories(draw: st.DrawFn, ledger: Ledger, count: int) -> list[Memory]:
    first = len(ledger.memories)
    ids = [m.id for m in ledger.memories]
    out = []
    for i in range(count):
        here = first + i
        gone = sorted(ledger.dead)
        again = draw(st.booleans()) and gone
        out.append(
            Memory(
                # A changed memory comes back under its id with a new ordinal.
                id=ids[draw(st.sampled_from(gone))] if again else _id(here + 1),
                fact_type=draw(st.sampled_from(FactType)),
                occurred_start=draw(st.sampled_from([NO_TIME, 0, HOUR, 30 * HOUR])),
                mentioned_at=draw(st.sampled_from([NO_TIME, 2 * HOUR, 50 * HOUR])),
                document=draw(st.integers(-1, 2)),
                position=draw(st.integers(0, 4)),
                tags=tuple(draw(st.lists(st.integers(0, 3), max_size=2, unique=True))),
                entities=tuple(draw(st.lists(st.integers(0, 5), max_size=3, unique=True))),
                sources=tuple(
                    draw(st.lists(st.sampled_from([*ids, _id(10_000)]), max_size=2, unique=True))
                ),
                terms=tuple(draw(st.lists(st.integers(1, 6), max_size=3, unique=True))),
                vector=draw(
                    st.one_of(
                        st.none(),
                        st.sampled_from([(1.0,) * DIMENSION, (1.0, -1.0) * (DIMENSION // 2)]),
                        st.tuples(*[st.floats(0.125, 1, width=32)] * DIMENSION),
                    )
                ),
                links=tuple(
                    (draw(st.integers(0, here - 1)), draw(st.sampled_from(LinkType)), 0.5)
                    for _ in range(draw(st.integers(0, 2)) if here else 0)
                ),
            )
        )
    live_ids: set[bytes] = {m.id for o, m in enumerate(ledger.memories) if o not in ledger.dead}
    unique: list[Memory] = []
    for memory in out:
        if memory.id not in live_ids:
            live_ids.add(memory.id)
            unique.append(memory)
    return unique


def _same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a, b)


def _check_equal(a: ResidentBank, b: ResidentBank) -> None:
    assert a.head == b.head
    _same(a.live, b.live)
    for field in dataclasses.fields(Columns):
        if not field.name.startswith("_") and field.name not in ("tags", "sources"):
            _same(getattr(a.columns, field.name), getattr(b.columns, field.name))
    for name in ("tags", "sources"):
        _same(getattr(a.columns, name).ptr, getattr(b.columns, name).ptr)
        _same(getattr(a.columns, name).values, getattr(b.columns, name).values)
    for rows, same in zip(a.population.rows, b.population.rows, strict=True):
        _same(rows, same)
    _same(a.previous, b.previous)
    _same(a.next, b.next)
    every = np.arange(a.size, dtype=np.int32)
    _same(a.ordinal_of(a.columns.id), b.ordinal_of(a.columns.id))
    for one, other in (
        (a.temporal_neighbours(every, 3), b.temporal_neighbours(every, 3)),
        (a.links.neighbours(every, LinkType), b.links.neighbours(every, LinkType)),
    ):
        for name in ("row", "target", "type", "weight", "direction"):
            _same(getattr(one, name), getattr(other, name))
    assert a.links.counts() == b.links.counts()
    _same(a.entities.df, b.entities.df)
    _same(a.entities.survivor, b.entities.survivor)
    assert list(a.entities.name) == list(b.entities.name)
    numbers = np.arange(len(a.entities), dtype=np.int32)
    for x, y in zip(a.entities.units_of(numbers), b.entities.units_of(numbers), strict=True):
        _same(x, y)
    for x, y in zip(a.entities.of_units(every), b.entities.of_units(every), strict=True):
        _same(x, y)
    assert a.tags == b.tags
    _same(a.postings.lengths, b.postings.lengths)
    assert a.postings.documents == b.postings.documents
    if a.vectors.dimension:
        one_scan = a.vectors.scan(np.full(DIMENSION, DIMENSION**-0.5, np.float32))
        other_scan = b.vectors.scan(np.full(DIMENSION, DIMENSION**-0.5, np.float32))
        _same(one_scan.at(every), other_scan.at(every))
        for fact_type in FactType:
            best, others = one_scan.top(5, None, fact_type), other_scan.top(5, None, fact_type)
            _same(best.ordinals, others.ordinals)
            _same(best.scores, others.scores)


def _check_written(bank: ResidentBank, ledger: Ledger) -> None:
    """Against the plain Python of what was written."""
    memories, dead = ledger.memories, ledger.dead
    live = [o for o in range(len(memories)) if o not in dead]
    assert np.flatnonzero(bank.live).tolist() == live
    newest = {memories[o].id: o for o in live}
    for memory_id, ordinal in newest.items():
        asked = np.frombuffer(memory_id, np.uint8)[None]
        assert bank.ordinal_of(asked).tolist() == [ordinal]
    assert bank.ordinal_of(np.zeros((1, 16), np.uint8)).tolist() == [-1]
    everyone = np.arange(bank.size, dtype=np.int32)
    row, source = bank.columns.sources.take(everyone)
    expected = [(o, newest[s]) for o, m in enumerate(memories) for s in m.sources if s in newest]
    assert list(zip(row.tolist(), source.tolist(), strict=True)) == expected
    survivor = {n: n for n in range(len(bank.entities))}
    for number, row_of in ledger.entities.items():
        survivor[number] = number if row_of.merged_into is None else row_of.merged_into
    for number in survivor:
        while survivor[number] != survivor[survivor[number]]:
            survivor[number] = survivor[survivor[number]]
    for number in range(len(bank.entities)):
        units = [o for o in live if survivor[number] in {survivor[e] for e in memories[o].entities}]
        assert bank.entities.units_of(np.array([number], np.int32))[1].tolist() == units
        assert bank.entities.df[number] == (len(units) if survivor[number] == number else 0)
    by_document: dict[int, list[tuple[int, int]]] = {}
    for o in live:
        if memories[o].document >= 0:
            by_document.setdefault(memories[o].document, []).append((memories[o].position, o))
    following = dict.fromkeys(range(bank.size), -1)
    for members in by_document.values():
        members.sort()
        following |= {a[1]: b[1] for a, b in itertools.pairwise(members)}
    assert bank.next.tolist() == [following[o] for o in range(bank.size)]
    edges = {
        (o, target, int(kind))
        for o, m in enumerate(memories)
        for target, kind, _ in m.links
        if target not in dead
    }
    found = bank.links.neighbours(everyone, LinkType)
    out = found.direction == 1
    assert edges == set(
        zip(
            found.row[out].tolist(),
            found.target[out].tolist(),
            found.type[out].tolist(),
            strict=True,
        )
    )
    if bank.vectors.dimension:
        query = np.full(DIMENSION, DIMENSION**-0.5, np.float32)
        scan = bank.vectors.scan(query)
        expected_similarities = np.array([vector(m) @ query for m in memories])
        np.testing.assert_allclose(scan.at(everyone), expected_similarities, atol=1e-6)
        for fact_type in FactType:
            embedded = [
                o for o in live if memories[o].fact_type == fact_type and memories[o].vector
            ]
            assert sorted(scan.top(1000, None, fact_type).ordinals.tolist()) == embedded


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_sequence_of_writes_equals_a_load_from_nothing(data: st.DataObject) -> None:
    ledger = Ledger()
    backend = FlatBackend()
    snapshot: ResidentBank | None = None
    older: list[tuple[ResidentBank, int, bytes]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        action = data.draw(st.sampled_from(["write", "write", "delete", "merge", "entities"]))
        live = [o for o in range(len(ledger.memories)) if o not in ledger.dead]
        if action == "write":
            new = data.draw(_memories(ledger, data.draw(st.integers(0, 5))))
            used = sorted({e for m in new for e in m.entities} - set(ledger.entities))
            ledger.write(
                new,
                entities=[EntityChange(e, _id(900 + e), f"Name {e}", None) for e in used],
                tags={t: f"tag{t}" for m in new for t in m.tags},
            )
        elif action == "delete" and live:
            ledger.write(dead=data.draw(st.lists(st.sampled_from(live), unique=True)))
        elif action == "merge":
            count = len(ledger.segments.get("columns", []))
            ledger.merge(*sorted(data.draw(st.tuples(*[st.integers(0, max(0, count - 1))] * 2))))
        elif action == "entities" and len(ledger.entities) > 1:
            standing = [n for n, row in ledger.entities.items() if row.merged_into is None]
            if len(standing) > 1:
                a, b = data.draw(st.permutations(standing))[:2]
                ledger.write(entities=[dataclasses.replace(ledger.entities[a], merged_into=b)])
        if data.draw(st.booleans()):
            missing = ledger.delta(None)
            if snapshot is not None:
                missing = ledger.delta(snapshot.head.version, snapshot.size)
            snapshot = next_snapshot(snapshot, missing, backend)
            older.append((snapshot, snapshot.size, snapshot.columns.id.tobytes()))
            _check_written(snapshot, ledger)
            _check_equal(snapshot, next_snapshot(None, ledger.delta(None), backend))
    for held, size, ids in older:
        assert held.size == size
        assert held.columns.id.tobytes() == ids


def test_the_bytes_of_a_bank_are_those_it_holds() -> None:
    """The budget of a process rests on them; spare room of growing arrays is an eighth."""
    size = 2000
    made, names = packs.packed(0, size, size // 5), packs.entity_rows(size // 5)
    head = BankHead(1, "default", "b", 1, 0, size, packs.VECTORS, packs.ANALYSER)
    tracemalloc.start()
    try:
        delta = Delta(
            head=head,
            full=True,
            segments={kind: [(0, size, bytes(bytearray(p)))] for kind, p in made.items()},
            tombstones=np.empty(0, np.int32),
            died_at=np.empty(0, np.int64),
            entities=names,
            tags=[],
        )
        bank = next_snapshot(None, delta, FlatBackend())
        bank.entities.find("a question")
        del delta
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = sum(bank.nbytes.values())
    assert 1.0 < held / counted < 1.25
    assert set(bank.nbytes) >= {"vectors", "postings", "links", "columns", "entities"}


def test_a_gap_between_segments_is_an_error_and_not_a_hole() -> None:
    ledger = Ledger()
    for first in (0, 1, 2):
        ledger.write([Memory(id=_id(first + 1))])
    whole = ledger.delta(None)
    rows = whole.segments["columns"]
    for broken in (rows[:2], [rows[0], rows[2]]):
        segments = {**whole.segments, "columns": broken}
        with pytest.raises(ValueError, match="ordinal"):
            next_snapshot(None, dataclasses.replace(whole, segments=segments), FlatBackend())


def test_memories_without_vectors_yet_are_found_by_everything_else() -> None:
    """A new vector set is filled in the background: only some ranges of it are there."""
    ledger = Ledger()
    for first in (0, 2, 4):
        ledger.write(
            [Memory(id=_id(first + i + 1), vector=(1.0,) * DIMENSION, terms=(5,)) for i in range(2)]
        )
    whole = ledger.delta(None)
    partly = {**whole.segments, "vectors:mini:8": whole.segments["vectors:mini:8"][1:2]}
    bank = next_snapshot(None, dataclasses.replace(whole, segments=partly), FlatBackend())
    query = np.full(DIMENSION, DIMENSION**-0.5, np.float32)
    assert bank.vectors.scan(query).top(9, None, FactType.WORLD).ordinals.tolist() == [2, 3]
    assert bank.vectors.searchable(None) == 2
    assert bank.postings.documents == 6
    bare = {**whole.segments, "vectors:mini:8": ()}
    bank = next_snapshot(None, dataclasses.replace(whole, segments=bare), FlatBackend())
    assert (bank.vectors.dimension, bank.size) == (0, 6)
