"""How alike two names are. Pure.

The score is 0.5 x name + 0.3 x company + 0.2 x recency: the sequence-matcher ratio of the
lower-cased names, the share of the fact's other names that the candidate is known to appear
with, and how recently it was seen (nothing after a week). Above 0.6 the candidate is meant.
Names that differ in punctuation only are one, whatever the rest says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from functools import lru_cache

ACCEPT = 0.6
_NAME, _COMPANY, _RECENCY = 0.5, 0.3, 0.2
_RECENT_DAYS = 7.0
_SPELLING = 0.9

_DROPPED = re.compile(r"(?<!\d)[.,](?!\d)|(?<=\d)[.,](?!\d)|(?<!\d)[.,](?=\d)|['’‘`\"“”()\[\]!?;]")
_SPACED = re.compile(r"[-‐‑–—_/\s]+")
_DIGITS = re.compile(r"\d+")
_TRIGRAM_WORD = re.compile(r"\w+")


def collapse(name: str) -> str:
    """The name with runs of white space as one space, and none around it."""
    return " ".join(name.split())


@lru_cache(maxsize=65536)
def ratio(a: str, b: str) -> float:
    """Sequence-matcher ratio of the lower-cased names, 0 to 1."""
    return SequenceMatcher(None, a.lower(), b.lower()).ratio()


@lru_cache(maxsize=65536)
def bare(name: str) -> str:
    """The lower-cased name without punctuation; marks that tell names apart (C++, C#) stay."""
    return _SPACED.sub(" ", _DROPPED.sub("", name.lower())).strip()


def same_spelling(a: str, b: str) -> bool:
    """Do the names differ in punctuation only?"""
    left, right = bare(a), bare(b)
    return (
        bool(left) and set(left.split()) == set(right.split()) and ratio(left, right) >= _SPELLING
    )


def recency(date: datetime | None, last_seen: datetime | None) -> float:
    if date is None or last_seen is None:
        return 0.0
    days = abs((date - last_seen).total_seconds()) / 86400
    return 1.0 - days / _RECENT_DAYS if days < _RECENT_DAYS else 0.0


def score(name: str, candidate: str, company: float, recency: float) -> float:
    """0 to 1; `company` and `recency` are shares in 0 to 1."""
    if same_spelling(name, candidate):
        return 1.0
    return _NAME * ratio(name, candidate) + _COMPANY * company + _RECENCY * recency


@lru_cache(maxsize=65536)
def trigrams(name: str) -> frozenset[str]:
    """The trigrams of pg_trgm: per word, with two blanks before and one behind."""
    found: set[str] = set()
    for word in _TRIGRAM_WORD.findall(name.lower()):
        padded = f"  {word} "
        found.update(padded[i : i + 3] for i in range(len(padded) - 2))
    return frozenset(found)


def overlap(a: str, b: str) -> float:
    """Jaccard similarity of the names' trigrams."""
    left, right = trigrams(a), trigrams(b)
    return len(left & right) / len(left | right) if left and right else 0.0


def numbered_apart(a: str, b: str) -> bool:
    """Do the names hold different numbers ("Sprint 11", "Sprint 12")?"""
    return _DIGITS.findall(a) != _DIGITS.findall(b)


def cluster(
    names: Sequence[str],
    counts: Mapping[str, int],
    apart: frozenset[frozenset[str]],
    threshold: float,
    most: int = 250,
) -> dict[str, str]:
    """Each new name to the spelling that stands for it: the most mentioned of its cluster.

    Names are joined transitively where their trigrams overlap by `threshold`; never two that hold
    different numbers or that are `apart` (two names of one fact). More than `most` names stay as
    they are. The result does not depend on the order of `names`.
    """
    if len(names) > most:
        return {name: name for name in names}
    ordered = sorted(names)
    pairs = sorted(
        ((overlap(a, b), a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    group: dict[str, set[str]] = {name: {name} for name in ordered}
    for similarity, a, b in pairs:
        if similarity < threshold:
            break
        left, right = group[a], group[b]
        if left is right or any(
            numbered_apart(x, y) or frozenset((x, y)) in apart for x in left for y in right
        ):
            continue
        left |= right
        for name in right:
            group[name] = left
    return {
        name: min(members, key=lambda n: (-counts.get(n, 0), n)) for name, members in group.items()
    }
