"""From a chunk of content to facts. Without an LLM a chunk is one fact, as it stands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from retrieval import timex, tokens, zones
from retrieval.errors import Unavailable
from retrieval.ingest import answers, naming, prompts
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.ingest.sightings import distinct
from retrieval.protocols import LLM
from retrieval.settings import RetainSettings

_WORD = re.compile(r"\w")
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Section:
    """What one item says about its part of a document."""

    timestamp: datetime | None
    context: str | None = None
    mentions: tuple[Mention, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    observation_scopes: Any = None


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


def needs_model(settings: RetainSettings, llm: LLM | None) -> bool:
    """Does a model read the chunks, or are they stored as they stand?"""
    return llm is not None and settings.retain_extraction_mode != "chunks"


def as_it_stands(chunk: str, section: Section, settings: RetainSettings) -> list[ExtractedFact]:
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
    chunk: str, section: Section, settings: RetainSettings
) -> tuple[datetime | None, datetime | None]:
    """The one date or period that the chunk names in full; none if it names several."""
    if not settings.retain_date_text or section.timestamp is None:
        return None, None
    found = {e.window for e in timex.explicit_dates(chunk, section.timestamp)}
    if len(found) != 1:
        return None, None
    window = zones.calendar(found.pop(), section.timestamp.tzinfo)
    return window.start, window.end


@dataclass(frozen=True, slots=True)
class Extractor:
    """Facts of chunks, in the mode that settings and the presence of an LLM give."""

    settings: RetainSettings
    llm: LLM | None = None
    usage: Usage = field(default_factory=Usage)

    async def facts(self, chunk: str, section: Section) -> list[ExtractedFact]:
        """The facts of one chunk, in reading order; none if there is no word in it.

        Raises Unavailable if the LLM's answer cannot be read, twice: a chunk is never stored as
        empty because its extraction failed.
        """
        if self.llm is None or not needs_model(self.settings, self.llm):
            return await asyncio.to_thread(as_it_stands, chunk, section, self.settings)
        chunk = chunk.strip()
        if not _WORD.search(chunk):
            return []
        found = await self._by_llm(self.llm, chunk, section)
        if self.settings.retain_extraction_mode == "verbatim":
            found = [self._verbatim(chunk, section, found)]
        return [fact for fact in found if _WORD.search(fact.text)]

    def _verbatim(
        self, chunk: str, section: Section, found: Sequence[ExtractedFact]
    ) -> ExtractedFact:
        names = distinct([*section.mentions, *(m for fact in found for m in fact.mentions)])
        dated = next((fact for fact in found if fact.occurred_start is not None), None)
        return ExtractedFact(
            chunk,
            occurred_start=dated.occurred_start if dated else None,
            occurred_end=dated.occurred_end if dated else None,
            mentions=names,
        )

    async def _by_llm(self, llm: LLM, chunk: str, section: Section) -> list[ExtractedFact]:
        system = prompts.system(self.settings)
        user = prompts.user(chunk, section.context, section.metadata, section.timestamp)
        problem = ""
        for _ in range(_ATTEMPTS):
            ask = f"{user}\n\n{problem}" if problem else user
            answer = await llm.complete(system, ask, max_tokens=prompts.COMPLETION_TOKENS)
            self.usage.input_tokens += tokens.count(system) + tokens.count(ask)
            self.usage.output_tokens += tokens.count(answer)
            try:
                return answers.read(
                    answer,
                    section.timestamp,
                    section.mentions,
                    causal=self.settings.retain_extract_causal_links,
                )
            except ValueError as error:
                problem = f"Your last answer could not be read ({error}). Answer with JSON only."
        raise Unavailable("fact extraction", f"the model's answer cannot be read: {problem}")
