"""What a retain would extract, and what the model would be told: nothing is written."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from retrieval.errors import NeedsModel
from retrieval.ingest.documents.chunking import chunk as cut
from retrieval.ingest.documents.planning import strategy as strategy_settings
from retrieval.ingest.extract import prompts
from retrieval.ingest.extract.by_model import Chunk, Job
from retrieval.ingest.extract.extraction import Extraction, FactExtractor
from retrieval.ingest.extract.section import ContentSection
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.edge import iso

RUN_SETTINGS = (
    "retain_extraction_mode", "retain_chunk_size", "retain_structured_chunk_size",
    "retain_extract_causal_links", "entities_allow_free_form", "on_chunk_failure",
)  # fmt: skip
"""Settings that shape an extraction without standing in its prompt."""


async def bank_settings(
    pool: Pool, defaults: RetainSettings, tenant: str, bank_id: str
) -> RetainSettings:
    """A bank's own settings; NotFound where there is no such bank."""
    head = await banks.head(pool, tenant, bank_id)
    return defaults.with_overrides(head.config)


async def dry_run(
    settings: RetainSettings,
    extractor: FactExtractor | None,
    job: Job,
    content: str,
    section: ContentSection,
) -> dict[str, Any]:
    """{facts, chunks, usage}: what a retain of `content` would make of it.

    NeedsModel where the mode needs a language model and there is none; the errors of extraction.
    """
    if extractor is None and settings.retain_extraction_mode != "chunks":
        if settings.retain_extraction_mode != RetainSettings().retain_extraction_mode:
            raise NeedsModel.to(
                f"extraction mode {settings.retain_extraction_mode!r}", "mode 'chunks' needs none"
            )
        settings = replace(settings, retain_extraction_mode="chunks")
    pieces = await asyncio.to_thread(
        cut, content, settings.retain_chunk_size, settings.retain_structured_chunk_size
    )
    extraction = Extraction(extractor, job)
    chunks = [Chunk(piece, section, settings, None, f"chunk {i}") for i, piece in enumerate(pieces)]
    found = await extraction.facts(chunks)
    return {
        "facts": [
            {
                "text": fact.text,
                "fact_type": fact.fact_type.name.lower(),
                "occurred_start": iso(fact.occurred_start),
                "occurred_end": iso(fact.occurred_end),
                "entities": [mention.name for mention in fact.mentions],
                "chunk_index": i,
            }
            for i, facts in enumerate(found)
            for fact in facts
        ],
        "chunks": [
            {"text": piece, "fact_count": len(facts)}
            for piece, facts in zip(pieces, found, strict=True)
        ],
        "usage": extraction.outcome.usage.wire(),
    }


def prompt_preview(
    settings: RetainSettings, narrator: str, strategy: str | None, *, needs_model: bool
) -> dict[str, Any]:
    """The messages of an extraction as blocks, with the settings that shape it besides."""
    effective = strategy_settings(settings, strategy)
    skipped = None
    if needs_model:
        skipped = "no language model is configured: chunks are stored as they are"
    elif effective.retain_extraction_mode == "chunks":
        skipped = "extraction mode 'chunks' asks no language model"
    _, schema = prompts.schema(effective)
    return {
        "messages": []
        if skipped
        else [
            {
                "role": "system",
                "blocks": [block.view() for block in prompts.blocks(effective, narrator)],
            },
            {
                "role": "user",
                "blocks": [
                    {
                        **prompts.content_block().view(editable=False),
                        "value": None,
                    }
                ],
            },
        ],
        "strategy": strategy,
        "strategies": sorted(settings.retain_strategies or {}),
        "run_settings": run_settings(effective, RUN_SETTINGS),
        "response_schema": None if skipped else schema,
        "skipped_reason": skipped,
    }


def run_settings(settings: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Values of settings as the preview shows them."""
    values: Mapping[str, Any] = dataclasses.asdict(settings)
    return [
        {
            "field": name,
            "value": None if values[name] is None else str(values[name]),
            "kind": "boolean" if isinstance(values[name], bool) else "text",
            "editable": True,
        }
        for name in names
    ]
