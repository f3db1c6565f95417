"""What one item says about its part of a document."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrieval.ingest.facts import Mention


@dataclass(frozen=True, slots=True)
class ContentSection:
    """`timestamp` None: the time of the content is unknown. `assumed`: nobody stated it, it is when
    the content came."""

    timestamp: datetime | None
    context: str | None = None
    mentions: tuple[Mention, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    observation_scopes: Any = None
    assumed: bool = False
