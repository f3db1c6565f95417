"""Rules for the calendar periods around the anchor: last week, this year, the rest of the month."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import (
    FEW,
    amounts,
    earlier_in,
    later_in,
    rolling,
    shift_of,
    shifted,
    unit_of,
)
from retrieval.timex.engine.grammar import (
    OTHER,
    Context,
    Match,
    Rules,
    Span,
    Token,
    any_of,
    change,
    chars_of,
)

PERIODS = Rules()


@PERIODS("to date", "(THE|THIS)? UNIT TODATE")
@PERIODS("to date", "TODATE OF? (THE|THIS)? UNIT")
@PERIODS("to date", "YEARTODATE")
def _to_date(context: Context, m: Match) -> Span:
    """From the start of the running period up to yesterday."""
    named = m.one("YEARTODATE")
    unit = "year" if named is None else str(named.value or "year")
    if m.has("UNIT"):
        unit = unit_of(m.all("UNIT")[0])
    first, _ = days.period(unit, context.today)
    return Span(first, days.plus_days(context.today, -1), "day", 0.9, relative=True)


@PERIODS("end of", "THE? ENDOF")
def _end_of(context: Context, m: Match) -> Span:
    """EOM, EOY: the last day of the running period."""
    _, last = days.period(m.word("ENDOF"), context.today)
    return Span(last, last, "day", 0.9, relative=True, part="late")


@PERIODS("rest of", "THE? REST (OF|THE|THIS)* UNIT (?! OF (THE|THIS)* (DATE|UNIT|MON))")
@PERIODS("rest of", "THIS? UNIT (OF|THE)* REST")
def _rest(context: Context, m: Match) -> Span:
    _, last = days.period(unit_of(m.all("UNIT")[0]), context.today)
    return Span(context.today, last, "day", 0.9, relative=True)


@PERIODS("earlier in the period", "EARLIERIN (IN|OF|THE)* THIS? UNIT")
@PERIODS("earlier in the period", "THIS UNIT EARLIER")
def _earlier(context: Context, m: Match) -> Span | None:
    return earlier_in(context, shifted(context, unit_of(m.all("UNIT")[0]), 0))


@PERIODS("later in the period", "(LATERIN|LATER) (IN|OF|THE)* THIS? UNIT")
@PERIODS("later in the period", "THIS UNIT LATERIN")
def _later(context: Context, m: Match) -> Span | None:
    return later_in(context, shifted(context, unit_of(m.all("UNIT")[0]), 0))


@PERIODS("weekend", "(WEEKOFF | THE? MOD UWEEK | THE? UWEEK MOD) (OF|THE|IN|ON|LOC)* UWEEKEND")
@PERIODS("weekend", "THE? UWEEKEND (OF|THE|IN)* (WEEKOFF | MOD UWEEK | UWEEK MOD)")
def _weekend_of_week(context: Context, m: Match) -> Span:
    weeks = m.number("WEEKOFF") if m.has("WEEKOFF") else shift_of(m)
    monday = days.week(days.plus_days(context.today, 7 * weeks))[0]
    return Span(days.plus_days(monday, 5), days.plus_days(monday, 6), "weekend", 0.95)


@PERIODS("calendar period", "THE? UNIT (BEFORE|AFTER) (THE|OF)* (MOD UNIT | UNIT MOD)")
def _beside_period(context: Context, m: Match) -> Span | None:
    """ "The week before last week"; of two units only where they are the same."""
    units = {unit_of(token) for token in m.all("UNIT")}
    if len(units) != 1:
        return None
    return shifted(context, units.pop(), shift_of(m) + (-1 if m.has("BEFORE") else 1))


@PERIODS(
    "calendar period", "THE? MOD UNIT (?! FULL | (OF|IN) (THE|OF)* (MON|YEAR|UNIT|MOD UNIT|DATE))"
)
@PERIODS("calendar period", "THE? MOD UYEAR (?= OF MON)")
@PERIODS("calendar period", "THE? (THIS|NEXT) UNIT")
@PERIODS("calendar period", "THE? UNIT (OF|THE)* MOD (?! UNIT | OF MON | MON)")
def _moved_period(context: Context, m: Match) -> Span | None:
    if m.before is not None and m.before.kind in _COUNTS and m.tokens[0].kind in chars_of("UNIT"):
        return None  # the unit belongs to the number before it
    modifier = m.one("MOD")
    ambiguous = modifier is not None and modifier.kind in chars_of("LASTORD")
    if ambiguous and m.before is not None and m.before.kind in _WHOLES:
        return None  # Turkish, Korean: the last week of what was just named
    if m.tokens[-1] is modifier:
        if ambiguous and _of_longer(m):
            return None  # Arabic "the week the last of July"
        if "modifier_first" in context.options and modifier.kind in chars_of("THIS"):
            return None  # Russian "сколько дней это займёт"
    elif _is_part(m):
        return None
    unit = unit_of(m.all("UNIT")[0])
    counted = m.before is not None and m.before.kind in _COUNTS | _ORDINALS
    if m.all("UNIT")[0].value == 2 and context.language in _PLURALS and not counted:
        few = _few(context, unit, modifier)
        if few is not None:
            return few
    weekly = "weekday_of_this_week" in context.options
    if unit == "weekend" and modifier is not None and _is_coming(modifier) and not weekly:
        return shifted(context, unit, context.today.weekday() > 4)
    return shifted(context, unit, shift_of(m))


# Languages whose lists tell one unit from several; a Swedish genitive stands among the latter.
_PLURALS = frozenset({"en", "de", "fr", "es", "it", "pt", "nl"})


def _few(context: Context, unit: str, modifier: Token | None) -> Span | None:
    """ "In the last weeks", without a number: a few of them, up to today or from tomorrow on."""
    if modifier is None or (isinstance(modifier.value, int) and modifier.value not in (1, -1)):
        return None
    if modifier.kind in chars_of("PREV"):
        return rolling(context, [(FEW, unit)], -1)
    return rolling(context, [(FEW, unit)], 1, True) if modifier.kind in chars_of("NEXT") else None


def _is_coming(modifier: Token) -> bool:
    """Whether it is "coming", the first ahead, and not "next", that of next week."""
    return modifier.kind in chars_of("NEXT") and modifier.value == 1


def _is_part(m: Match) -> bool:
    """Whether a longer period follows without a link: Russian "the last day (of) last month"."""
    modifier, after, then = m.one("MOD"), m.after, m.ahead(2)
    if after is None or modifier is None or modifier.kind not in chars_of("PREV"):
        return False
    size = _SIZES.index(unit_of(m.all("UNIT")[0]))
    if isinstance(after.value, Span):
        return after.value.grain in _SIZES and _SIZES.index(after.value.grain) > size
    if after.kind in chars_of("MOD") and then is not None and then.kind in chars_of("UNIT"):
        return _SIZES.index(unit_of(then)) > size
    if after.kind in chars_of("YEAR"):
        return unit_of(m.all("UNIT")[0]) in ("week", "month", "quarter", "half")
    return after.kind in chars_of("YEAROFF") | chars_of("MONTHOFF")


def _of_longer(m: Match) -> bool:
    after, then = m.after, m.ahead(2)
    return (
        after is not None
        and then is not None
        and after.kind in chars_of("OF")
        and then.kind in _LONGER
    )


_LONGER = any_of("DATE MON THIS UNIT MONTHOFF YEAROFF")
_COUNTS = chars_of("COUNT")
_WHOLES = any_of("OF LOC MON DATE YEAR UNIT YEAROFF MONTHOFF WEEKOFF")
_SIZES = (
    "night", "workday", "day", "weekend", "workweek", "week", "fortnight", "month", "quarter",
    "season", "half", "year", "decade", "century",
)  # fmt: skip


@PERIODS("rolling", "RECENT? THIS (NUM | FEW) UNIT")
def _these(context: Context, m: Match) -> Span | None:
    if m.has("MDAY"):
        return None
    parts = amounts(m)
    return rolling(context, parts, -1) if parts[0][0] > 1 else None


@PERIODS("calendar period", "UNIT AFTER THE? NEXT (?! UNIT | WEEKDAY | MON | HOLIDAY)")
@PERIODS("calendar period", "UNIT BEFORE THE? PREV (?! UNIT | WEEKDAY | MON | HOLIDAY)")
def _but_one(context: Context, m: Match) -> Span:
    return shifted(context, unit_of(m.all("UNIT")[0]), 2 if m.has("NEXT") else -2)


@PERIODS("calendar period", "UNIT AFTERNEXT")
@PERIODS("calendar period", "YEAROFF | MONTHOFF | WEEKOFF | WEEKENDOFF")
def _lexical_calendar_period(context: Context, m: Match) -> Span:
    if m.has("AFTERNEXT"):
        token = m.all("AFTERNEXT")[0]
        return shifted(
            context, unit_of(m.all("UNIT")[0]), 2 if token.value is None else int(str(token.value))
        )
    token = m.tokens[0]
    names = {"YEAROFF": "year", "MONTHOFF": "month", "WEEKOFF": "week", "WEEKENDOFF": "weekend"}
    unit = next(u for k, u in names.items() if token.kind in chars_of(k))
    return shifted(context, unit, int(str(token.value)))


@PERIODS("calendar period", "(?<= OF | IN | THE) (UWEEK | UMONTH | UQUARTER | UYEAR)")
def _the_period(context: Context, m: Match) -> Span | None:
    """ "The last day of the month": the running one, where an ordinal asks for a part of it."""
    for steps in range(2, 7):
        token = m.back(steps)
        if token is None or token.kind == OTHER:
            return None
        if token.kind in _ORDINALS:
            return change(shifted(context, unit_of(m.tokens[0]), 0), confidence=0.85)
    return None


_ORDINALS = chars_of("ORD") | chars_of("LASTORD") | chars_of("PREV")
