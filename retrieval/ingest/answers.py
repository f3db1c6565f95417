"""Reading what an LLM answered: JSON facts, taken as far as they make sense."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from retrieval.errors import InvalidInput
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.ingest.sightings import NAME_LIMIT, distinct
from retrieval.store.edge import clean, parse_time
from retrieval.types import FactType, LinkType

_RELATIVE_DAYS = (
    ("last night", -1), ("yesterday", -1), ("tomorrow", 1), ("last week", -7), ("next week", 7),
    ("last month", -30), ("next month", 30), ("this week", 0), ("this month", 0), ("today", 0),
    ("this morning", 0), ("this afternoon", 0), ("this evening", 0), ("tonight", 0),
)  # fmt: skip
_RELATIVE = [(re.compile(rf"\b{words}\b", re.IGNORECASE), days) for words, days in _RELATIVE_DAYS]


def read(
    answer: str, timestamp: datetime | None, given: Sequence[Mention], *, causal: bool
) -> list[ExtractedFact]:
    """The facts of an answer, in its order; `given` mentions belong to every one of them.

    ValueError if there is no JSON object with a list of facts, or a fact says nothing.
    """
    start, end = answer.find("{"), answer.rfind("}")
    if start < 0 or end < start:
        raise ValueError("there is no JSON object in it")
    try:
        found = orjson.loads(answer[start : end + 1])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    facts = found.get("facts")
    if not isinstance(facts, list) or not all(isinstance(fact, dict) for fact in facts):
        raise ValueError('"facts" is no list of objects')
    return [_fact(fact, i, timestamp, given, causal) for i, fact in enumerate(facts)]


def _fact(
    fact: Mapping[str, Any],
    place: int,
    timestamp: datetime | None,
    given: Sequence[Mention],
    causal: bool,
) -> ExtractedFact:
    what = _text(fact.get("what"))
    if not what:
        raise ValueError(f'fact {place} has no "what"')
    when, who, why = (_text(fact.get(name)) for name in ("when", "who", "why"))
    text = " | ".join(
        part for part in (what, when and f"When: {when}", who and f"Involving: {who}", why) if part
    )
    start = end = None
    if fact.get("kind") == "event":
        start = _time(fact.get("occurred_start")) or _inferred(text, timestamp)
        end = _time(fact.get("occurred_end")) or start
        if start is None or (end is not None and end < start):
            end = start
    own = fact.get("fact_type") in ("experience", "assistant", "agent")
    names = fact.get("entities") or []
    mentions = [Mention(name) for entry in names if (name := _name(entry))]
    return ExtractedFact(
        text=text,
        fact_type=FactType.EXPERIENCE if own else FactType.WORLD,
        occurred_start=start,
        occurred_end=end,
        mentions=distinct([*given, *mentions]),
        links=_links(fact.get("caused_by"), place) if causal else (),
    )


def _text(value: Any) -> str:
    """A text that says something; models write "N/A" for none."""
    if not isinstance(value, str):
        return ""
    value = clean(value).strip()
    return "" if value.lower() in ("", "n/a", "none", "null", "unknown") else value


def _name(entry: Any) -> str:
    name = entry.get("text") or entry.get("name") if isinstance(entry, dict) else entry
    return _text(name)[:NAME_LIMIT]


def _time(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value, "occurred")
    except InvalidInput:
        return None


def _inferred(text: str, timestamp: datetime | None) -> datetime | None:
    """The day that a relative word in the text means, on the clocks of the timestamp: as a day of
    the calendar, so at midnight UTC."""
    if timestamp is None:
        return None
    for words, days in _RELATIVE:
        if words.search(text):
            day = timestamp.date() + timedelta(days=days)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
    return None


def _links(value: Any, place: int) -> tuple[tuple[int, LinkType], ...]:
    """Causes among the earlier facts; anything else that a model may write is left out."""
    if not isinstance(value, list):
        return ()
    causes = {n for n in value if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < place}
    return tuple((cause, LinkType.CAUSED_BY) for cause in sorted(causes))
