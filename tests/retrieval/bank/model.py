"""A bank as plain Python: what was written, packed as segments the way the store packs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.loader import SegmentRow
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta, EntityChange
from retrieval.store.segments.format import pack
from retrieval.types import NO_TIME, FactType

DIMENSION = 8


def head(bank: int = 1, version: int = 0, size: int = 0, **changes: Any) -> BankHead:
    at = BankHead(bank, "default", f"bank-{bank}", version, 0, size, "mini:8", "plain")
    return replace(at, **changes)


@dataclass(frozen=True)
class Memory:
    id: bytes
    fact_type: FactType = FactType.WORLD
    occurred_start: int = NO_TIME
    mentioned_at: int = NO_TIME
    valid_from: int = NO_TIME
    valid_until: int = NO_TIME
    document: int = -1
    position: int = 0
    tags: tuple[int, ...] = ()
    entities: tuple[int, ...] = ()
    sources: tuple[bytes, ...] = ()
    terms: tuple[int, ...] = ()
    vector: tuple[float, ...] | None = None
    links: tuple[tuple[int, int, float], ...] = ()
    """(target ordinal, type, weight)."""


@dataclass
class Ledger:
    """Everything written to one bank, with the segments of each write."""

    bank: int = 1
    head: BankHead = field(init=False)
    memories: list[Memory] = field(default_factory=list)
    segments: dict[str, list[SegmentRow]] = field(default_factory=dict)
    tombstones: list[tuple[int, int]] = field(default_factory=list)
    """(ordinal, version)."""
    entities: dict[int, EntityChange] = field(default_factory=dict)
    entity_versions: dict[int, int] = field(default_factory=dict)
    tags: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.head = head(self.bank)

    def write(
        self,
        memories: Sequence[Memory] = (),
        dead: Sequence[int] = (),
        entities: Sequence[EntityChange] = (),
        tags: Mapping[int, str] | None = None,
    ) -> BankHead:
        first, version = len(self.memories), self.head.version + 1
        self.memories += memories
        if memories:
            for kind, payload in packed(memories, first).items():
                self.segments.setdefault(kind, []).append((first, len(memories), payload))
        self.tombstones += [(ordinal, version) for ordinal in dead]
        for row in entities:
            self.entities[row.entity_no] = row
            self.entity_versions[row.entity_no] = version
        self.tags |= tags or {}
        self.head = replace(self.head, version=version, next_ordinal=len(self.memories))
        return self.head

    def merge(self, first: int, last: int) -> None:
        """Merge segments number first .. last of every kind into one."""
        bounds = self.segments.get("columns", [])[first : last + 1]
        if len(bounds) < 2:
            return
        begin, end = bounds[0][0], bounds[-1][0] + bounds[-1][1]
        for kind, payload in packed(self.memories[begin:end], begin).items():
            rows = self.segments[kind]
            rows[first : last + 1] = [(begin, end - begin, payload)]

    def compacted(self) -> Ledger:
        """The bank with ordinals given anew to what is alive. Links are left out."""
        anew = Ledger(self.bank)
        anew.entities, anew.tags = self.entities, self.tags
        anew.entity_versions = self.entity_versions
        live = [m for o, m in enumerate(self.memories) if o not in self.dead]
        anew.write([replace(m, links=()) for m in live])
        anew.head = replace(
            anew.head, version=self.head.version + 1, generation=self.head.generation + 1
        )
        return anew

    def delta(self, have_version: int | None, held: int = 0) -> Delta:
        """What a snapshot of that version with so many ordinals lacks; None: everything."""
        since = -1 if have_version is None else have_version
        return Delta(
            self.head,
            have_version is None,
            {
                kind: [row for row in rows if row[0] + row[1] > held]
                for kind, rows in self.segments.items()
            },
            np.array([o for o, v in self.tombstones if v > since], np.int32),
            np.array([v for _, v in self.tombstones if v > since], np.int64),
            [row for n, row in self.entities.items() if self.entity_versions[n] > since],
            sorted(self.tags.items()),
        )

    @property
    def dead(self) -> set[int]:
        return {ordinal for ordinal, _ in self.tombstones}


def packed(memories: Sequence[Memory], first: int) -> dict[str, bytes]:
    """The segments of these memories, by kind."""
    return {
        "columns": pack(_columns(memories)),
        "links": pack(_links(memories, first)),
        "vectors:mini:8": pack({"vectors": np.array([vector(m) for m in memories], np.float32)}),
        "postings:plain": pack(_postings(memories)),
    }


def vector(memory: Memory) -> NDArray[np.float32]:
    if memory.vector is None:
        return np.zeros(DIMENSION, np.float32)
    v = np.array(memory.vector, np.float32)
    return v / np.linalg.norm(v)


def _ragged(lists: Sequence[Sequence[Any]]) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int32)


def _columns(memories: Sequence[Memory]) -> dict[str, NDArray[Any]]:
    n = len(memories)
    tags, entities = [m.tags for m in memories], [m.entities for m in memories]
    sources = [m.sources for m in memories]
    return {
        "id": np.frombuffer(b"".join(m.id for m in memories), np.uint8).reshape(n, 16),
        "fact_type": np.array([m.fact_type for m in memories], np.uint8),
        "created_at": np.array([int.from_bytes(m.id[8:]) for m in memories], np.int64),
        "updated_at": np.array([int.from_bytes(m.id[8:]) + 1 for m in memories], np.int64),
        "occurred_start": np.array([m.occurred_start for m in memories], np.int64),
        "occurred_end": np.full(n, NO_TIME, np.int64),
        "mentioned_at": np.array([m.mentioned_at for m in memories], np.int64),
        "valid_from": np.array([m.valid_from for m in memories], np.int64),
        "valid_until": np.array([m.valid_until for m in memories], np.int64),
        "document": np.array([m.document for m in memories], np.int32),
        "position": np.array([m.position for m in memories], np.int32),
        "proof": np.full(n, -1, np.int32),
        "tokens": np.full(n, 7, np.int32),
        "subject": np.array([m.entities[0] if m.entities else -1 for m in memories], np.int32),
        "flags": np.zeros(n, np.uint8),
        "tag_ptr": _ragged(tags),
        "tag": np.array([t for row in tags for t in row], np.int32),
        "entity_ptr": _ragged(entities),
        "entity": np.array([e for row in entities for e in row], np.int32),
        "source_ptr": _ragged(sources),
        "source": np.frombuffer(b"".join(s for r in sources for s in r), np.uint8).reshape(-1, 16),
    }


def _links(memories: Sequence[Memory], first: int) -> dict[str, NDArray[Any]]:
    rows = [(first + i, *link) for i, m in enumerate(memories) for link in m.links]
    return {
        "source": np.array([r[0] for r in rows], np.int32),
        "target": np.array([r[1] for r in rows], np.int32),
        "type": np.array([r[2] for r in rows], np.uint8),
        "weight": np.array([r[3] for r in rows], np.float32),
    }


def _postings(memories: Sequence[Memory]) -> dict[str, NDArray[Any]]:
    pairs = sorted({(t, i) for i, m in enumerate(memories) for t in m.terms})
    terms = sorted({t for t, _ in pairs})
    counts = [sum(1 for t, _ in pairs if t == term) for term in terms]
    return {
        "term": np.array(terms, np.uint64),
        "ptr": np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        "document": np.array([i for _, i in pairs], np.int32),
        "tf": np.ones(len(pairs), np.float32),
        "length": np.array([len(set(m.terms)) for m in memories], np.float32),
    }
