"""The names of a write: who is mentioned where, with whom, and when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from retrieval.ingest.entities.similarity import collapse
from retrieval.ingest.facts import Mention
from retrieval.text import folding

NAME_LIMIT = 500
"""Characters of a name, and of its key."""

PAIRED = 16
"""Entities of one memory, in the order of first mention, that count as co-occurring."""

_REMEMBERED = 32
"""Facts of a name in one write whose co-occurring names and time are evidence for it."""


@dataclass(frozen=True, slots=True)
class FactMentions:
    """The names of one fact and when it happened."""

    mentions: Sequence[Mention]
    date: datetime | None


def distinct(mentions: Sequence[Mention]) -> tuple[Mention, ...]:
    """Mentions with tidy names, one per name as a reader sees it; `resolve` only if all say so.

    Names without a character that can be seen are none, nor are those whose key is too long.
    """
    found: dict[str, Mention] = {}
    for mention in mentions:
        name, key = collapse(mention.name), folding.key(mention.name)
        if not name or not 0 < len(key) <= NAME_LIMIT:
            continue
        known = found.get(key)
        found[key] = Mention(
            known.name if known else name,
            mention.resolve and (known is None or known.resolve),
            mention.label or (known is not None and known.label),
        )
    return tuple(found.values())


class EntityIndex:
    """The names of a write, by their folded keys."""

    def __init__(self, named_facts: Sequence[FactMentions]) -> None:
        keys = {m.name: folding.key(m.name) for s in named_facts for m in s.mentions}
        self.counts: Counter[str] = Counter()
        self.labels: set[str] = set()
        self.named = [[(keys[m.name], m.name) for m in s.mentions] for s in named_facts]
        self._dates = [named_fact.date for named_fact in named_facts]
        self._facts: dict[str, list[int]] = defaultdict(list)
        spellings: dict[str, Counter[str]] = defaultdict(Counter)
        literal: set[str] = set()
        for fact, named_fact in enumerate(named_facts):
            for mention in named_fact.mentions:
                key = keys[mention.name]
                self.counts[key] += 1
                spellings[key][mention.name] += 1
                self._facts[key].append(fact)
                if mention.label:
                    self.labels.add(key)
                if mention.label or not mention.resolve:
                    literal.add(key)
        self.spelling = {
            key: min(found, key=lambda name: (-found[name], name))
            for key, found in spellings.items()
        }
        self.resolvable = [key for key in self.spelling if key not in literal]

    def facts(self, key: str) -> list[tuple[list[str], datetime | None]]:
        """Of the first facts that mention the name: the names that co-occur, and the date."""
        return [
            ([other for other, _ in self.named[fact][:PAIRED] if other != key], self._dates[fact])
            for fact in self._facts[key][:_REMEMBERED]
        ]

    def apart(self, a: str, b: str) -> bool:
        """Does a fact mention both? Two names of one fact are two entities."""
        return not set(self._facts[a]).isdisjoint(self._facts[b])

    def beside(self, key: str, chosen: Mapping[str, int]) -> set[int]:
        """The entities that facts mention beside the name."""
        return {
            chosen[other]
            for fact in self._facts[key]
            for other, _ in self.named[fact]
            if other != key and other in chosen
        }

    def resolved(self, chosen: Mapping[str, int]) -> list[list[tuple[int, str]]]:
        """Per fact its (entity_no, name as given), each entity once, by its first name."""
        return [
            list({chosen[key]: name for key, name in reversed(named)}.items())[::-1]
            for named in self.named
        ]


class Counts:
    """How often and when entities were seen, and with whom."""

    def __init__(
        self,
        resolved: Sequence[Sequence[tuple[int, str]]],
        dates: Sequence[datetime | None],
    ) -> None:
        self.mentions: Counter[int] = Counter()
        self.first: dict[int, datetime] = {}
        self.last: dict[int, datetime] = {}
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.met: dict[tuple[int, int], datetime] = {}
        for entities, date in zip(resolved, dates, strict=True):
            numbers = [number for number, _ in entities]
            self.mentions.update(numbers)
            pairs = list(combinations(sorted(numbers[:PAIRED]), 2))
            self.pairs.update(pairs)
            if date is None:
                continue
            for number in numbers:
                self.first[number] = min(self.first.get(number, date), date)
                self.last[number] = max(self.last.get(number, date), date)
            for pair in pairs:
                self.met[pair] = max(self.met.get(pair, date), date)
