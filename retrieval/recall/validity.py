"""Whether memories still hold: what matters to a question about how things are now."""

from __future__ import annotations

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.types import DAY_US, NO_TIME, Bools, Ints, LinkType, Longs


def superseded(bank: ResidentBank, ordinals: Ints, now: int, visible: Bools) -> Bools:
    """bool (n,): which of these memories do not hold at `now` (microseconds), as far as the
    `visible` ones (bool (size,)) tell.

    The memory begins later; or it is a span longer than a day that ended before (a day's event is
    no state that could end); or it is replaced: a memory about the same subject says nearly the
    same (a semantic link joins the two) and is dated at least a day later, up to now.
    """
    columns = bank.columns
    start, end = columns.occurred_start[ordinals], columns.occurred_end[ordinals]
    known = (start != NO_TIME) & (end != NO_TIME)
    ended: Bools = known & (end < now) & (end - start > DAY_US)
    return ended | (start > now) | _replaced(bank, ordinals, now, visible)


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
