"""Leaf types of retrieval: what travels between the stages of a recall.

Imports nothing of the project. Everything is frozen. Per-memory data is held as arrays over
*ordinals*: inside one bank a memory has a dense int32 ordinal, given in commit order and never
reused within a generation of the bank; UUIDs live at the edge.

Times inside arrays are int64 microseconds since the Unix epoch, UTC; `NO_TIME` means "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retrieval.messages import message

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]

NO_TIME = np.iinfo(np.int64).min
"""The value of a time column where the time is not known."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

DAY_US = 86_400_000_000
"""A day in microseconds."""

NO_PROOF = -1
"""The value of the proof column of a memory without a proof count."""


def microseconds(moment: datetime) -> int:
    """An aware datetime as microseconds since the epoch, exactly."""
    return (moment - EPOCH) // _MICROSECOND


class FactType(IntEnum):
    """The kind of a memory. The value is what the arrays and the database hold."""

    WORLD = 0
    EXPERIENCE = 1
    OBSERVATION = 2

    @property
    def wire(self) -> str:
        """The name used in the HTTP API."""
        return self.name.lower()

    @classmethod
    def of(cls, name: str) -> FactType:
        """The type with this wire name; ValueError if there is none."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(
                f"unknown fact type {name!r}: use world, experience or observation"
            ) from None


class LinkType(IntEnum):
    """The kind of an edge between two memories; an edge runs from source to target.

    SEMANTIC and the causal types are stored. TEMPORAL (neighbours within 24 h) and SEQUENCE
    (neighbours inside one document) follow from the columns and are computed when read, unless
    an import gave them explicitly.
    """

    TEMPORAL = 0
    SEMANTIC = 1
    CAUSES = 2
    CAUSED_BY = 3
    ENABLES = 4
    PREVENTS = 5
    SEQUENCE = 6

    @property
    def wire(self) -> str:
        return self.name.lower()


CAUSAL = (LinkType.CAUSES, LinkType.CAUSED_BY, LinkType.ENABLES, LinkType.PREVENTS)


class Arm(IntEnum):
    """The four arms, in the order that fusion lists them."""

    SEMANTIC = 0
    BM25 = 1
    GRAPH = 2
    TEMPORAL = 3

    @property
    def wire(self) -> str:
        return self.name.lower()


class Budget(StrEnum):
    LOW = "low"
    MID = "mid"
    HIGH = "high"


class TagsMatch(StrEnum):
    ANY = "any"
    ALL = "all"
    ANY_STRICT = "any_strict"
    ALL_STRICT = "all_strict"
    EXACT = "exact"


class TemporalMode(StrEnum):
    RANK = "rank"
    FILTER = "filter"


@message
@dataclass(frozen=True, slots=True)
class Window:
    """A closed span of time; `None` leaves that side open.

    Both bounds are aware, and their offsets say whose days are meant; in a query that was not
    `zones.settled` yet they may be naive.
    """

    start: datetime | None
    end: datetime | None

    def __post_init__(self) -> None:
        if self.start is None or self.end is None:
            return
        # Until it is known where one without an offset belongs, two of a kind can be compared.
        if (self.start.tzinfo is None) == (self.end.tzinfo is None) and self.end < self.start:
            raise ValueError(f"window ends ({self.end}) before it starts ({self.start})")


@message
@dataclass(frozen=True, slots=True)
class TagLeaf:
    tags: tuple[str, ...]
    match: TagsMatch = TagsMatch.ANY_STRICT


@message
@dataclass(frozen=True, slots=True)
class TagAll:
    """Every group holds (`and`)."""

    groups: tuple[TagGroup, ...]


@message
@dataclass(frozen=True, slots=True)
class TagAny:
    """At least one group holds (`or`)."""

    groups: tuple[TagGroup, ...]


@message
@dataclass(frozen=True, slots=True)
class TagNot:
    group: TagGroup


TagGroup: TypeAlias = "TagLeaf | TagAll | TagAny | TagNot"


@message
@dataclass(frozen=True, slots=True)
class Filters:
    """What a memory must satisfy to be a candidate at all, in every arm.

    `metadata` maps a key to a predicate: {"eq": v} | {"in": [v, ...]} | {"gte"|"gt"|"lte"|"lt": v}
    | {"exists": bool}; retrieval/store/metadata.py says what they mean.
    `as_of` keeps memories with mentioned_at <= as_of. `window` is a hard filter on event time.
    """

    types: tuple[FactType, ...] = (FactType.WORLD, FactType.EXPERIENCE, FactType.OBSERVATION)
    tags: tuple[str, ...] | None = None
    tags_match: TagsMatch = TagsMatch.ANY
    tag_groups: tuple[TagGroup, ...] | None = None
    metadata: Mapping[str, Mapping[str, Any]] | None = None
    as_of: datetime | None = None
    window: Window | None = None
    exclude_ids: tuple[bytes, ...] = ()


@message
@dataclass(frozen=True, slots=True)
class MinScores:
    semantic: float | None = None
    keyword: float | None = None
    reranker: float | None = None
    final: float | None = None


@message
@dataclass(frozen=True, slots=True)
class Include:
    """Which extras to return, each with its token budget; None leaves the extra out."""

    entities: int | None = 500
    chunks: int | None = None
    source_facts: int | None = None
    source_facts_per_observation: int = -1


@message
@dataclass(frozen=True, slots=True)
class RecallQuery:
    """One validated recall. `now` is the reference time of relative times and recency.

    Times given without an offset are naive until `zones.settled` places them: in `timezone` (an
    IANA name), else in the bank's. `from_clock`: no time was given, `now` is the clock's.
    `deadline` is an absolute time on this process's `time.monotonic()` clock, or None.
    """

    tenant: str
    bank_id: str
    text: str
    now: datetime
    filters: Filters = field(default_factory=Filters)
    budget: Budget = Budget.MID
    max_tokens: int = 4096
    prefer_observations: bool | None = None
    include: Include = field(default_factory=Include)
    min_scores: MinScores = field(default_factory=MinScores)
    window: Window | None = None
    temporal_mode: TemporalMode = TemporalMode.RANK
    limit: int | None = None
    dedupe: float | None = None
    explain: bool = False
    trace: bool = False
    deadline: float | None = None
    timezone: str | None = None
    from_clock: bool = False


@message
@dataclass(frozen=True, slots=True)
class Hits:
    """The answer of one arm: distinct ordinals, best first, with the arm's own scores.

    ordinals int32 (n,), scores float32 (n,), non-increasing within one fact type unless the arm
    says otherwise (temporal: coverage order).
    """

    ordinals: Ints
    scores: Floats

    def __len__(self) -> int:
        return len(self.ordinals)


class MemoryRow(NamedTuple):
    """One stored memory as the API shows it; times are aware datetimes. A recall makes some 150 of
    them: a named tuple takes a third of the time of a frozen dataclass."""

    ordinal: int
    id: str
    text: str
    fact_type: FactType
    context: str | None
    occurred_start: datetime | None
    occurred_end: datetime | None
    mentioned_at: datetime | None
    document_id: str | None
    chunk_id: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, str] | None
    proof_count: int | None
    source_ids: tuple[str, ...]
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    superseded_by: str | None = None


def no_hits() -> Hits:
    return Hits(np.empty(0, np.int32), np.empty(0, np.float32))
