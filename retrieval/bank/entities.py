"""Entities of a bank: their names, who mentions them, and which of them a question names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.csr import Csr, Inverted, spans
from retrieval.text.folding import fold
from retrieval.types import Bools, Ints


class EntityRow(Protocol):
    """An entity as written: its number, 16-byte id, canonical name, and what it was merged into."""

    @property
    def entity_no(self) -> int: ...
    @property
    def id(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def merged_into(self) -> int | None: ...


# Scripts written without spaces: each character is a word of its own, so a name is found inside
# running text. Han, kana, Hangul.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# A sign behind a word tells it apart: C, C++, C#.
_SPACED = rf"[^\W{_UNSPACED}]+(?:(?:\+{{1,2}}|#)(?!\w))?"
_WORD = re.compile(rf"[{_UNSPACED}]|{_SPACED}")
_WORD_OR_BREAK = re.compile(rf"[{_UNSPACED}]|{_SPACED}|\n")
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class _Names:
    """Normalised names of some entities, and the first words that any of them has."""

    entities: Mapping[str, tuple[int, ...]]
    heads: frozenset[str]
    longest: int

    @classmethod
    def of(cls, names: Sequence[str], numbers: Sequence[int]) -> _Names:
        if not names:
            return cls({}, frozenset(), 0)
        # One pass over all names at once: ten times faster than name by name. Those in ASCII
        # apart from the others, which take longer to fold.
        plain = [name.isascii() for name in names]
        lines = [""] * len(names)
        for ascii in (True, False):
            places = [i for i, own in enumerate(plain) if own is ascii]
            text = "\n".join(names[i].replace("\n", " ") for i in places)
            words = " ".join(_WORD_OR_BREAK.findall(fold(text))).split("\n")
            for place, line in zip(places, words, strict=bool(places)):
                lines[place] = line
        entities: dict[str, tuple[int, ...]] = {}
        for line, number in zip(lines, numbers, strict=True):
            name = line.strip()
            if name and name.count(" ") < _LONGEST_NAME:
                held = entities.get(name)
                entities[name] = (number,) if held is None else (*held, number)
        heads = frozenset(name.split(" ", 1)[0] for name in entities)
        longest = max((name.count(" ") + 1 for name in entities), default=0)
        return cls(entities, heads, longest)

    def merged(self, newer: _Names) -> _Names:
        both = {
            name: newer.entities.get(name, ()) for name in self.entities.keys() & newer.entities
        }
        entities = {**self.entities, **newer.entities}
        entities |= {name: self.entities[name] + more for name, more in both.items()}
        return _Names(entities, self.heads | newer.heads, max(self.longest, newer.longest))


@dataclass(slots=True)
class _Lexicon:
    """Names in tiers, largest first; made when first asked. Tiers never change."""

    tiers: tuple[_Names, ...] | None = None

    def find(self, words: Sequence[str]) -> list[int]:
        found: list[int] = []
        at, end = 0, len(words)
        tiers = self.tiers or ()
        while at < end:
            step = 1
            near = [t for t in tiers if words[at] in t.heads]
            if near:
                for length in range(min(max(t.longest for t in near), end - at), 0, -1):
                    name = " ".join(words[at : at + length])
                    named = [e for t in near for e in t.entities.get(name, ())]
                    if named:
                        found += named
                        step = length
                        break
            at += step
        return found


@dataclass(frozen=True, slots=True)
class Entities:
    """Entities by number (0 .. size - 1), merged ones folded into their survivor.

    `id` u1 (size, 16); `name` canonical names ("" where a number is not in use); `survivor` int32
    (size,): the number an entity goes by, itself where it was never merged; `df` int32 (size,):
    live memories that mention a survivor (0 for entities merged away).
    """

    id: NDArray[np.uint8]
    name: Sequence[str]
    survivor: Ints
    df: Ints
    live: Bools
    _into: Ints
    _merged: bool
    _units: Inverted[np.int32]
    _mentions: Csr[np.int32]
    _lexicon: _Lexicon = field(default_factory=_Lexicon)

    @classmethod
    def empty(cls) -> Entities:
        none = np.empty(0, np.int32)
        ids, nobody = np.empty((0, 16), np.uint8), np.empty(0, np.bool_)
        mentions = Csr.empty(np.int32)
        return cls(ids, [], none, none, nobody, none, False, Inverted(), mentions)

    def __len__(self) -> int:
        return len(self.survivor)

    @property
    def nbytes(self) -> int:
        # 120 bytes: a name as a string and as an entry of the lexicon.
        arrays = self.id.nbytes + self.survivor.nbytes + self.df.nbytes
        return arrays + self._units.nbytes + self._mentions.nbytes + 120 * len(self.name)

    def units_of(self, entities: Ints) -> tuple[Ints, Ints]:
        """(index into `entities`, ordinal): the live memories that mention each entity.

        Index ascending, then ordinal ascending. An entity merged away answers as its survivor.
        """
        if not self._merged:
            row, ordinal = self._units.lookup(entities)
            alive = self.live[ordinal]
            return row[alive], ordinal[alive]
        by_survivor = np.argsort(self.survivor, kind="stable")
        ordered = self.survivor[by_survivor]
        asked = self.survivor[entities]
        starts = np.searchsorted(ordered, asked)
        counts = np.searchsorted(ordered, asked, side="right") - starts
        member, asker = spans(starts, counts)
        row, ordinal = self._units.lookup(by_survivor[member])
        alive = self.live[ordinal]
        return _distinct(asker[row[alive]], ordinal[alive])

    def of_units(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into `ordinals`, entity number): the survivors each memory mentions."""
        row, entity = self._mentions.take(ordinals)
        if not self._merged:
            return row, entity
        return _distinct(row, self.survivor[entity])

    def surviving(self, numbers: Ints) -> Ints:
        """Entity numbers with merged ones replaced by their survivor; -1 stays -1."""
        if not self._merged:
            return numbers
        return np.where(numbers >= 0, self.survivor[np.maximum(numbers, 0)], numbers)

    def find(self, text: str) -> Ints:
        """The entities that a question names, in order of appearance, each once.

        Whole words, whatever their case and punctuation; at each word the longest name wins and
        takes its words with it. Names of merged entities find the survivor.
        """
        if self._lexicon.tiers is None:
            numbers = [n for n, name in enumerate(self.name) if name]
            self._lexicon.tiers = (_Names.of([self.name[n] for n in numbers], numbers),)
        found = self._lexicon.find(_WORD.findall(fold(text)))
        survivors = dict.fromkeys(int(self.survivor[n]) for n in found)
        return np.array([*survivors], np.int32)

    def extended(
        self,
        rows: Sequence[EntityRow],
        mention_counts: NDArray[np.int64],
        mentions: Ints,
        live: Bools,
    ) -> Entities:
        """With changed or new entity rows, and the mentions of new memories.

        `mention_counts` (m,) and `mentions`: the entity numbers of each new memory. `live` is the
        bank's newest, new memories included.
        """
        first = len(self._mentions)
        new = np.arange(first, first + len(mention_counts), dtype=np.int32)
        grown = replace(
            self._with_rows(rows, int(mentions.max(initial=-1)) + 1),
            live=live,
            _units=self._units.extended(mentions, np.repeat(new, mention_counts)),
            _mentions=self._mentions.extended(mention_counts, mentions),
        )
        if np.array_equal(self.survivor, grown.survivor[: len(self)]):
            gone = np.flatnonzero(self.live & ~live[:first])
            df = grown.df + grown._mentioned(new[live[first:]]) - grown._mentioned(gone)
        else:
            df = grown._mentioned(np.flatnonzero(live))
        df = df.astype(np.int32)
        df.flags.writeable = False
        return replace(grown, df=df)

    def _mentioned(self, ordinals: NDArray[np.integer]) -> NDArray[np.intp]:
        return np.bincount(self.of_units(ordinals.astype(np.int32))[1], minlength=len(self))

    def _with_rows(self, rows: Sequence[EntityRow], at_least: int) -> Entities:
        size = max(len(self), at_least, max((r.entity_no for r in rows), default=-1) + 1)
        if not rows and size == len(self):
            return self
        fresh = size - len(self)
        names = [*self.name, *([""] * fresh)]
        ids = np.concatenate([self.id, np.zeros((fresh, 16), np.uint8)])
        into = np.concatenate([self._into, np.arange(len(self), size, dtype=np.int32)])
        renamed = False
        for row in rows:
            number = row.entity_no
            renamed = renamed or (number < len(self) and names[number] != row.name)
            names[number] = row.name
            ids[number] = np.frombuffer(row.id, np.uint8)
            into[number] = number if row.merged_into is None else row.merged_into
        for array in (ids, into):
            array.flags.writeable = False
        tiers = None if renamed else self._lexicon.tiers
        if tiers is not None:
            new = [r.entity_no for r in rows if r.entity_no >= len(self)]
            tiers = _with_tier(tiers, _Names.of([names[n] for n in new], new))
        return replace(
            self,
            id=ids,
            name=names,
            survivor=_survivors(into),
            df=np.concatenate([self.df, np.zeros(fresh, np.int32)]),
            _into=into,
            _merged=bool(np.any(into != np.arange(size))),
            _lexicon=_Lexicon(tiers),
        )


def _survivors(into: Ints) -> Ints:
    """Where chains of merges end."""
    survivor = into
    for _ in range(len(into).bit_length()):  # each step halves a chain
        further = survivor[survivor]
        if np.array_equal(further, survivor):
            break
        survivor = further
    survivor.flags.writeable = False
    return survivor


def _with_tier(tiers: tuple[_Names, ...], new: _Names) -> tuple[_Names, ...]:
    """The tiers and one more; few in number, so that a name is looked up in few."""
    if not new.entities:
        return tiers
    tiers = (*tiers, new)
    while len(tiers) > 1 and len(tiers[-1].entities) * 2 > len(tiers[-2].entities):
        tiers = (*tiers[:-2], tiers[-2].merged(tiers[-1]))
    return tiers


def _distinct(row: NDArray[np.integer], value: Ints) -> tuple[Ints, Ints]:
    pairs = np.unique((row.astype(np.int64) << 32) | value)
    return (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
