"""Segments as arrays: joining neighbours, and keeping some of their rows.

Pure functions over the arrays that `retrieval.store.segments.format` packs; the kinds are described
in docs/architecture.md. `kind` may carry its suffix (`vectors:<set>`, `postings:<analyser>`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retrieval.types import NO_TIME, Ints

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]

OPTIONAL = ("valid_from", "valid_until")
"""Columns of times that a segment leaves out where none of its memories has one."""

_LISTS = ("tag", "entity", "source")
"""The ragged columns: `<name>_ptr` i4 (n+1) over `<name>`."""


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One segment: `count` memories from ordinal `first` on."""

    first: int
    count: int
    arrays: Arrays

    @property
    def end(self) -> int:
        return self.first + self.count


def join(kind: str, parts: Sequence[SegmentPart]) -> SegmentPart:
    """One segment out of several, ascending and not overlapping. Ordinals stay what they are.

    Between the parts there may be ordinals without rows only for kinds without a row per memory
    (links); ValueError otherwise.
    """
    first, end = parts[0].first, parts[-1].end
    family = kind.partition(":")[0]
    if family != "links" and any(a.end != b.first for a, b in pairwise(parts)):
        raise ValueError(f"segments of {kind} are not adjacent")
    arrays = {
        "columns": _join_columns,
        "links": _join_rows,
        "vectors": _join_rows,
        "postings": _join_postings,
    }[family](parts)
    return SegmentPart(first, end - first, arrays)


def take(kind: str, part: SegmentPart, renumber: Ints) -> SegmentPart:
    """The rows of `part` whose memories keep an ordinal, under their new ordinals.

    renumber: int32, indexed by old ordinal, -1 for what goes; ascending where it is not -1.
    A link goes with either of its ends.
    """
    family = kind.partition(":")[0]
    own = renumber[part.first : part.end]
    rows = np.flatnonzero(own >= 0)
    first = int(own[rows[0]]) if len(rows) else 0
    count = len(rows)
    if family == "links":
        arrays = _take_links(part.arrays, renumber)
    elif family == "columns":
        arrays = _take_columns(part.arrays, rows)
    elif family == "vectors":
        arrays = {"vectors": part.arrays["vectors"][rows]}
    else:
        arrays = _take_postings(part.arrays, rows, part.count)
    return SegmentPart(first, count, arrays)


def within(kind: str, part: SegmentPart, begin: int, end: int) -> SegmentPart:
    """What `part` holds of ordinals [begin, end), which it reaches into; they stay what they are.

    A link belongs to the newer of its ends, and an end below `begin` is no reason to lose it.
    """
    first, last = max(begin, part.first), min(end, part.end)
    if (first, last) == (part.first, part.end):
        return part
    if kind == "links":
        newer = np.maximum(part.arrays["source"], part.arrays["target"])
        inside = (newer >= first) & (newer < last)
        return SegmentPart(first, last - first, {k: v[inside] for k, v in part.arrays.items()})
    renumber = np.full(part.end, -1, np.int32)
    renumber[first:last] = np.arange(first, last)
    return take(kind, part, renumber)


def _join_rows(parts: Sequence[SegmentPart]) -> dict[str, Array]:
    return {name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays}


def completed(arrays: Arrays) -> dict[str, Array]:
    """The arrays of a `columns` segment with those that it leaves out."""
    count = len(arrays["id"])
    none = {name: np.full(count, NO_TIME, np.int64) for name in OPTIONAL if name not in arrays}
    return {**arrays, **none}


def _join_columns(parts: Sequence[SegmentPart]) -> dict[str, Array]:
    pointers = {f"{name}_ptr" for name in _LISTS}
    every = {name for part in parts for name in part.arrays}
    if any(name in every for name in OPTIONAL):
        parts = [SegmentPart(part.first, part.count, completed(part.arrays)) for part in parts]
    joined = {
        name: np.concatenate([part.arrays[name] for part in parts])
        for name in parts[0].arrays
        if name not in pointers
    }
    for name in _LISTS:
        lengths = [np.diff(part.arrays[f"{name}_ptr"]) for part in parts]
        joined[f"{name}_ptr"] = _pointers(np.concatenate(lengths))
    return joined


def _take_columns(arrays: Arrays, rows: NDArray[np.intp]) -> dict[str, Array]:
    ragged = {*_LISTS, *(f"{name}_ptr" for name in _LISTS)}
    taken = {name: array[rows] for name, array in arrays.items() if name not in ragged}
    for name in _LISTS:
        pointer = arrays[f"{name}_ptr"]
        lengths = np.diff(pointer)
        kept = np.zeros(len(lengths), np.bool_)
        kept[rows] = True
        taken[name] = arrays[name][np.repeat(kept, lengths)]
        taken[f"{name}_ptr"] = _pointers(lengths[rows])
    return taken


def _take_links(arrays: Arrays, renumber: Ints) -> dict[str, Array]:
    source, target = renumber[arrays["source"]], renumber[arrays["target"]]
    keep = (source >= 0) & (target >= 0)
    return {
        "source": source[keep],
        "target": target[keep],
        "type": arrays["type"][keep],
        "weight": arrays["weight"][keep],
    }


def _join_postings(parts: Sequence[SegmentPart]) -> dict[str, Array]:
    term = np.concatenate(
        [np.repeat(part.arrays["term"], np.diff(part.arrays["ptr"])) for part in parts]
    )
    document = np.concatenate(
        [part.arrays["document"] + np.int32(part.first - parts[0].first) for part in parts]
    )
    tf = np.concatenate([part.arrays["tf"] for part in parts])
    length = np.concatenate([part.arrays["length"] for part in parts])
    order = np.argsort(term, kind="stable")
    terms, counts = np.unique(term, return_counts=True)
    return {
        "term": terms,
        "ptr": _pointers(counts),
        "document": document[order].astype(np.int32, copy=False),
        "tf": tf[order],
        "length": length,
    }


def _take_postings(arrays: Arrays, rows: NDArray[np.intp], count: int) -> dict[str, Array]:
    local = np.full(count, -1, np.int32)
    local[rows] = np.arange(len(rows), dtype=np.int32)
    document = local[arrays["document"]]
    keep = document >= 0
    owner = np.repeat(np.arange(len(arrays["term"])), np.diff(arrays["ptr"]))[keep]
    counts = np.bincount(owner, minlength=len(arrays["term"]))
    used = counts > 0
    return {
        "term": arrays["term"][used],
        "ptr": _pointers(counts[used]),
        "document": document[keep],
        "tf": arrays["tf"][keep],
        "length": arrays["length"][rows],
    }


def _pointers(lengths: NDArray[Any]) -> Ints:
    pointer = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=pointer[1:])
    return pointer
