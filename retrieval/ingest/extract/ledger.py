"""How extracted facts lie in the ledger, and the key that they lie under."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from retrieval.ingest.extract import prompts
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.settings import RetainSettings
from retrieval.store.edge import iso
from retrieval.types import FactType, LinkType

_SHAPING = (
    "retain_extraction_mode", "retain_mission", "retain_custom_instructions",
    "retain_extract_causal_links", "entity_labels", "entities_allow_free_form",
    "llm_output_language",
)  # fmt: skip
"""The settings that an answer depends on."""


def key(
    model: str, settings: RetainSettings, narrator: str, chunk: str, section: ContentSection
) -> bytes:
    """sha256 over everything that the answer depends on. Of a time that nobody stated only the day
    counts: content that comes again a moment later is the same content."""
    shaping = [getattr(settings, name) for name in _SHAPING]
    when = iso(section.timestamp)
    if section.assumed and when is not None:
        when = when[:10]
    parts = [
        prompts.VERSION, model, shaping, narrator, chunk, section.context, section.metadata, when,
    ]  # fmt: skip
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).digest()


def written(facts: Sequence[ExtractedFact]) -> list[dict[str, Any]]:
    return [
        {
            "text": fact.text,
            "type": int(fact.fact_type),
            "start": iso(fact.occurred_start),
            "end": iso(fact.occurred_end),
            "mentions": [[m.name, m.resolve, m.label] for m in fact.mentions],
            "links": [[place, int(kind)] for place, kind in fact.links],
            "tags": list(fact.tags),
        }
        for fact in facts
    ]


def read(facts: Sequence[Mapping[str, Any]]) -> list[ExtractedFact]:
    return [
        ExtractedFact(
            text=fact["text"],
            fact_type=FactType(fact["type"]),
            occurred_start=_time(fact["start"]),
            occurred_end=_time(fact["end"]),
            mentions=tuple(
                Mention(name, bool(r), bool(label)) for name, r, label in fact["mentions"]
            ),
            links=tuple((place, LinkType(kind)) for place, kind in fact["links"]),
            tags=tuple(fact["tags"]),
        )
        for fact in facts
    ]


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
