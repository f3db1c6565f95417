"""Rules for spans between two times, and for spans that are open on one side."""

from __future__ import annotations

from datetime import date

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import amounts, moved, plausible
from retrieval.timex.engine.grammar import (
    Context,
    Match,
    Rules,
    Span,
    Token,
    change,
    chars_of,
    kind_of,
)
from retrieval.timex.rules.dates import exact
from retrieval.timex.rules.relative import DURATION

RANGES = Rules()
OPEN = Rules()

NUMBERS = Rules()
"""Ranges in digits alone, read before their ends are by themselves."""

_D = "(DATE | YEAR YMARK? | NOW)"
_FILL = "(THE|ON|IN|OF|COMMA|UYEAR|UNTIL|TO)*"
_TAIL = "(TO|UNTIL|PUNTIL|DASH|OF|PBETWEEN|LOC)*"


def _ends(context: Context, m: Match) -> list[Span] | None:
    """The two ends; a lone number counts where it is plausible as a year."""
    ends: list[Span] = []
    for token in m.tokens:
        if isinstance(token.value, Span):
            ends.append(token.value)
        elif token.kind in chars_of("NOW"):
            ends.append(exact(context.today, relative=True))
        elif token.kind in chars_of("YEAR"):
            if not isinstance(token.value, int) or not plausible(context, token.value):
                return None
            ends.append(Span(*days.year(token.value), "year", 0.9, explicit=True))
    return ends


@RANGES("between", f"BETWEEN {_FILL} {_D} DOT? COMMA? (AND|TO|DASH|UNTIL) {_FILL} {_D}")
@RANGES("between", f"{_D} (AND|TO|DASH|OF) {_D} OF? PBETWEEN")
@RANGES("from to", f"FROM {_FILL} {_D} DOT? COMMA? (TO|DASH|UNTIL|AND) {_FILL} {_D} {_TAIL}")
@RANGES("from to", f"SINCE {_FILL} {_D} COMMA? (TO|UNTIL) {_FILL} {_D} {_TAIL}")
@RANGES("from to", f"{_D} LOC? FROM (TO|DASH|OF)? {_FILL} {_D} {_TAIL}")
@RANGES("from to", f"{_D} DOT? (DASH|TO|UNTIL) {_FILL} {_D} {_TAIL}")
def _range(context: Context, m: Match) -> Span | None:
    ends = _ends(context, m)
    if ends is None or len(ends) != 2:
        return None
    return between(context, ends[0], ends[1])


@RANGES("two days", "DATE AND THE? DATE (?! AND)")
def _two_days(context: Context, m: Match) -> Span | None:
    """ "Monday and Tuesday": days that follow each other are one span."""
    first, second = m.spans()
    if first.grain != "day" or second.grain != "day" or first.first is None:
        return None
    if first.first != first.last or second.first != second.last:
        return None
    if second.first != days.plus_days(first.first, 1):
        return None
    return change(first, last=second.last)


@RANGES(
    "from to", "(FROM|BETWEEN)? DATE (TO|UNTIL|AND) THE? DOM (?! UNIT|UTIME|NUM|OF|MON|DASH|CLOCK)"
)
@RANGES("from to", "(FROM|BETWEEN)? DATE (TO|UNTIL|AND) NUM DASH NUM (?! UNIT | DASH)")
def _shared_month(context: Context, m: Match) -> Span | None:
    """ "2026-07-25 to 28": what the second leaves out is as in the first."""
    start = m.spans()[0]
    if start.rule != "numeric date" or start.first is None or start.first != start.last:
        return None
    if m.has("AND") and not m.has("BETWEEN"):
        return None
    numbers = [int(token.text) for token in m.all("DOM") if len(token.text) <= 2 and token.text]
    if len(numbers) != len(m.all("DOM")):
        return None
    year, month, day = [start.first.year, start.first.month, 0][: 3 - len(numbers)] + numbers
    last = days.day(year, month, day)
    return change(start, last=last, rule="from to") if last > start.first else None


@NUMBERS("from to", f"(FROM|BETWEEN)? THE? MD DOT? (TO|UNTIL|DASH) THE? DATE {_TAIL}")
@NUMBERS("from to", f"(FROM|BETWEEN) THE? (ORD | NUM DOT?) (TO|UNTIL|DASH|AND) THE? DATE {_TAIL}")
def _up_to_a_date(context: Context, m: Match) -> Span | None:
    """German "vom 3.5. bis 7.5.2024", "vom 3. bis 7.5.2024": the end says month and year."""
    end = m.spans()[-1]
    if end.rule != "numeric date" or end.last is None:
        return None
    if m.has("MD"):
        first = _with_year(m.spans()[0], end.last.year)
        if first > end.last:
            first = _with_year(m.spans()[0], end.last.year - 1)
    else:
        number = m.all("ORD", "NUM")[0]
        if not number.text:
            return None
        first = days.day(end.last.year, end.last.month, m.number("ORD", "NUM"))
    return change(end, first=first, rule="from to") if first < end.last else None


@NUMBERS("from to", f"(FROM|BETWEEN)? MD (FROM|TO|UNTIL|DASH|AND) MD (COMMA? YEAR)? {_TAIL}")
def _days_and_months(context: Context, m: Match) -> Span | None:
    first, last = m.spans()
    if (
        (m.has("AND") and not m.has("BETWEEN", "PBETWEEN"))
        or first.month is None
        or last.month is None
    ):
        return None
    if not m.has("YEAR"):
        return between(context, first, last)
    year = m.number("YEAR")
    end = days.day(year, last.month, last.day or 1)
    begin = days.day(year, first.month, first.day or 1)
    if begin > end:
        begin = days.day(year - 1, first.month, first.day or 1)
    return Span(begin, end, "day", 0.9, explicit=True)


@RANGES("from to", f"(FROM | OF) {_FILL} DATE DATE")
def _parts_of_months(context: Context, m: Match) -> Span | None:
    """Spanish "de finales de mayo a principios de junio": the "a" belongs to the part."""
    start, end = m.spans()
    return between(context, start, end) if start.part and end.part else None


def between(context: Context, start: Span, end: Span) -> Span | None:
    """From the first day of one span to the last day of the other.

    What the writer left out is taken from the other end: "Nov to Feb 2017" starts in 2016, "from
    May to October 2020" in 2020. Where both lack the year, the range is the latest that has begun.
    """
    if start.first is None or end.last is None:
        return None
    first, last = start.first, end.last
    if start.event_year is not None and end.explicit and end.first is not None:
        first = start.event_year(end.first.year)[0]
        if first > last:
            first = start.event_year(end.first.year - 1)[0]
    elif end.event_year is not None and last < first:
        last = end.event_year(first.year)[1]
        if last < first:
            last = end.event_year(first.year + 1)[1]
    if start.weekday is not None and end.weekday is not None and start.relative == end.relative:
        last = days.plus_days(first, (end.weekday - start.weekday) % 7)
    elif end.weekday is not None and start.grain in ("day", "week"):
        last = days.plus_days(first, (end.weekday - first.weekday()) % 7)
    elif start.month is not None and end.month is None and end.first is not None:
        first = _with_year(start, end.first.year)
        if first > last:
            first = _with_year(start, end.first.year - 1)
    elif end.month is not None:
        last = _last_with_year(end, first.year)
        if last < first:
            last = _last_with_year(end, first.year + 1)
    elif end.day is not None and end.month is None and start.grain == "day":
        last = days.day(first.year, first.month, end.day)
        if last < first:
            following = days.plus_months(first.replace(day=1), 1)
            last = days.day(following.year, following.month, end.day)
    if last < first:
        return None
    grain = start.grain if start.grain == end.grain else "day"
    confidence = min(start.confidence, end.confidence)
    return Span(first, last, grain, confidence, explicit=start.explicit and end.explicit)


def _with_year(span: Span, year: int) -> date:
    assert span.month is not None
    if span.part and span.first is not None:
        return days.day(year, span.month, span.first.day)
    return days.day(year, span.month, span.day or 1)


def _last_with_year(span: Span, year: int) -> date:
    assert span.month is not None
    if span.day is not None:
        return days.day(year, span.month, span.day)
    if span.part and span.last is not None:
        return days.day(year, span.month, min(span.last.day, days.month(year, span.month)[1].day))
    return days.month(year, span.month)[1]


@RANGES("duration from", f"IN? {DURATION} COMMA? (STARTING|FROM|SINCE) (FROM|ON|THE)* DATE")
def _duration_from(context: Context, m: Match) -> Span | None:
    start = m.spans()[0].first
    if start is None or m.has("SINCE") or not m.has("STARTING"):
        return None
    return Span(start, days.plus_days(moved(start, amounts(m), 1), -1), "day", 0.85)


# Dutch "voor" is "for" as often as "before": before what is over, unless something is made for it,
# and before an edge such as "the end of May".
_ALLOTTED = frozenset({
    "begroting", "budget", "plan", "plannen", "planning", "prognose", "doel", "doelen",
    "cijfers", "rapport", "jaarverslag", "aangifte", "belastingaangifte", "kaarten",
    "kaartjes", "abonnement", "rekening", "kalender", "agenda", "rooster", "omzet",
})  # fmt: skip


def _is_allotted(before: Token | None) -> bool:
    return before is not None and before.text in _ALLOTTED


_FOR_OR_BEFORE = kind_of("ON BEFORE")
_POINT = "(DATE | UYEAR? YEAR YMARK?)"


def _point(context: Context, m: Match) -> Span | None:
    spans = m.spans()
    if spans:
        return spans[-1]
    year = m.number("YEAR")
    if not plausible(context, year):
        return None
    return Span(*days.year(year), "year", 0.9, explicit=True)


def _since(context: Context, span: Span, closed: bool) -> Span | None:
    first = span.first
    if first is None:
        return None
    if closed:
        if first > context.today:
            return Span(None, None, "none", void=True)
        return change(span, first=first, last=context.today, part="", whole=None)
    return change(span, first=first, last=None, part="", whole=None)


@OPEN("since", f"SINCE {_FILL} {_POINT}")
@OPEN("since", f"{_POINT} (OF|FROM)? PSINCE")
def _since_rule(context: Context, m: Match) -> Span | None:
    """A named year, or month of a year, runs up to the anchor; other beginnings stay open."""
    span = _point(context, m)
    if span is None:
        return None
    if span.rule == "to date":
        return span  # Italian "dal primo giugno a oggi"
    named = span.explicit and span.grain in ("year", "month") and not span.part
    token = m.one("SINCE", "PSINCE")
    if token is not None and token.value == "until":
        return _since(context, span, True)  # 至今
    if m.before is not None and m.before.kind in chars_of("FROM"):
        return _since(context, span, False)  # 自…以来
    if (
        token is not None
        and token.value == "weak"
        and (span.explicit or span.grain not in ("day", "month"))
    ):
        return None  # Hindi "से" after a full date is as often "on" as "since"
    return _since(context, span, named or (token is not None and token.value == "now"))


@OPEN("from on", f"(STARTING | FROM) (FROM|ON|IN|THE|OF)* {_POINT} (ONWARD | PSTARTING | ORLATER)")
@OPEN("from on", f"FROM (ON|IN|THE)* {_POINT} ON (?= STOP | COMMA | DOT | $)")
@OPEN("from on", f"ON ORLATER {_FILL} {_POINT}")
@OPEN("from on", f"STARTING (FROM|ON|IN|THE|OF)* {_POINT}")
@OPEN("from on", f"{_POINT} (COMMA|FROM|LOC)* (ONWARD | ORLATER | PSTARTING) (?! {_FILL} {_POINT})")
@OPEN("from on", f"AFTER (OR|ON|IN|EQUAL)+ (THE|ON|IN|OF)* {_POINT}")
@OPEN("from on", f"(ON | IN)? OR? AFTER (OR | EQUAL) (ON|IN|TO)* {_POINT}")
def _onward(context: Context, m: Match) -> Span | None:
    span = _point(context, m)
    if span is None:
        return None
    if any(t.value == "from" for t in m.all("ONWARD")) and not m.has("STARTING", "FROM"):
        return None  # German "an" belongs to a verb unless "von" or "ab" began it
    if (
        any(t.value == "past" for t in m.all("PSTARTING"))
        and (span.first or context.today) > context.today
    ):
        return Span(None, None, "none", void=True)
    return _since(context, span, False)


_AFTER = kind_of("AFTER")


@OPEN("after", f"(AFTER | ORLATER) {_FILL} {_POINT}")
@OPEN("after", f"{_POINT} (OF|FROM|LOC)* PAFTER")
def _after(context: Context, m: Match) -> Span | None:
    span = _point(context, m)
    if span is None or span.last is None or span.first is None:
        return None
    if m.tokens[0].kind == _AFTER and context.is_capital(m.tokens[0].start + 1):
        return None  # "PO 1999" is an order, Polish "po 1999" a time
    # "After the beginning of March" leaves open how much of March it means: all but nothing.
    first = span.first if span.part == "early" else days.plus_days(span.last, 1)
    return change(span, first=first, last=None, part="", whole=None)


@OPEN("more than ago", "(MORETHAN | LESSTHAN) DATE")
def _more_than(context: Context, m: Match) -> Span | None:
    """ "More than two weeks ago" is open in the past, "less than" runs from then to now."""
    span = m.spans()[0]
    if not span.relative or span.first is None or span.first != span.last:
        return None
    today = context.today
    if m.has("LESSTHAN"):
        return change(span, first=min(span.first, today), last=max(span.first, today))
    if span.first < today:
        return change(span, first=None)
    return change(span, last=None)


@OPEN("until", f"(BEFORE | UNTIL) (OR | EQUAL) (ON|IN|THE|TO)* {_POINT}")
@OPEN("until", f"ON ORBEFORE {_FILL} {_POINT}")
@OPEN("until", f"{_POINT} (COMMA|LOC)* ORBEFORE (?! {_FILL} {_POINT})")
def _until_with(context: Context, m: Match) -> Span | None:
    span = _point(context, m)
    if span is None or span.last is None:
        return None
    return change(span, first=None, last=span.last, part="", whole=None)


@OPEN("before", f"(BEFORE | ORBEFORE) {_FILL} {_POINT}")
@OPEN("before", f"{_POINT} (OF|FROM|LOC)* PBEFORE")
def _before(context: Context, m: Match) -> Span | None:
    span = _point(context, m)
    if span is None or span.first is None or span.last is None:
        return None
    if m.tokens[0].kind == _FOR_OR_BEFORE and not span.part:
        if not span.explicit or span.grain not in ("month", "year"):
            return None
        if span.last >= context.today or _is_allotted(m.before):
            return span  # "gepland voor 2027", "de begroting voor 2020"
    if any(t.value == "void" for t in m.all("PBEFORE")):
        return Span(None, None, "none", void=True)
    # "Before the end of December" takes in all of December.
    last = span.last if span.part == "late" else days.plus_days(span.first, -1)
    return change(span, first=None, last=last, part="", whole=None)


@OPEN("as of", f"ASOF {_FILL} {_POINT}")
def _as_of(context: Context, m: Match) -> Span | None:
    """What held as of a time happened up to its end."""
    span = _point(context, m)
    if span is None or span.last is None:
        return None
    return change(span, first=None, part="", whole=None)


@OPEN("until", f"(TO | WITHIN) {_FILL} DATE")
def _until_the_end(context: Context, m: Match) -> Span | None:
    """ "Through the end of May", French "d'ici la fin du mois"."""
    span = m.spans()[0]
    if span.part != "late":
        return None
    return change(span, first=None, part="", whole=None)


@OPEN("until", f"UNTIL {_FILL} {_POINT}")
@OPEN("until", f"{_POINT} (OF|TO)? PUNTIL")
def _until(context: Context, m: Match) -> Span | None:
    """Up to a day, that day with it; up to a month or a year, not into it."""
    span = _point(context, m)
    if span is None or span.last is None or span.first is None:
        return None
    if span.grain in ("month", "year") and not span.part:
        return change(span, first=None, last=days.plus_days(span.first, -1))
    return change(span, first=None, last=span.last, part="", whole=None)
