"""The memory that an event phrase means ("before Alice joined Google"), and its window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import Scan
from retrieval.keyword.bm25 import ScoredMatches
from retrieval.timex.expression import Relation
from retrieval.types import DAY_US, EPOCH, NO_TIME, Bools, FactType, Window

_TICK = timedelta(microseconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC) + _TICK
_LAST = datetime.max.replace(tzinfo=UTC) - _TICK
_LOOKED_AT = 10
"""Most similar dated memories of each type among which the event is looked for."""

_SIMILAR, _SIMILAR_WITH_WORDS = 0.62, 0.45
_WORDS = 0.5
_WORDS_COUNT = 0.3
"""Least similarity, alone or with at least half the words of the best match; what words add."""

_RIVAL = 0.05
_SAME_TIME = 30 * DAY_US
"""A memory that fits within so much of the best, but so far away in time, leaves in doubt which of
the two is meant."""


@dataclass(frozen=True, slots=True)
class Event:
    """The event: its memory, its first and last instant (aware, UTC), and how sure that is."""

    ordinal: int
    start: datetime
    end: datetime
    confidence: float


def find(bank: ResidentBank, scan: Scan, matches: ScoredMatches, allowed: Bools) -> Event | None:
    """The dated memory that a phrase means, among those allowed; None where that is in doubt.

    `scan` and `matches` are those of the phrase. The best by similarity must also share words with
    it, or be very similar, and have an occurred date, and no rival of another time may fit about as
    well: a wrong event would hide the answer.
    """
    columns = bank.columns
    dated = allowed & (columns.occurred_start != NO_TIME)
    hits = [scan.top(_LOOKED_AT, dated, kind) for kind in FactType]
    ordinals = np.concatenate([h.ordinals for h in hits])
    similarity = np.concatenate([h.scores for h in hits])
    most = float(matches.scores.max()) if len(matches) else 0.0
    share = matches.at(ordinals) / most if most > 0 else np.zeros(len(ordinals))
    sure = (similarity >= _SIMILAR) | ((similarity >= _SIMILAR_WITH_WORDS) & (share >= _WORDS))
    if not sure.any():
        return None
    score = np.where(sure, similarity + _WORDS_COUNT * share, -np.inf)
    best = int(score.argmax())
    apart = np.abs(columns.occurred_start[ordinals] - columns.occurred_start[ordinals[best]])
    if (apart[score >= score[best] - _RIVAL] > _SAME_TIME).any():
        return None
    ordinal = int(ordinals[best])
    start = _moment(columns.occurred_start[ordinal])
    end = columns.occurred_end[ordinal]
    return Event(
        ordinal,
        start,
        start if end == NO_TIME else max(start, _moment(end)),
        min(1.0, float(score[best]) / (1 + _WORDS_COUNT)),
    )


def window(event: Event, relation: Relation) -> Window:
    """The span that stands in this relation to the event.

    Before and after do not touch an event that has a length. One without took some part of its day
    (UTC): what happened during it happened that day, and what carries the very same instant may
    lie on either side of it.
    """
    start, end = event.start, event.end
    short = start == end
    if relation == "before":
        return Window(None, start if short else max(start, _FIRST) - _TICK)
    if relation == "until":
        return Window(None, end)
    if relation == "after":
        return Window(end if short else min(end, _LAST) + _TICK, None)
    if relation == "since":
        return Window(start, None)
    if short:
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
        end = start.replace(hour=23, minute=59, second=59, microsecond=999_999)
    return Window(start, end)


def _moment(microseconds: np.int64) -> datetime:
    return EPOCH + timedelta(microseconds=int(microseconds))
