"""What a reflect needs from elsewhere: recalls, mental models, directives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from retrieval.reflect.scope import Scope
from retrieval.store.directives import Directive
from retrieval.types import TagsMatch


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A mental model or page: `text` is its content. `is_stale`: something newer is not in it."""

    id: str
    name: str
    text: str
    is_stale: bool = False
    refreshed_at: datetime | None = None


class Models(Protocol):
    async def search(
        self, tenant: str, bank: str, query: str, scope: Scope, limit: int
    ) -> Sequence[FoundModel]:
        """The <= limit mental models inside the scope that have to do with the query, best first;
        none whose id is in `scope.without_models`."""
        ...


class Directives(Protocol):
    async def for_reflect(
        self,
        tenant: str,
        bank: str,
        tags: Sequence[str] | None,
        tags_match: TagsMatch,
        apply_all: bool,
    ) -> tuple[Sequence[Directive], Sequence[Directive]]:
        """(applied, left out), of the active ones, by priority."""
        ...


class NoModels:
    """A bank without mental models."""

    async def search(
        self, tenant: str, bank: str, query: str, scope: Scope, limit: int
    ) -> Sequence[FoundModel]:
        return ()


class NoDirectives:
    """A bank without directives."""

    async def for_reflect(
        self,
        tenant: str,
        bank: str,
        tags: Sequence[str] | None,
        tags_match: TagsMatch,
        apply_all: bool,
    ) -> tuple[Sequence[Directive], Sequence[Directive]]:
        return (), ()
