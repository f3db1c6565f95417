"""What only Dutch writes so: "de 25e" by itself, for the 25th."""

from __future__ import annotations

import re

from retrieval.timex.engine.grammar import OTHER, Context, Match, Rules, Span
from retrieval.timex.rules.dates import numbered_day

DUTCH = Rules()

_ORDERED_BY = frozenset(
    {"was", "is", "werd", "wordt", "zijn", "waren", "werden", "als", "eindigde"}
)
"""What stands before the rank of somebody: "Wie werd de 3e?"."""

_GOES_ON = re.compile(
    r"(?:ge|be|ver|af|aan|in|op|uit|mee|voor)\w{2,20}(?:d|t|en)|met|bij|om|in|voor|naar|al|nog|weer|"
    r"niet|thuis|vrij|jarig"
)


@DUTCH("day of the month", "THE ORD (?= X | STOP | DOT | COMMA | PART | $)")
def _numbered(context: Context, m: Match) -> Span | None:
    number, before, after = m.all("ORD")[0], m.before, m.after
    if context.language != "nl" or not number.text:
        return None
    if before is not None and before.text in _ORDERED_BY:
        return None
    if after is not None and after.kind == OTHER and _GOES_ON.fullmatch(after.text) is None:
        return None  # "de 3e man"
    return numbered_day(context, number)
