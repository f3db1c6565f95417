"""Whether memories still hold: what matters to a question about how things are now."""

from __future__ import annotations

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.types import DAY_US, NO_TIME, Bools, FactType, Ints, LinkType, Longs


def superseded(bank: ResidentBank, ordinals: Ints, now: int, visible: Bools) -> Bools:
    """bool (n,): which of these memories do not hold at `now` (microseconds), as far as the
    `visible` ones (bool (size,)) tell.

    The memory begins later; or it is a span longer than a day that ended before (a day's event is
    no state that could end); or it is replaced: a memory about the same subject says nearly the
    same (a semantic link joins the two) and is dated at least a day later, up to now. An
    observation with a time of its own holds within that, whenever its sources happened; a memory is
    superseded where observations made from it are, and none of them holds.
    """
    columns = bank.columns
    start, end = columns.occurred_start[ordinals], columns.occurred_end[ordinals]
    known = (start != NO_TIME) & (end != NO_TIME)
    span: Bools = known & (end < now) & (end - start > DAY_US) & ~_made(bank, ordinals)
    past = span | (start > now) | _replaced(bank, ordinals, now, visible)
    if not len(columns.timed):
        return past
    past[timed(bank, ordinals)] = False
    return past | ended(bank, ordinals, now) | _told(bank, ordinals, now, visible)


def ended(bank: ResidentBank, ordinals: Ints, now: int) -> Bools:
    """bool (n,): which of these memories are known not to hold at `now`, by their own time."""
    columns = bank.columns
    since, until = columns.valid_from[ordinals], columns.valid_until[ordinals]
    past: Bools = ((until != NO_TIME) & (until <= now)) | (since > now)
    return past


def timed(bank: ResidentBank, ordinals: Ints) -> Bools:
    """bool (n,): of which of these memories it is known from when or until when they hold."""
    columns = bank.columns
    known: Bools = columns.valid_from[ordinals] != NO_TIME
    known |= columns.valid_until[ordinals] != NO_TIME
    return known


def _made(bank: ResidentBank, ordinals: Ints) -> Bools:
    """Which are observations made from memories: their dates are those of the evidence."""
    sources = bank.columns.sources
    kind: Bools = bank.columns.fact_type[ordinals] == FactType.OBSERVATION
    return kind & (np.diff(sources.ptr)[ordinals] > 0)


def _told(bank: ResidentBank, ordinals: Ints, now: int, visible: Bools) -> Bools:
    """Memories from which observations were made that are over, and none that holds."""
    index, observation = bank.observations_of(ordinals)
    seen = visible[observation]
    index, observation = index[seen], observation[seen]
    gone = ended(bank, observation, now)
    past, holds = np.zeros(len(ordinals), np.bool_), np.zeros(len(ordinals), np.bool_)
    past[index[gone]] = True
    holds[index[~gone]] = True
    return past & ~holds


def _replaced(bank: ResidentBank, ordinals: Ints, now: int, visible: Bools) -> Bools:
    old: Bools = np.zeros(len(ordinals), np.bool_)
    links = bank.links.neighbours(ordinals, (LinkType.SEMANTIC,))
    mine, theirs = ordinals[links.row], links.target
    before, after = _dates(bank, mine), _dates(bank, theirs)
    same = (bank.subject[mine] >= 0) & (bank.subject[mine] == bank.subject[theirs])
    same &= visible[theirs]
    dated = (before != NO_TIME) & (after != NO_TIME) & (after <= now)
    old[links.row[same & dated & (np.where(dated, after - before, 0) >= DAY_US)]] = True
    return old


def _dates(bank: ResidentBank, ordinals: Ints) -> Longs:
    """When each happened, else when it was said."""
    start, said = bank.columns.occurred_start[ordinals], bank.columns.mentioned_at[ordinals]
    return np.where(start != NO_TIME, start, said)
