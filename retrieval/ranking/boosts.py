"""Strategy boosts: an operator prefers some arms.

Stage 1 orders candidates before the reranker's cap: a boosted arm's ranks are divided, so rank r
of a boosted arm beats rank s of another exactly when r < divisor * s. Stage 2 adds a flat amount
after scoring. Ranks are divided rather than scores multiplied, because a multiplied arm would fill
the whole cap with its own tail.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from retrieval.ranking import leaders
from retrieval.ranking.fusion import Candidates, rank_scores
from retrieval.types import Arm, Bools, Doubles, Ints

_log = logging.getLogger(__name__)

_LEVELS = {"low": (2.0, 0.05), "medium": (4.0, 0.20), "high": (8.0, 0.50)}
"""Level -> (rank divisor of stage 1, addend of stage 2)."""


@dataclass(frozen=True, slots=True)
class Boosts:
    """divisors float64 (4,), addends float64 (4,), and the levels as read, by arm."""

    divisors: Doubles
    addends: Doubles
    levels: dict[str, str]

    def __bool__(self) -> bool:
        return bool(self.levels)


def parse(text: str) -> Boosts:
    """Reads "graph:high, bm25". Unknown arms or levels are warned about and skipped; the last
    of several entries for one arm wins; a missing level means medium."""
    levels: dict[str, str] = {}
    arms = {arm.wire for arm in Arm}
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        arm, _, level = (piece.strip() for piece in entry.partition(":"))
        level = level or "medium"
        if arm not in arms or level not in _LEVELS:
            _log.warning("strategy boost %r skipped: use arm:low|medium|high", entry)
            continue
        levels[arm] = level
    divisors, addends = np.ones(len(Arm)), np.zeros(len(Arm))
    for arm, level in levels.items():
        divisors[Arm[arm.upper()]], addends[Arm[arm.upper()]] = _LEVELS[level]
    return Boosts(divisors, addends, levels)


def cut(
    found: Candidates,
    boosts: Boosts,
    cap: int,
    *,
    by_rank: bool = True,
    last: Bools | None = None,
) -> Candidates:
    """At most `cap` candidates for the reranker, best boosted fusion score first.

    A pool within the cap is left in its order: a reranker reads all of it anyway. The first of
    every arm stays, in the place of the last that lead nothing. `last` bool (c,): those that stay
    only where there is room, and lead nothing. Where the order
    was not made from ranks (`by_rank` false), a candidate's place in it takes the part of the other
    arms' ranks: rank r of a boosted arm beats place s exactly when r < divisor * s.
    """
    if len(found) <= cap:
        return found
    if not boosts:
        return found.take(_first(np.arange(len(found), dtype=np.int32), found, cap, last))
    if by_rank:
        key = -rank_scores(found.ranks, boosts.divisors)
    else:
        boosted = (found.ranks > 0) & (boosts.divisors > 1)
        own = np.where(boosted, found.ranks / boosts.divisors, np.inf).min(axis=1)
        key = np.minimum(np.arange(1, len(found) + 1), own)
    return found.take(_first(np.argsort(key, kind="stable").astype(np.int32), found, cap, last))


def _first(order: Ints, found: Candidates, cap: int, last: Bools | None) -> Ints:
    cap, leads = max(cap, 0), leaders.first(found.ranks, last)
    if last is None:
        return leaders.kept(order, leads, cap)[:cap]
    behind = order[np.argsort(last[order], kind="stable")]
    kept = np.isin(order, leaders.kept(behind, leads, cap)[:cap])
    return order[kept]


def addends(found: Candidates, boosts: Boosts) -> Doubles:
    """What stage 2 adds to each candidate's weight, float64 (c,)."""
    return (found.ranks > 0) @ boosts.addends
