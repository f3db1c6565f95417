"""Facts of a chunk by a language model: asked once, halved where the answer does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from retrieval.errors import (
    ModelCut,
    ModelFailed,
    ModelRefused,
    ModelTooLong,
)
from retrieval.ingest.documents.chunking import chunk as cut
from retrieval.ingest.extract import ledger, prompts
from retrieval.ingest.extract.answers import FactReader
from retrieval.ingest.extract.labels import groups
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.facts import ExtractedFact
from retrieval.ingest.progress import OperationProgress
from retrieval.llm.asking import Asker, ModelUsage
from retrieval.protocols import LLM
from retrieval.settings import RetainSettings
from retrieval.store import ledger as store
from retrieval.store.database.pool import Pool

SMALLEST = 500
"""Characters of a chunk that is not halved any more."""


@dataclass(frozen=True, slots=True)
class Job:
    """On whose behalf chunks are extracted. `pool` None: nothing is kept in the ledger.
    `operation`: in the background. `fresh`: what was kept before it is not looked at."""

    tenant: str = ""
    bank_id: str = ""
    narrator: str = ""
    turn: str = "retain"
    deadline: float | None = None
    pool: Pool | None = None
    fresh: bool = False
    trace_id: str = ""
    operation: UUID | None = None
    progress: OperationProgress = field(default_factory=OperationProgress)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk to extract. `where` names it in messages."""

    text: str
    section: ContentSection
    settings: RetainSettings
    document_id: str | None = None
    where: str = "the content"


@dataclass(slots=True)
class ExtractionOutcome:
    """What extracting cost and what went wrong on the way."""

    usage: ModelUsage = field(default_factory=ModelUsage)
    chunks_total: int = 0
    chunks_reused: int = 0
    errors: list[str] = field(default_factory=list)
    """Items that were left out of good answers, and chunks that were kept as they stand."""

    def metadata(self) -> dict[str, object]:
        """As an operation's result shows it."""
        return {
            "chunks_total": self.chunks_total,
            "chunks_reused": self.chunks_reused,
            "extraction_errors_count": len(self.errors),
            "extraction_errors_sample": self.errors[:5],
            "usage": self.usage.wire(),
        }


@dataclass(frozen=True, slots=True)
class ModelExtractor:
    """Safe for concurrent use. `at_once`: chunks of one write that are asked about together."""

    llm: LLM
    at_once: int = 32

    async def extract(
        self, job: Job, chunks: Sequence[Chunk], outcome: ExtractionOutcome
    ) -> list[list[ExtractedFact]]:
        """The facts of every chunk, in order. What is in the ledger is not asked for again, and
        what is good is kept there, also where another chunk fails.

        Raises the first failure, which names its chunk; ModelFailed and its kinds for content,
        the errors of protocols.LLM for the rest.
        """
        outcome.chunks_total += len(chunks)
        keys = [self.key(job, chunk) for chunk in chunks]
        kept = await self.kept(job, keys)
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        # A text that stands twice in the content is asked about once.
        outcome.chunks_reused += sum(
            key in kept or first[key] != place for place, key in enumerate(keys)
        )
        found: list[list[ExtractedFact]] = [[] for _ in chunks]
        failures: list[Exception] = []
        places = iter(sorted(first.values()))
        done = len(chunks) - len(first)
        job.progress.at("extracting", done, len(chunks))

        async def one_after_another() -> None:
            nonlocal done
            for place in places:
                try:
                    found[place] = await self._one(job, chunks[place], keys[place], kept, outcome)
                except Exception as error:
                    failures.append(error)
                if failures:
                    # Those that are being paid for go on to their end; no further one is begun.
                    return
                done += 1
                job.progress.at("extracting", done, len(chunks))

        await asyncio.gather(*(one_after_another() for _ in range(min(self.at_once, len(chunks)))))
        if failures:
            raise failures[0]
        return [found[first[key]] for key in keys]

    def key(self, job: Job, chunk: Chunk) -> bytes:
        """What the answer about a chunk is kept under."""
        return ledger.key(
            self.llm.model_id, chunk.settings, job.narrator, chunk.text, chunk.section
        )

    async def kept(self, job: Job, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """What the ledger holds of these answers, as far as the job looks at it."""
        if job.pool is None or not keys or (job.fresh and job.operation is None):
            return {}
        since = job.operation if job.fresh else None
        return await store.find(job.pool, job.tenant, job.bank_id, keys, since=since)

    async def keep(
        self, job: Job, chunk: Chunk, key: bytes, facts: Sequence[ExtractedFact]
    ) -> None:
        """Keeps a good answer, where the job keeps any."""
        if job.pool is not None:
            await store.keep(
                job.pool, job.tenant, job.bank_id, key, ledger.written(facts), chunk.document_id
            )

    async def _one(
        self, job: Job, chunk: Chunk, key: bytes, kept: dict[bytes, Any], outcome: ExtractionOutcome
    ) -> list[ExtractedFact]:
        if key in kept:
            return ledger.read(kept[key])
        try:
            facts = await self._asked(job, chunk, chunk.text, outcome)
        except ModelFailed as error:
            if chunk.settings.on_chunk_failure == "chunk":
                outcome.errors.append(f"{chunk.where}: {error}; kept as it stands")
                return [ExtractedFact(chunk.text, raw=True)]
            raise type(error)(f"{chunk.where}: {error}") from error
        await self.keep(job, chunk, key, facts)
        return facts

    async def _asked(
        self, job: Job, chunk: Chunk, text: str, outcome: ExtractionOutcome
    ) -> list[ExtractedFact]:
        asked = question(job, chunk, text)
        about = {"scope": "extract_facts", "trace_id": job.trace_id}
        if chunk.document_id is not None:
            about["document_id"] = chunk.document_id
        asker = Asker(
            self.llm,
            "retain",
            job.turn,
            job.tenant,
            job.bank_id,
            job.deadline,
            about,
            outcome.usage,
        )
        reader = reader_of(job, chunk, text)
        try:
            facts = await asker.read(
                asked,
                prompts.schema(chunk.settings),
                reader.read,
                max_tokens=prompts.COMPLETION_TOKENS,
            )
        except ModelRefused:
            raise
        except (ModelCut, ModelTooLong):
            halves = cut(text, max(SMALLEST // 2, -(-len(text) // 2) + 1))
            if len(text) <= SMALLEST or len(halves) < 2:
                raise
            return _joined([await self._half(job, chunk, half, outcome) for half in halves])
        outcome.errors += [f"{chunk.where}: {problem}" for problem in reader.dropped]
        return facts

    async def _half(
        self, job: Job, chunk: Chunk, text: str, outcome: ExtractionOutcome
    ) -> list[ExtractedFact]:
        """A part of a chunk, kept for itself: the other part may fail."""
        key = self.key(job, replace(chunk, text=text))
        if key in (kept := await self.kept(job, [key])):
            return ledger.read(kept[key])
        facts = await self._asked(job, chunk, text, outcome)
        await self.keep(job, chunk, key, facts)
        return facts


def question(job: Job, chunk: Chunk, text: str) -> list[dict[str, str]]:
    """What is asked about a chunk, or about the part `text` of it."""
    section = chunk.section
    return prompts.messages(
        chunk.settings, job.narrator, text, section.context, section.metadata, section.timestamp
    )


def reader_of(job: Job, chunk: Chunk, text: str) -> FactReader:
    """Reads the answer to `question`."""
    section, settings = chunk.section, chunk.settings
    said = (text, section.context, job.narrator, *(section.metadata or {}).values())
    return FactReader(
        "\n".join(part for part in said if part),
        text,
        section.timestamp,
        groups(settings.entity_labels),
        causal=settings.retain_extract_causal_links,
        free_names=settings.entities_allow_free_form,
        translated=settings.llm_output_language is not None,
    )


def _joined(parts: Sequence[Sequence[ExtractedFact]]) -> list[ExtractedFact]:
    """Facts of the parts of a chunk, with links to where the facts are now."""
    joined: list[ExtractedFact] = []
    for part in parts:
        first = len(joined)
        joined += [
            replace(fact, links=tuple((first + place, kind) for place, kind in fact.links))
            for fact in part
        ]
    return joined
