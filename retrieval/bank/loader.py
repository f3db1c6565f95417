"""From the segments of a bank to its next snapshot. Pure array work: for a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet, Columns
from retrieval.bank.entities import Entities
from retrieval.bank.links import Links
from retrieval.bank.order import DocumentSequence, Timeline
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import VectorBackend, without_vector
from retrieval.keyword.postings import Postings
from retrieval.keyword.postings import merge as merge_postings
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta
from retrieval.store.segments.format import unpack
from retrieval.store.segments.merge import SegmentPart, completed, within
from retrieval.types import Bools, Floats, Ints

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
SegmentRow: TypeAlias = tuple[int, int, bytes]
"""(first ordinal, count, payload)."""


def kinds(head: BankHead, *, whole: bool = True) -> tuple[str, ...]:
    """The kinds of segments that a snapshot of this bank is made of; the last two only where its
    vectors and postings belong to it."""
    every = ("columns", "links", f"vectors:{head.vector_set}", f"postings:{head.analyser}")
    return every if whole else every[:2]


def empty_bank(head: BankHead, vectors: VectorBackend) -> ResidentBank:
    """A bank without memories."""
    return ResidentBank(
        head,
        AliveSet.empty(),
        Columns.empty(),
        vectors.empty(),
        Postings.empty(),
        Entities.empty(),
        Links.empty(),
        Timeline.empty(),
        DocumentSequence.empty(),
        {},
    )


def next_snapshot(
    held: ResidentBank | None,
    delta: Delta,
    vectors: VectorBackend,
    pause: Callable[[], None] = lambda: None,
    *,
    whole: bool = True,
) -> ResidentBank:
    """`held` with `delta` applied, or the bank from nothing where the delta is full.

    Segments may overlap what is held (merged in the meantime): rows held already are skipped.
    `held` stays as it was. `pause` is called between steps of a few milliseconds, to let searches
    pass and to stop a load that nobody wants any more (by raising). One thread at a time extends
    the snapshots of a bank. ValueError where segments leave a gap. `whole`: with vectors and
    postings; the same for all snapshots of a bank until a delta that is full.
    """
    head = delta.head
    if held is None or delta.full:
        held = empty_bank(head, vectors)
    first, size = held.size, head.next_ordinal
    columns_kind, links_kind, vectors_kind, postings_kind = kinds(head)

    arrays = _rows(delta.segments.get(columns_kind, ()), first)
    types = arrays.pop("fact_type") if arrays else np.empty(0, np.uint8)
    if first + len(types) != size:
        raise ValueError(
            f"the segments of bank {head.bank} end at ordinal {first + len(types)}, not at {size}"
        )
    dead = np.asarray(delta.tombstones, np.int32)
    population = held.population.extended(types, dead)
    live = population.live
    pause()

    columns, entities = held.columns, held.entities
    if arrays:
        counts, mentions = np.diff(arrays["entity_ptr"]), arrays["entity"]
        columns = columns.extended({**arrays, "fact_type": types}, live)
    else:
        counts, mentions = np.empty(0, np.int64), np.empty(0, np.int32)
        columns = columns.without_dead(live) if len(dead) else columns
    pause()
    if len(delta.entities) or len(types) or len(dead):
        entities = entities.extended(delta.entities, counts, mentions, live)
    pause()

    links = held.links
    if len(types) or len(dead):
        edges = _edges(delta.segments.get(links_kind, ()), first)
        links = links.extended(*edges, live)
        pause()

    store = held.vectors
    if whole and (len(types) or len(dead)):
        blocks, absent = vector_rows(
            delta.segments.get(vectors_kind, ()), first, size, store.dimension
        )
        pause()
        store = store.extended(blocks, absent, population)
        pause()

    postings = extended_postings(held.postings, delta.segments.get(postings_kind, ()), first)
    if len(dead) and whole:
        postings = postings.with_live(live)
    pause()

    timeline, sequence = held.timeline, held.sequence
    if len(types) or len(dead):
        timeline = timeline.extended(columns, population)
        sequence = sequence.extended(columns, population)
    tags = {**held.tags, **{tag: number for number, tag in delta.tags}} if delta.tags else held.tags
    return ResidentBank(
        head,
        population,
        columns,
        store,
        postings,
        entities,
        links,
        timeline,
        sequence,
        tags,
        whole,
    )


_POINTERS = ("tag_ptr", "entity_ptr", "source_ptr")


def _rows(segments: Sequence[SegmentRow], first: int) -> dict[str, NDArray[Any]]:
    """The `columns` arrays of all ordinals from `first` on, as one segment; {} where none."""
    parts: list[Arrays] = []
    at = first
    for start, count, payload in sorted(segments, key=lambda s: s[0]):
        if start + count <= at:
            continue
        if start > at:
            raise ValueError(f"no columns for ordinals {at} to {start - 1}")
        part = SegmentPart(start, count, unpack(payload))
        parts.append(completed(within("columns", part, at, part.end).arrays))
        at = start + count
    if not parts:
        return {}
    joined: dict[str, NDArray[Any]] = {}
    for name in parts[0]:
        if name in _POINTERS:
            counts = np.concatenate([np.diff(p[name]) for p in parts])
            joined[name] = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        else:
            joined[name] = np.concatenate([p[name] for p in parts])
    return joined


def _edges(
    segments: Sequence[SegmentRow], first: int
) -> tuple[Ints, Ints, NDArray[np.uint8], NDArray[np.float32]]:
    """Edges whose newer end is from `first` on: the others were held with that end."""
    names = ("source", "target", "type", "weight")
    parts: list[list[NDArray[Any]]] = []
    for start, count, payload in sorted(segments, key=lambda s: s[0]):
        if start + count <= first:
            continue
        part = SegmentPart(start, count, unpack(payload))
        arrays = within("links", part, first, part.end).arrays
        parts.append([arrays[n] for n in names])
    if not parts:
        none = np.empty(0, np.int32)
        return none, none, none.astype(np.uint8), none.astype(np.float32)
    source, target, kind, weight = (np.concatenate(p) for p in zip(*parts, strict=True))
    return source, target, kind, weight


def vector_rows(
    segments: Sequence[SegmentRow], first: int, size: int, dimension: int
) -> tuple[list[Floats], Bools]:
    """(blocks of rows, absent) of ordinals first .. size - 1, as they lie in the segments; rows
    that no segment covers are absent, and zeros."""
    held = [(a, unpack(payload)["vectors"]) for a, n, payload in segments if a + n > first]
    width = held[0][1].shape[1] if held else dimension
    blocks: list[Floats] = []
    at = first
    for start, rows in [*sorted(held, key=lambda h: h[0]), (size, np.empty((0, width), "f4"))]:
        if start > at:
            blocks.append(np.zeros((start - at, width), np.float32))
        blocks.append(rows[max(0, at - start) :])
        at = max(at, start + len(rows))
    absent = [without_vector(rows) for rows in blocks]
    for i, none in enumerate(absent):
        if none.any():
            blocks[i] = np.where(none[:, None], np.float32(0), blocks[i])
    return blocks, np.concatenate(absent)


def extended_postings(held: Postings, segments: Sequence[SegmentRow], first: int) -> Postings:
    """`held` with the rows of these segments from `first` on."""
    waiting = []
    for start, count, payload in sorted(segments, key=lambda s: s[0]):
        if start + count > first:
            part = SegmentPart(start, count, unpack(payload))
            part = within("postings", part, first, part.end)
            waiting.append((part.first, part.arrays))
    run: list[Arrays] = []
    begin = at = first
    for start, arrays in waiting:
        if start != at and run:
            held = held.append(merge_postings(run), begin)
            run = []
        if not run:
            begin = start
        run.append(arrays)
        at = start + len(arrays["length"])
    if run:
        held = held.append(run[0] if len(run) == 1 else merge_postings(run), begin)
    return held
