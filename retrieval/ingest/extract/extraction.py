"""From chunks of content to facts, in the mode that a bank is set to.

Without an extractor, or in mode `chunks`, a chunk is one fact, as it stands.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from retrieval import timex
from retrieval.ingest.entities import naming
from retrieval.ingest.entities.mentions import distinct
from retrieval.ingest.extract import dates
from retrieval.ingest.extract.by_model import Chunk, ExtractionOutcome, Job
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.settings import RetainSettings

_WORD = re.compile(r"\w")


class FactExtractor(Protocol):
    """Turns chunks into facts: by a language model, or by rules."""

    async def extract(
        self, job: Job, chunks: Sequence[Chunk], outcome: ExtractionOutcome
    ) -> list[list[ExtractedFact]]:
        """The facts of every chunk, in order; all or none."""
        ...


@dataclass(frozen=True, slots=True)
class Extraction:
    """One write's extraction. `outcome` says afterwards what it cost."""

    extractor: FactExtractor | None = None
    job: Job = field(default_factory=Job)
    outcome: ExtractionOutcome = field(default_factory=ExtractionOutcome)

    async def facts(self, chunks: Sequence[Chunk]) -> list[list[ExtractedFact]]:
        """The facts of every chunk, in reading order; none of one that has no word in it.

        An item's own entities belong to each of its facts. Raises where a chunk's extraction
        failed, naming it: a chunk is never stored as empty because of that.
        """
        asked = [place for place, chunk in enumerate(chunks) if self._is_asked(chunk)]
        found: dict[int, list[ExtractedFact]] = {}
        if asked and self.extractor is not None:
            answers = await self.extractor.extract(
                self.job, [chunks[place] for place in asked], self.outcome
            )
            found = dict(zip(asked, answers, strict=True))
        self.outcome.chunks_total += len(chunks) - len(asked)
        return [
            _finished(chunk, found[place])
            if place in found
            else await asyncio.to_thread(as_it_stands, chunk.text, chunk.section, chunk.settings)
            for place, chunk in enumerate(chunks)
        ]

    def _is_asked(self, chunk: Chunk) -> bool:
        return self.asks(chunk.settings) and bool(_WORD.search(chunk.text))

    def asks(self, settings: RetainSettings) -> bool:
        """Whether chunks are read by the extractor, or stored as they stand."""
        return self.extractor is not None and settings.retain_extraction_mode != "chunks"


def _finished(chunk: Chunk, found: Sequence[ExtractedFact]) -> list[ExtractedFact]:
    section = chunk.section
    if chunk.settings.retain_extraction_mode == "verbatim":
        return [_verbatim(chunk.text, section, found)]
    return [
        replace(fact, mentions=distinct([*section.mentions, *fact.mentions]))
        for fact in found
        if _WORD.search(fact.text)
    ]


def as_it_stands(
    chunk: str, section: ContentSection, settings: RetainSettings
) -> list[ExtractedFact]:
    """The chunk as one fact; none if there is no word in it. Pure."""
    if not _WORD.search(chunk):
        return []
    names: Sequence[Mention] = section.mentions
    if settings.retain_recognise_names:
        names = distinct([*names, *map(Mention, naming.names(chunk))])
    start, end = _dated(chunk, section, settings)
    fact = ExtractedFact(
        chunk.strip(), occurred_start=start, occurred_end=end, mentions=tuple(names)
    )
    return [fact]


def _dated(
    chunk: str, section: ContentSection, settings: RetainSettings
) -> tuple[datetime | None, datetime | None]:
    """The one date or period that the chunk names in full; none if it names several."""
    if not settings.retain_date_text or section.timestamp is None:
        return None, None
    window = dates.the_one(timex.explicit_dates(chunk, section.timestamp))
    if window is None:
        return None, None
    window = dates.dated(window, section.timestamp)
    return window.start, window.end


def _verbatim(chunk: str, section: ContentSection, found: Sequence[ExtractedFact]) -> ExtractedFact:
    names = distinct([*section.mentions, *(m for fact in found for m in fact.mentions)])
    dated = next((fact for fact in found if fact.occurred_start is not None), None)
    return ExtractedFact(
        chunk,
        occurred_start=dated.occurred_start if dated else None,
        occurred_end=dated.occurred_end if dated else None,
        mentions=names,
        tags=tuple(dict.fromkeys(tag for fact in found for tag in fact.tags)),
    )
