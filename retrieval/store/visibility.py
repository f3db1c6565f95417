"""What may go along with an answer: the filters of a recall, for rows that no arm ranked.

Sources of observations, the texts of chunks and inherited entity names are read from the database
beside the ranked memories. In many deployments tags are the access control, so all of it obeys the
filters that the results obey: tags, tag groups, `as_of`, metadata and `exclude_ids`. Fact types and
time windows choose what is ranked and say nothing of what a result was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from retrieval.store import metadata
from retrieval.types import Filters, TagAll, TagAny, TagGroup, TagLeaf, TagNot, TagsMatch

Matches = Callable[[frozenset[str]], bool]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a filter reads of a memory. Times are aware datetimes."""

    id: str
    tags: Sequence[str]
    mentioned_at: datetime | None
    metadata: Mapping[str, str] | None


class Visibility:
    """The filters of one recall; thread-safe."""

    def __init__(self, filters: Filters) -> None:
        self._tags: list[Matches] = [_group(group) for group in filters.tag_groups or ()]
        if filters.tags or filters.tags_match is TagsMatch.EXACT:
            self._tags.append(_leaf(filters.tags or (), filters.tags_match))
        self._as_of = filters.as_of
        self._metadata = metadata.compiled(filters.metadata or {})
        self._excluded = frozenset(filters.exclude_ids)

    @property
    def everything(self) -> bool:
        """Whether every memory passes, so that none need be looked at."""
        return not (self._tags or self._as_of or self._metadata or self._excluded)

    def passes(self, memory: Seen) -> bool:
        """Whether it may be shown; as `retrieval.bank.filters.visible` decides."""
        if self._excluded and UUID(memory.id).bytes in self._excluded:
            return False
        said = memory.mentioned_at
        if self._as_of is not None and said is not None and said > self._as_of:
            return False
        tags = frozenset(memory.tags)
        return all(match(tags) for match in self._tags) and metadata.holds(
            self._metadata, memory.metadata
        )


def _leaf(tags: Sequence[str], mode: TagsMatch) -> Matches:
    wanted = frozenset(tags)
    rules: dict[TagsMatch, Matches] = {
        TagsMatch.ANY: lambda held: not held or not held.isdisjoint(wanted),
        TagsMatch.ANY_STRICT: lambda held: not held.isdisjoint(wanted),
        TagsMatch.ALL: lambda held: not held or wanted <= held,
        TagsMatch.ALL_STRICT: lambda held: bool(held) and wanted <= held,
        TagsMatch.EXACT: lambda held: wanted == held,
    }
    return rules[mode]


def _group(group: TagGroup) -> Matches:
    match group:
        case TagLeaf(tags, mode):
            return _leaf(tags, mode)
        case TagNot(inner):
            refused = _group(inner)
            return lambda held: not refused(held)
        case TagAll(groups):
            every = [_group(part) for part in groups]
            return lambda held: all(part(held) for part in every)
        case TagAny(groups):
            some = [_group(part) for part in groups]
            return lambda held: any(part(held) for part in some)
