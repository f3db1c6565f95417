"""What a language model is told when it extracts facts from a chunk of content.

The fixed part comes first and is the same for all banks, so that providers can keep it; what a bank
adds stands behind it. Content, context and metadata are fenced data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from retrieval.ingest.extract.labels import Group, groups
from retrieval.llm.blocks import PromptBlock, joined
from retrieval.llm.fences import RULE, fence, fenced
from retrieval.settings import RetainSettings

VERSION = "2"
"""Changes with the words below: answers to older ones are not taken for answers to these."""

COMPLETION_TOKENS = 8_000

_TASK = f"""\
You turn a piece of content into facts for the long-term memory of an AI agent.

Each fact must be understandable without the content: put names in place of pronouns, and dates in \
place of words like "yesterday", counted from the time of the content. If that time is unknown, \
leave such words out. State only what the content says; add nothing, conclude nothing. Write in \
the language of the content. {RULE}"""

_CONCISE = """\
Keep what will still matter later: people and what they are, do, like, plan and decide; events; \
relations; numbers that were agreed. Join what belongs together into one fact. Leave out \
greetings, small talk and what is true for everybody."""

_VERBOSE = """\
Keep everything that is said, with its circumstances: reasons, feelings, places, numbers, what \
was said about it and by whom. One fact for each thing said; leave out only greetings."""

_FIELDS = """\
Answer with a JSON object whose "facts" are a list, empty if nothing is worth keeping. Of each fact:
- what: the fact in one or two sentences.
- when, where, who, why: in words, or null where the content does not say.
- fact_kind: "event" if it happened or will happen at some time, else "state".
- fact_type: "assistant" if the AI agent itself did, said or decided it, else "world".
- occurred_start, occurred_end: ISO 8601, for an event; a state that began or ended at a known \
time has only that one; null where unknown.
- entities: names of people, organisations, places, products, projects, as the content writes them.
- labels: as described below, or null.
- causal_relations: for each earlier fact of the list that led to this one, its place (from 0) as \
target_index, at most two; else empty."""

_NULLABLE = {"type": ["string", "null"]}


def schema(settings: RetainSettings) -> tuple[str, dict[str, Any]]:
    """The shape of an answer, in what all providers' strict modes have in common."""
    known = groups(settings.entity_labels)
    fields: dict[str, Any] = {
        "what": {"type": "string"},
        "when": _NULLABLE,
        "where": _NULLABLE,
        "who": _NULLABLE,
        "why": _NULLABLE,
        "fact_kind": {"type": "string", "enum": ["event", "state"]},
        "fact_type": {"type": "string", "enum": ["world", "assistant"]},
        "occurred_start": _NULLABLE,
        "occurred_end": _NULLABLE,
        "entities": {"type": "array", "items": {"type": "string"}},
    }
    if known:
        fields["labels"] = _closed({group.key: group.schema() for group in known})
    if settings.retain_extract_causal_links:
        fields["causal_relations"] = {
            "type": "array",
            "maxItems": 2,
            "items": _closed(
                {
                    "target_index": {"type": "integer"},
                    "relation_type": {"type": "string", "enum": ["caused_by"]},
                }
            ),
        }
    return "facts", _closed({"facts": {"type": "array", "items": _closed(fields)}})


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def blocks(settings: RetainSettings, narrator: str) -> list[PromptBlock]:
    """The instructions; the same for every chunk of a bank."""
    mode = settings.retain_extraction_mode
    guidelines = PromptBlock(_VERBOSE if mode == "verbose" else _CONCISE, section="guidelines")
    if mode == "custom" and settings.retain_custom_instructions:
        guidelines = PromptBlock(settings.retain_custom_instructions, "retain_custom_instructions")
    mission, language = settings.retain_mission, settings.llm_output_language
    return [
        PromptBlock(_TASK, section="task"),
        PromptBlock(_FIELDS, section="answer"),
        guidelines,
        PromptBlock(
            f"What this memory is for: {mission}" if mission else "",
            "retain_mission",
        ),
        PromptBlock(_labels(groups(settings.entity_labels)), "entity_labels"),
        PromptBlock(
            f'The memory belongs to "{narrator}". Where the content speaks in the first person and'
            " its context names no other speaker, that is who speaks."
            if narrator
            else "",
            section="bank_identity",
        ),
        PromptBlock(f"Write all facts in {language}." if language else "", "llm_output_language"),
    ]


def _labels(known: Sequence[Group]) -> str:
    if not known:
        return ""
    return "Labels of each fact, null where the content does not say:\n" + "\n".join(
        group.words() for group in known
    )


def messages(
    settings: RetainSettings,
    narrator: str,
    chunk: str,
    context: str | None,
    metadata: Mapping[str, str] | None,
    timestamp: datetime | None,
) -> list[dict[str, str]]:
    """What is sent for one chunk."""
    return [
        {"role": "system", "content": joined(blocks(settings, narrator))},
        {"role": "user", "content": user(chunk, context, metadata, timestamp)},
    ]


def content_block() -> PromptBlock:
    """What stands in the place of the content where a prompt is shown."""
    return PromptBlock(
        user("(the chunk)", "(its context)", {"(key)": "(value)"}, None), section="content"
    )


def user(
    chunk: str,
    context: str | None,
    metadata: Mapping[str, str] | None,
    timestamp: datetime | None,
) -> str:
    """The content and what is known about it."""
    name = fence()
    when = (
        "unknown" if timestamp is None else f"{timestamp:%A, %d %B %Y, %H:%M} {_offset(timestamp)}"
    )
    lines = [f"Time of the content: {when}"]
    if context:
        lines.append("Context:\n" + fenced(name, context))
    if metadata:
        said = "\n".join(f"{key}: {value}" for key, value in metadata.items())
        lines.append("Metadata:\n" + fenced(name, said))
    lines.append("Content:\n" + fenced(name, chunk))
    return "\n\n".join(lines)


def _offset(timestamp: datetime) -> str:
    name = timestamp.strftime("%z") or "+0000"
    return "UTC" if name == "+0000" else f"UTC{name[:3]}:{name[3:5]}"
