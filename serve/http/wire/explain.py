"""The body of an explained recall: a recall's, and what to tell besides."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from retrieval.recall.explaining import ExplainRequest
from retrieval.store.edge import as_uuid
from serve.http.wire.recall import RecallBody

IDS_MOST, LISTS_MOST = 20, 1_000


class ExplainBody(RecallBody):
    settings: Annotated[dict[str, Any], Field(max_length=64, default_factory=dict)]
    """Settings of this recall only: what a bank may override, boosts, caps and recency."""
    why: Annotated[list[str], Field(max_length=IDS_MOST, fail_fast=True, default_factory=list)]
    """Ids of memories: where each of them stopped, and what would bring it in."""
    check: bool = False
    """Try what would bring the first of them in: up to two recalls more."""
    lists: Annotated[int, Field(ge=0, le=LISTS_MOST)] = 300
    """Most entries of an arm's list."""

    @property
    def asked(self) -> ExplainRequest:
        """What to explain. InvalidInput for an id that is none."""
        ids: list[UUID] = list(dict.fromkeys(as_uuid(id, "why") for id in self.why))
        return ExplainRequest(self.settings, ids, self.check, self.lists)
