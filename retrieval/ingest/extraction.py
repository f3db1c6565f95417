"""From a chunk of content to facts. Without an LLM a chunk is one fact, as it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from retrieval.ingest import naming
from retrieval.ingest.entities import distinct
from retrieval.ingest.facts import Mention
from retrieval.protocols import LLM
from retrieval.settings import RetainSettings
from retrieval.types import FactType, LinkType

_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Section:
    """What one item says about its part of a document."""

    timestamp: datetime | None
    context: str | None = None
    mentions: tuple[Mention, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    observation_scopes: Any = None


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """One fact of a chunk. `links`: (place of an earlier fact of the chunk, type)."""

    text: str
    fact_type: FactType = FactType.WORLD
    occurred_start: datetime | None = None
    occurred_end: datetime | None = None
    mentions: tuple[Mention, ...] = ()
    links: tuple[tuple[int, LinkType], ...] = ()


@dataclass(slots=True)
class Usage:
    """Tokens that extraction cost."""

    input_tokens: int = 0
    output_tokens: int = 0

    def wire(self) -> dict[str, int]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "cached_tokens": 0,
            "thoughts_tokens": 0,
        }


@dataclass(frozen=True, slots=True)
class Extractor:
    """Facts of chunks, in the mode that settings and the presence of an LLM give."""

    settings: RetainSettings
    llm: LLM | None = None
    usage: Usage = field(default_factory=Usage)

    async def facts(self, chunk: str, section: Section) -> list[ExtractedFact]:
        """The facts of one chunk, in reading order; none if there is no word in it."""
        found = [self._as_it_stands(chunk, section)]
        return [fact for fact in found if _WORD.search(fact.text)]

    def _as_it_stands(self, chunk: str, section: Section) -> ExtractedFact:
        names: Sequence[Mention] = section.mentions
        if self.settings.retain_recognise_names:
            names = distinct([*names, *map(Mention, naming.names(chunk))])
        return ExtractedFact(chunk, mentions=tuple(names))
