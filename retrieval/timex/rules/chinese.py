"""What only Chinese tells by other words in the sentence: whether it is over, what 号 numbers."""

from __future__ import annotations

import re
from functools import lru_cache

from retrieval.timex.engine.grammar import OTHER, Context, Match, any_of
from retrieval.timex.engine.text import Piece

_DONE = re.compile("[了过曾](?!去|年|来)")
_PLANNED = re.compile("将|打算|计划|准备|快要|就要")
_UNITS = frozenset("年月周")
_RELATIVE = any_of("REL YEAROFF MONTHOFF WEEKOFF")
_BEFORE_NUMBERED = frozenset("我你他她它们在自于跟就等那当定约改推迟延前提了过会")


def told_in_the_past(context: Context) -> bool:
    """Whether a sentence says that something is over: 了, 过, 曾."""
    if "weekday_of_this_week" not in context.options:
        return False
    return _told(context.text)


@lru_cache(maxsize=8)
def _told(text: str) -> bool:
    """Kept for the text that is read: it may name many weekdays."""
    return _DONE.search(text) is not None and _PLANNED.search(text) is None


def is_ago(piece: Piece, kind: str, previous: Piece) -> bool:
    """Whether 前 ends "years ago" behind a unit, and begins no 前天 or 前日: "三年前日本"."""
    return piece.text == "前" and previous.text in _UNITS and kind in _RELATIVE


def is_name(context: Context, m: Match) -> bool:
    """Whether 号 numbers a ship or a line, as it does days: 玉兔二号 is a name."""
    before = m.before
    return (
        "numbered_names" in context.options
        and before is not None
        and before.kind == OTHER
        and before.end == m.tokens[0].start
        and before.text not in _BEFORE_NUMBERED
    )
