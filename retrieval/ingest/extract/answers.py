"""Reading what a language model extracted: each fact taken as far as it makes sense.

An item that says nothing, or says numbers that its sources do not hold, is bad. Where at least four
fifths are good they are kept; where fewer are, the model is asked again, told why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.ingest.entities.mentions import NAME_LIMIT, distinct
from retrieval.ingest.extract import dates, labels
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.llm.grounding import invented_numbers
from retrieval.llm.reading import NoJson, json_object, list_of, text_of
from retrieval.store.edge import parse_time
from retrieval.types import FactType, LinkType, Window

GOOD_SHARE = 0.8
FACTS = 500
"""More facts than this in one answer are not read."""
TEXT_CHARS = 4000
NAMES = 30
CAUSES = 2
YEARS_BEFORE, YEARS_AFTER = 150, 20
"""How far from the content's own year a fact can have happened."""
INFERRED = timedelta(days=31)
"""A longer time that a text names says too little about when, where the model gave no date."""

_OWN = {"assistant", "agent", "experience"}
_EVENT = {"event", "conversation"}

_RELATIVE_DAYS = (
    ("last night", -1), ("yesterday", -1), ("tomorrow", 1), ("last week", -7), ("next week", 7),
    ("last month", -30), ("next month", 30), ("this week", 0), ("this month", 0), ("today", 0),
    ("this morning", 0), ("this afternoon", 0), ("this evening", 0), ("tonight", 0),
)  # fmt: skip
_RELATIVE = [(re.compile(rf"\b{words}\b", re.IGNORECASE), days) for words, days in _RELATIVE_DAYS]


@dataclass(frozen=True, slots=True)
class FactReader:
    """Reads the answers about one chunk.

    `sources` is all text that the model was shown: numbers and names of its facts must stand there;
    `content` is what of it the facts are to be taken from.
    """

    sources: str
    content: str
    timestamp: datetime | None
    groups: Sequence[labels.Group] = ()
    causal: bool = True
    free_names: bool = True
    translated: bool = False
    dropped: list[str] = field(default_factory=list)
    """Why items were left out of the answer that was taken."""

    def read(self, text: str, last: bool) -> list[ExtractedFact]:
        """The facts of an answer, in its order. NoJson where too few items are good."""
        found = json_object(text)
        items = found.get("facts")
        if not isinstance(items, list):
            raise NoJson('"facts" is not a list')
        good: list[tuple[int, ExtractedFact, list[int]]] = []
        bad: list[str] = []
        for place, item in enumerate(items[:FACTS]):
            try:
                if not isinstance(item, Mapping):
                    raise NoJson("is not an object")
                good.append((place, self._fact(item), self._causes(item, place)))
            except NoJson as error:
                bad.append(f"fact {place} {error}")
        if bad and len(good) < GOOD_SHARE * (len(good) + len(bad)):
            raise NoJson("; ".join(bad[:5]))
        self.dropped[:] = bad
        if len(good) == 1:
            good = [(place, self._only(fact), causes) for place, fact, causes in good]
        places = {place: at for at, (place, _, _) in enumerate(good)}
        return [
            replace(
                fact,
                links=tuple((places[c], LinkType.CAUSED_BY) for c in causes if c in places),
            )
            for _, fact, causes in good
        ]

    def _fact(self, item: Mapping[str, Any]) -> ExtractedFact:
        what = text_of(item.get("what"), TEXT_CHARS)
        if not re.search(r"\w", what):
            raise NoJson('has no "what"')
        when, where, who, why = (
            text_of(item.get(name), TEXT_CHARS // 4) for name in ("when", "where", "who", "why")
        )
        involved = "; ".join(part for part in (who, where) if part)
        text = " | ".join(
            part
            for part in (what, when and f"When: {when}", involved and f"Involving: {involved}", why)
            if part
        )
        start, end = self._dates(item, text)
        self._check_numbers("\n".join((what, who, why)), start, end)
        names, tags = labels.read(item.get("labels"), self.groups)
        mentions = [Mention(name, resolve=False, label=True) for name in names]
        if self.free_names:
            given = list_of(item.get("entities"))[: 2 * NAMES]
            known = (name for entry in given if (name := _name(entry)) and self._named(name))
            mentions += [Mention(name) for name in list(dict.fromkeys(known))[:NAMES]]
        return ExtractedFact(
            text=text,
            fact_type=FactType.EXPERIENCE
            if str(item.get("fact_type")).casefold() in _OWN
            else FactType.WORLD,
            occurred_start=start,
            occurred_end=end,
            mentions=distinct(mentions),
            tags=tuple(tags),
        )

    def _only(self, fact: ExtractedFact) -> ExtractedFact:
        """The only fact of a content that names one time happened then, whatever date it was given,
        unless its own words say when."""
        if dates.spoken(fact.text, self.timestamp):
            return fact
        start, end = self._by_grammar(self.content, fact.occurred_start, fact.occurred_end)
        return replace(fact, occurred_start=start, occurred_end=end)

    def _dates(self, item: Mapping[str, Any], text: str) -> tuple[datetime | None, datetime | None]:
        """An event's end is its start where it has none; a state may be open on either side."""
        kind = item.get("fact_kind") or item.get("kind")
        event = str(kind).casefold() in _EVENT
        start = self._time(item.get("occurred_start"))
        end = self._time(item.get("occurred_end"))
        if event and start is None:
            start, end = self._inferred(text, end)
        start, end = self._by_grammar(text, start, end)
        if start is not None and end is not None and end < start:
            end = None
        if event and end is None:
            end = start
        return start, end

    def _time(self, value: Any) -> datetime | None:
        if not isinstance(value, str):
            return None
        try:
            time = parse_time(value, "occurred")
        except InvalidInput:
            return None
        about = (self.timestamp or datetime.now(UTC)).year
        return time if -YEARS_BEFORE <= time.year - about <= YEARS_AFTER else None

    def _inferred(self, text: str, end: datetime | None) -> tuple[datetime | None, datetime | None]:
        """The days that a relative word in the text means: dates, whatever the content's offset."""
        if self.timestamp is None:
            return end, end
        for words, away in _RELATIVE:
            if words.search(text):
                day = self.timestamp + timedelta(days=away)
                return datetime(day.year, day.month, day.day, tzinfo=UTC), end
        window = dates.the_one(dates.spoken(text, self.timestamp))
        if window is not None:
            days = dates.dated(window, self.timestamp)
            if days.start and days.end and days.end - days.start < INFERRED:
                return days.start, end or _last(days.start, days.end)
        return end, end

    def _by_grammar(
        self, text: str, start: datetime | None, end: datetime | None
    ) -> tuple[datetime | None, datetime | None]:
        """Where the text holds exactly one time that our own grammar reads, and the given one lies
        outside it, the grammar wins."""
        if start is None:
            return start, end
        window = dates.the_one(dates.spoken(text, self.timestamp))
        if window is None:
            return start, end
        days = dates.dated(window, self.timestamp)
        first, last = days.start, days.end
        if first is None or last is None or _holds(window, start) or _holds(days, start):
            return start, end
        return first, _last(first, last)

    def _check_numbers(self, text: str, start: datetime | None, end: datetime | None) -> None:
        """Numbers that nobody said are invented; those of a date that was worked out are not. A
        single digit may be a word of the content."""
        if self.translated:
            return
        known = (start, end, self.timestamp)
        found = invented_numbers(text, [self.sources], reference_time=self.timestamp, dates=known)
        if wrong := sorted(number for number in found if len(number) > 1):
            raise NoJson(f"says {wrong[0]}, which the content does not")

    def _named(self, name: str) -> bool:
        """Whether a name stands in what the model was shown, wholly or by one of its words."""
        if self.translated:
            return True
        held = self.sources.casefold()
        name = name.casefold()
        return name in held or any(
            len(word) > 1 and word in held for word in re.findall(r"\w+", name)
        )

    def _causes(self, item: Mapping[str, Any], place: int) -> list[int]:
        """Places of earlier facts; anything else that a model may write is left out."""
        if not self.causal:
            return []
        found = []
        for entry in list_of(item.get("causal_relations")) + list_of(item.get("caused_by")):
            target = entry.get("target_index") if isinstance(entry, Mapping) else entry
            if (
                isinstance(entry, Mapping)
                and entry.get("relation_type", "caused_by") != "caused_by"
            ):
                continue
            if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < place:
                found.append(target)
        return sorted(set(found))[:CAUSES]


def _holds(window: Window, time: datetime) -> bool:
    return (window.start is None or window.start <= time) and (
        window.end is None or time <= window.end
    )


def _last(first: datetime, last: datetime) -> datetime:
    """The end of an event: of one day, the date itself."""
    return first if last - first < timedelta(days=1) else last


def _name(entry: Any) -> str:
    name = entry.get("text") or entry.get("name") if isinstance(entry, Mapping) else entry
    name = text_of(name, NAME_LIMIT + 1)
    return name if len(name) <= NAME_LIMIT else ""
