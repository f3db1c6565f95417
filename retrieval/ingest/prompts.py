"""What an LLM is told when it extracts facts from a chunk of content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from retrieval.settings import RetainSettings

COMPLETION_TOKENS = 16_000

_TASK = """\
You turn a piece of content into facts for the long-term memory of an AI agent. Each fact must be \
understandable without the content: put names in place of pronouns, and dates in place of words \
like "yesterday", counted from the content's own time. State only what the content says."""

_CONCISE = """\
Keep what will still matter later: people and what they are, do, like, plan and decide; events; \
relations; numbers that were agreed. Join what belongs together into one fact. Leave out \
greetings, small talk and what is true for everybody."""

_VERBOSE = """\
Keep everything that is said, with its circumstances: reasons, feelings, places, numbers, what \
was said about it and by whom. One fact for each thing said; leave out only greetings."""

_SHAPE = """\
Answer with one JSON object and nothing else:
{"facts": [{
  "what": "the fact, one or two sentences",
  "when": "when, in words, or null",
  "who": "everybody involved and how they relate, or null",
  "why": "why or to what end, or null",
  "fact_type": "experience if the agent itself did or said it, else world",
  "kind": "event if it happened at some time, else state",
  "occurred_start": "ISO 8601 time of an event, or null",
  "occurred_end": "ISO 8601 time or null",
  "entities": ["names of people, organisations, places, products, projects"]%s
}]}
No facts worth keeping: {"facts": []}."""

_CAUSES = """,
  "caused_by": [numbers, counted from 0, of earlier facts in this list that led to this one]"""


def system(settings: RetainSettings) -> str:
    """The instructions; the same for every chunk of a bank."""
    guidelines = _VERBOSE if settings.retain_extraction_mode == "verbose" else _CONCISE
    if settings.retain_extraction_mode == "custom" and settings.retain_custom_instructions:
        guidelines = settings.retain_custom_instructions
    parts = [_TASK, guidelines]
    if settings.retain_mission:
        parts.append(f"What this memory is for: {settings.retain_mission}")
    parts.append(_SHAPE % (_CAUSES if settings.retain_extract_causal_links else ""))
    return "\n\n".join(parts)


def user(
    chunk: str,
    context: str | None,
    metadata: Mapping[str, str] | None,
    timestamp: datetime | None,
) -> str:
    """The content and what is known about it."""
    lines = []
    if timestamp is not None:
        lines.append(f"Time of the content: {timestamp:%A, %d %B %Y, %H:%M %Z}")
    if context:
        lines.append(f"Context: {context}")
    lines += [f"{key}: {value}" for key, value in (metadata or {}).items()]
    lines += ["Content:", chunk]
    return "\n".join(lines)
