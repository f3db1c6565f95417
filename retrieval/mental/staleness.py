"""Which documents are behind their memories: something newer is in scope, or something cited is
not.

A memory's ordinal tells in which order memories were committed, which no clock does: a transaction
that began early may commit late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from retrieval.mental.trigger import Trigger, scope
from retrieval.store import citations
from retrieval.store.database.pool import Connection
from retrieval.store.visibility import Seen, Visibility
from retrieval.types import Filters


class ScopeFilter:
    """Says of tags and a fact type whether they are in scope."""

    def __init__(self, filters: Filters) -> None:
        self._kinds = frozenset(int(kind) for kind in filters.types)
        self._visibility = Visibility(filters)

    def holds(self, tags: Sequence[str], kind: int) -> bool:
        return kind in self._kinds and self._visibility.passes(Seen("", tags, None, None))


def of(row: Mapping[str, Any]) -> Filters:
    """The scope of a model's row."""
    return scope(list(row["tags"]), Trigger.of(row["trigger"]))


async def stale(
    connection: Connection, bank: int, rows: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """The ids of those models that a refresh would bring something: one that was never refreshed,
    one whose question changed, or whose scope did, by what is new in it or gone from it."""
    found = {row["id"] for row in rows if _behind(row)}
    looked = [row for row in rows if row["id"] not in found]
    if not looked:
        return frozenset(found)
    scopes = {row["id"]: ScopeFilter(of(row)) for row in looked}
    written = await citations.written_since(
        connection, bank, min(row["watermark"] for row in looked)
    )
    for row in looked:
        holds = scopes[row["id"]].holds
        if any(top >= row["watermark"] and holds(tags, kind) for tags, kind, top in written):
            found.add(row["id"])
    rest = [row["id"] for row in looked if row["id"] not in found]
    for id, tags, kind in await citations.citations(connection, bank, rest):
        if tags is None or kind is None or not scopes[id].holds(tags, kind):
            found.add(id)
    return frozenset(found)


def _behind(row: Mapping[str, Any]) -> bool:
    refreshed: datetime | None = row["last_refreshed_at"]
    asked = row["content_query"]
    return refreshed is None or (asked is not None and asked != row["source_query"])
