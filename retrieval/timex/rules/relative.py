"""Rules for time told from the anchor: days and weekdays, so long ago, the last so many days."""

from __future__ import annotations

import re

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import (
    COUPLE,
    FEW,
    LOOSE,
    amounts,
    count_of,
    moved,
    offset,
    rolling,
    shift_of,
    shifted,
    unit_of,
)
from retrieval.timex.engine.grammar import (
    Context,
    Match,
    Rules,
    Span,
    Token,
    any_of,
    chars_of,
    kind_of,
)
from retrieval.timex.rules.dates import exact
from retrieval.timex.rules.tense import asks_about_the_past

RELATIVE = Rules()

_FUTURE = re.compile("(?:गा|गे|गी|ऊंगा|ऊँगा|होंगे)(?![\u0900-\u097f])")

_PAST = re.compile("(?<![\u0900-\u097f])(?:था|थे|थी|गया|गई|हुआ|हुई|किया)(?![\u0900-\u097f])")

DURATION = (
    "(COUNT|HALFWORD) OF? (AND? HALFWORD)? UNIT (AND? A? HALFWORD)? "
    "((COMMA|AND)* (COUNT|HALFWORD) (AND? HALFWORD)? UNIT (AND? A? HALFWORD)?)*"
)


# "The last three weeks of 2021" are its weeks, not those before now.
_NOT_OF_A_PERIOD = "(?! (OF|IN) (THE|OF)* (MOD UNIT | MON | DATE | UYEARS? YEAR))"


def _back(context: Context, m: Match) -> Span:
    parts = amounts(m)
    if len(parts) == 1:
        if parts[0][1] == "weekend":
            return shifted(context, "weekend", -int(parts[0][0]))
        loose = m.one("FEW", "COUPLE")
        if loose is not None:
            kind = FEW if loose.kind in chars_of("FEW") else COUPLE
            unit = parts[0][1]
            far, near = LOOSE[kind]
            if unit in ("day", "week", "month", "year"):
                unit_days = 30 if unit == "month" else 1
                step = "day" if unit == "month" else unit
                first = days.plus(context.today, step, -far * unit_days)
                last = days.plus(context.today, step, -near * unit_days)
                return Span(first, last, parts[0][1], 0.8, relative=True)
    return exact(moved(context.today, parts, -1), 0.95, relative=True)


@RELATIVE("every", "EVERY (UDAY? (DAY | WDAY) | UNIT | PART) (TO DAY)?")
@RELATIVE("no window", "VOID")
@RELATIVE("no window", f"{DURATION} PBEFORE")
def _void(context: Context, m: Match) -> Span | None:
    """What recurs, or has no bounds, or does not exist: read, but no window."""
    if m.has("PBEFORE") and not any(t.value == "void" for t in m.all("PBEFORE")):
        return None
    return Span(None, None, "none", void=True)


@RELATIVE("away from a day", f"{DURATION} REL (?! PREAGO)")
def _after_tomorrow(context: Context, m: Match) -> Span | None:
    """French "deux jours après demain": with a length before it, no day after tomorrow."""
    if "after_tomorrow" not in context.options or m.number("REL") != 2:
        return None
    return exact(moved(days.plus_days(context.today, 1), amounts(m), 1), 0.9, relative=True)


@RELATIVE("week and weekday", "ORD (OF|IN)+ THE? (MOD UWEEK | UWEEK MOD)")
@RELATIVE(
    "weekday", "(PREV | NEXT | THIS) ORD (?= STOP | DOT | COMMA | $) | ORD (PREV | NEXT) (?! UNIT)"
)
def _numbered_weekday(context: Context, m: Match) -> Span | None:
    """Portuguese "segunda da semana que vem": the second day of the week, Monday."""
    number = m.number("ORD")
    if "numbered_weekdays" not in context.options or not 2 <= number <= 6 or m.all("ORD")[0].text:
        return None
    if m.has("UWEEK"):
        monday = days.plus(days.week(context.today)[0], "week", shift_of(m))
        return exact(days.plus_days(monday, number - 2), 0.9, relative=True)
    gap = (number - 2 - context.today.weekday()) % 7
    if m.has("PREV"):
        gap = gap - 7
    elif m.has("NEXT"):
        gap = 7 + number - 2 - context.today.weekday()
    else:
        gap = number - 2 - context.today.weekday()
    return exact(days.plus_days(context.today, gap), 0.9, relative=True)


_WITHIN = (
    "(?= DATE | MON | SEASON | LONESEASON | HN | QN | (ORD | NUM) UQUARTER | HOLIDAY | LUNARMONTH)"
)


_WEEKS = "(NUM | A) UWEEK"


@RELATIVE("weekend", f"THE? UWEEKEND (OF|ON|COMMA)* ({_WEEKS} AGO | PREAGO {_WEEKS})")
def _weekend_ago(context: Context, m: Match) -> Span:
    """That of the week, so many weeks before this one."""
    weeks = int(count_of(m.one("NUM", "A")))
    monday = days.plus_days(days.week(context.today)[0], -7 * weeks)
    saturday = days.plus_days(monday, 5)
    return Span(saturday, days.plus_days(saturday, 1), "weekend", 0.9, relative=True)


@RELATIVE("years ago", f"(NUM | A) UYEARS AGO (OF|IN|ON|THE|COMMA)* {_WITHIN}")
@RELATIVE("years ago", f"PREAGO (NUM | A) UYEARS AGO? (OF|IN|ON|COMMA)+ THE? {_WITHIN}")
def _year_ago(context: Context, m: Match) -> Span | None:
    """ "Four years ago, on 18 April": the year that a date or a part of a year is counted in."""
    if _counted_from(m):
        return None
    year = context.today.year - int(count_of(m.one("NUM", "A")))
    return Span(*days.year(year), "year", 0.95, relative=True)


@RELATIVE("ago", f"REL PREAGO {DURATION} | REL {DURATION} AGO")
@RELATIVE("ago", f"PREAGO {DURATION} OF REL | PREAGO UNIT OF REL")
@RELATIVE("ago", f"{DURATION} AGO OF? REL")
@RELATIVE("ago", "REL UNIT AGO | UNIT AGO REL")
def _ago_from(context: Context, m: Match) -> Span | None:
    """ "A year ago today", "heute vor einem Jahr", Russian "сегодня год назад"."""
    if not m.has("COUNT", "HALFWORD", "PREAGO") and "one_unit" not in context.options:
        return None
    start = days.plus_days(context.today, m.number("REL"))
    return exact(moved(start, amounts(m), -1), 0.95, relative=True)


@RELATIVE("from now", f"REL PRELATER {DURATION}")
def _from_day(context: Context, m: Match) -> Span:
    """German "heute in einer Woche"."""
    start = days.plus_days(context.today, m.number("REL"))
    return exact(moved(start, amounts(m), 1), 0.95, relative=True)


@RELATIVE("ago", f"{DURATION} (AGO|EARLIERIN) (?! THE? PREV (DAY|WDAY) | (THE|OF|ON)* HOLIDAY)")
@RELATIVE("ago", f"PREAGO {DURATION} AGO?")
@RELATIVE("ago", "PREAGO UNIT AND (HALFWORD | AMOUNT)")
@RELATIVE("ago", f"PREAGO UNIT AND {DURATION}")
@RELATIVE("ago", f"UNIT AND {DURATION} AGO")
@RELATIVE("ago", "UNIT AGO")
@RELATIVE("ago", "PREAGO UNIT (?! MOD | ORD | OF | NUM | YEAR | PSINCE)")
def _ago(context: Context, m: Match) -> Span | None:
    if _counted_from(m) or (m.has("PREAGO") and _from_a_date(m)):
        return None
    if any(token.value == "back" for token in m.all("AGO")) and not _looks_back(context, m):
        return None
    first = m.tokens[m.tokens[0].kind in chars_of("PREAGO")]
    led = first.kind in chars_of("UNIT")
    if (
        led
        and not m.has("HALFWORD")
        and ("one_unit" not in context.options or m.all("UNIT")[0].value == 2)
    ):
        return None  # only some languages leave out the "one" of "a week ago"
    try:
        return _back(context, m)
    except OverflowError:
        return Span(None, None, "none", void=True)


def _looks_back(context: Context, m: Match) -> bool:
    """Whether Dutch "drie weken terug" is ago: "hij is over drie weken terug" is no such."""
    led = m.before is not None and m.before.kind in _AHEAD
    return not led and asks_about_the_past(context)


_AHEAD = any_of("PRELATER IN WITHIN SINCE AFTER")


def _from_a_date(m: Match) -> bool:
    """Whether a date in full is what a length is counted from: Korean "5월 5일 이틀 전", Arabic
    "two days before (of) 5 May"."""
    if m.has("PREAGO"):
        link, day = m.after, m.ahead(2)
        if link is None or link.kind not in chars_of("OF") | chars_of("FROM"):
            return False
    else:
        day = m.before
    return day is not None and isinstance(day.value, Span) and day.value.explicit


def _counted_from(m: Match) -> bool:
    """Whether the duration is counted from a day just named, as in "two days from tomorrow"."""
    before, first = m.before, m.back(2)
    if before is not None and before.kind in _HOLIDAY:
        return True  # Korean "크리스마스 이틀 전"
    if first is not None and first.kind in _HOLIDAY and before is not None:
        return before.kind in _LINKS_BACK or before.kind in _YEAR
    third = m.back(3)
    if first is not None and first.kind in _YEAR and third is not None:
        return third.kind in _HOLIDAY and before is not None and before.kind in _LINKS_BACK
    return (
        before is not None
        and first is not None
        and before.kind in _LINKS_BACK
        and first.kind in _DAYS
    )


_HOLIDAY, _YEAR = chars_of("HOLIDAY"), chars_of("YEAR")
_LINKS_BACK = frozenset().union(*map(chars_of, ["FROM", "OF", "PSINCE", "PAFTER"]))

_DAYS = frozenset().union(*map(chars_of, ["REL", "DATE", "EITHER", "DAY", "FROM"]))


@RELATIVE("about ago", "ADJACENT UNIT AGO")
@RELATIVE("about ahead", "ADJACENT UNIT (LATER | PAFTER)")
@RELATIVE("rolling", "(PAST | PREV) ADJACENT UNIT")
@RELATIVE("rolling ahead", "COMING ADJACENT UNIT")
def _adjacent(context: Context, m: Match) -> Span:
    """Two numbers in a row, "three or four": from the one to the other, or rolling by the upper."""
    near, far = divmod(m.number("ADJACENT"), 10)
    unit = unit_of(m.all("UNIT")[0])
    if m.tokens[0].kind not in chars_of("ADJACENT"):
        return rolling(context, [(far, unit)], 1 if m.has("COMING") else -1)
    today = context.today
    if m.has("AGO"):
        return Span(
            days.plus(today, unit, -far), days.plus(today, unit, -near), unit, 0.8, relative=True
        )
    return Span(days.plus(today, unit, near), days.plus(today, unit, far), unit, 0.8, relative=True)


@RELATIVE("ago", "AMOUNT (AGO | PBEFORE) | PREAGO AMOUNT AGO?")
@RELATIVE("from now", "AMOUNT (LATER | PAFTER) | PRELATER AMOUNT (?! PREV | PAST | NEXT | COMING)")
@RELATIVE("rolling", "(PREV | PAST | LASTORD) AMOUNT | AMOUNT (PREV | PAST)")
@RELATIVE("rolling ahead", "(NEXT | COMING) AMOUNT | AMOUNT (NEXT | COMING)")
def _amount(context: Context, m: Match) -> Span | None:
    """One word for several units: Korean 사흘, three days; Arabic شهرين, two months."""
    if m.has("AGO", "PBEFORE", "PREAGO") and (_counted_from(m) or _from_a_date(m)):
        return None
    count, unit = offset(m.word("AMOUNT"))
    away = m.has("AGO", "PREAGO", "PBEFORE")
    if not away and m.has("PREV", "PAST", "LASTORD", "NEXT", "COMING"):
        ahead = m.has("NEXT", "COMING")
        return rolling(context, [(count, unit)], 1 if ahead else -1, not m.has("COMING"))
    found = moved(context.today, [(count, unit)], -1 if away else 1)
    return exact(found, 0.95, relative=True)


@RELATIVE("about ahead", "(FEW | COUPLE) UNIT (LATER | PAFTER)")
def _few_ahead(context: Context, m: Match) -> Span | None:
    if "tens" not in context.options:
        return None
    unit = unit_of(m.all("UNIT")[0])
    far = 5 if m.has("FEW") else 3
    first, last = days.plus(context.today, unit, 2), days.plus(context.today, unit, far)
    return Span(first, last, unit, 0.7, relative=True)


@RELATIVE("day", "EITHER")
def _yesterday_or_tomorrow(context: Context, m: Match) -> Span:
    """Hindi says one word for both; the tense of the sentence decides, and the past by default."""
    ahead = _FUTURE.search(context.text) is not None and _PAST.search(context.text) is None
    offset = m.number("EITHER") * (1 if ahead else -1)
    return exact(days.plus_days(context.today, offset), 0.7, relative=True)


@RELATIVE("weekend", "THE? (MOD UWEEK?)? DAY AND? DAY")
def _both_days(context: Context, m: Match) -> Span | None:
    """Saturday and Sunday said one after the other are one weekend."""
    if [t.value for t in m.all("DAY")] != [6, 7] or "weekday_of_this_week" not in context.options:
        return None
    monday = days.plus(days.week(context.today)[0], "week", shift_of(m) if m.has("MOD") else 0)
    return Span(days.plus_days(monday, 5), days.plus_days(monday, 6), "weekend", 0.9)


@RELATIVE("from now", f"(PRELATER|LATER)? {DURATION} LATER (?! (THE|OF|ON)* HOLIDAY)")
@RELATIVE(
    "from now",
    f"PRELATER {DURATION} (?! AFTER | BEFORE | FROM | PAFTER | SINCE | (PREV | PAST) (?! UNIT))",
)
def _ahead(context: Context, m: Match) -> Span | None:
    parts = amounts(m)
    if m.before is not None and m.before.kind in _ORDINALS | _POINTERS:
        return None  # Hindi "in the first three months", Japanese "in these three": not "after"
    if _counted_from(m) or (m.has("OF") and parts[0][1] in ("decade", "century")):
        return None
    return exact(moved(context.today, parts, 1), 0.95, relative=True)


@RELATIVE("from now", "PRELATER UNIT (?! MOD | ORD | OF | NUM | YEAR | AFTER | PAFTER | DATE)")
def _one_ahead(context: Context, m: Match) -> Span | None:
    """Russian "через неделю", Polish "za rok": the "one" is left out."""
    unit = m.all("UNIT")[0]
    if "one_unit" not in context.options or unit.value == 2 or _counted_from(m):
        return None
    return exact(moved(context.today, [(1, unit_of(unit))], 1), 0.9, relative=True)


@RELATIVE("hours", "THE? (PREV|PAST) COUNT? OF? UTIME")
@RELATIVE("hours", "(THIS | LASTORD) COUNT UTIME | COUNT UTIME (PREV | PAST)")
@RELATIVE("hours", "THE? COUNT (PREV|PAST) UTIME")
@RELATIVE("hours", "COUNT UTIME WITHINPOST")
def _hours(context: Context, m: Match) -> Span:
    minutes = count_of(m.one("COUNT")) * days.MINUTES_OF[unit_of(m.all("UTIME")[0])]
    if unit_of(m.all("UTIME")[0]) == "second":
        minutes /= 60
    start = days.later(context.now, -minutes)
    return Span(
        start.date(), context.today, "hour", 0.95, relative=True, moments=(start, context.now)
    )


@RELATIVE("ago", "COUNT OF? UTIME AGO")
@RELATIVE("ago", "PREAGO COUNT OF? UTIME")
@RELATIVE("from now", "PRELATER COUNT UTIME LATER? (?! PREV | PAST)")
@RELATIVE("from now", "COUNT UTIME LATER")
def _time_away(context: Context, m: Match) -> Span:
    minutes = count_of(m.one("COUNT")) * days.MINUTES_OF[unit_of(m.all("UTIME")[0])]
    if unit_of(m.all("UTIME")[0]) == "second":
        minutes /= 60
    sign = -1 if m.has("AGO", "PREAGO") else 1
    return exact(days.later(context.now, sign * minutes).date(), 0.9, relative=True)


@RELATIVE("ago", "A? HALFHOUR AGO | PREAGO A? HALFHOUR | (PREV | PAST) HALFHOUR")
@RELATIVE("from now", "A? HALFHOUR LATER | PRELATER A? HALFHOUR")
def _half_hour_away(context: Context, m: Match) -> Span:
    ahead = m.has("LATER", "PRELATER") and not m.has("AGO")
    return exact(days.later(context.now, 30 if ahead else -30).date(), 0.9, relative=True)


@RELATIVE("weekdays away", "PRELATER NUM WEEKDAY (?! X)")
@RELATIVE("weekdays away", "NUM WEEKDAY LATER")
@RELATIVE("weekdays away", "NUM WEEKDAY AGO")
def _weekdays_away(context: Context, m: Match) -> Span:
    weekday, count = m.number("WEEKDAY") - 1, m.number("NUM")
    gap = (weekday - context.today.weekday()) % 7
    if not m.has("AGO"):
        away = (gap or 7) + 7 * (count - 1)
    else:
        away = gap - 7 - 7 * (count - 1)
    return exact(days.plus_days(context.today, away), 0.95, relative=True)


@RELATIVE("rolling", f"THE? (PREV|PAST) (THE|OF)* {DURATION} {_NOT_OF_A_PERIOD}")
@RELATIVE("rolling", f"THE? {DURATION} (PREV|PAST)")
@RELATIVE("rolling", f"THE? (NUM|FEW|COUPLE) (PREV|PAST) UNIT {_NOT_OF_A_PERIOD}")
@RELATIVE("rolling", f"{DURATION} WITHINPOST")
@RELATIVE("rolling", "UNIT NUM (PREV|PAST)")
@RELATIVE("rolling", "LASTORD NUM UNIT (?! OF | IN)")
@RELATIVE("rolling", f"IN? THE? PAST (THE|OF)* {DURATION}")
@RELATIVE("rolling", "IN? THE? (PREV | PAST) UNIT AND A? HALFWORD")
def _last_units(context: Context, m: Match) -> Span | None:
    if _one_of_several(m) or _counted_from(m):
        return None
    if m.before is not None and m.before.kind in _HOLIDAY:
        return None  # Chinese 前 behind a feast is "before"
    if m.tokens[0].kind in chars_of("UNIT"):  # Arabic "the days the seven last"
        if "number_after" not in context.options:
            return None
        return rolling(context, [(m.number("NUM"), unit_of(m.tokens[0]))], -1)
    if m.tokens[0].kind == _LAST and "number_after" not in context.options:
        return None
    if m.after is not None and m.after.kind in chars_of("UNIT"):
        return None  # the modifier belongs to what follows
    if m.tokens[0].kind in chars_of("AGO") and _of_a_period(m):
        return None  # Chinese "the first three days of May"
    if m.tokens[0].kind in chars_of("PREV") and _period_follows(m):
        return None  # Russian "the last two weeks (of) May 2024"
    if m.has("OF") and not m.has("COUPLE", "FEW", "A", "PAST"):
        return None  # Spanish "semana 27 del año pasado" counts no years
    return rolling(context, amounts(m), -1)


_LAST = kind_of("LASTORD")
_ORDINALS = any_of("ORD LASTORD")
_POINTERS = chars_of("THIS")


def _of_a_period(m: Match) -> bool:
    link, whole = m.before, m.back(2)
    if link is not None and link.kind in _YEARS:
        return True
    return (
        link is not None
        and whole is not None
        and link.kind in chars_of("OF")
        and whole.kind in _PERIODS
    )


_YEARS = any_of("YMARK YEAROFF")
_PERIODS = frozenset().union(*map(chars_of, ["MON", "UNIT", "YEAROFF", "MONTHOFF", "WEEKOFF"]))


def _one_of_several(m: Match) -> bool:
    """Whether the number belongs to something else: "only 3 next week"."""
    unit, numbers, modifiers = m.all("UNIT")[0], m.all("NUM"), m.all("PREV", "NEXT", "PAST")
    return (
        unit.value == 1
        and bool(numbers)
        and bool(modifiers)
        and numbers[0].start < modifiers[0].start < unit.start
        and m.number("NUM") > 1
    )


@RELATIVE("rolling", "WITHIN THE? (PREV | PAST) UNIT")
@RELATIVE("rolling", "THE? PAST UNIT")
def _past_unit(context: Context, m: Match) -> Span:
    return rolling(context, [(1, unit_of(m.all("UNIT")[0]))], -1)


@RELATIVE("rolling ahead", f"(THE|WITHIN)* (NEXT|COMING) (THE|OF)* {DURATION}")
@RELATIVE("rolling ahead", f"THE? {DURATION} (NEXT|COMING)")
@RELATIVE("rolling ahead", "UNIT NUM (NEXT|COMING)")
@RELATIVE("rolling ahead", "THE? (NUM|FEW|COUPLE) (NEXT|COMING) UNIT")
@RELATIVE("rolling ahead", f"WITHIN {DURATION} (?! BEFORE | AFTER | FROM | SINCE)")
@RELATIVE("rolling ahead", "THE? COMING UNIT")
def _next_units(context: Context, m: Match) -> Span | None:
    if m.tokens[0].kind in chars_of("UNIT"):  # Arabic, as in `_last_units`
        if "number_after" not in context.options:
            return None
        return rolling(context, [(m.number("NUM"), unit_of(m.tokens[0]))], 1, True)
    parts = amounts(m)
    if _one_of_several(m):
        return None
    if m.has("OF") and m.has("NUM") and not m.has("COUPLE", "FEW", "A"):
        return None  # French "le 20 du mois prochain" is one day
    if not m.has("COUNT", "HALFWORD"):
        parts = [(1, unit_of(m.all("UNIT")[0]))]
    return rolling(context, parts, 1, m.has("NEXT") and not m.has("COMING"))


@RELATIVE("period", "PERIOD")
def _lexical_period(context: Context, m: Match) -> Span | None:
    """Words that name a span by themselves: the value holds two offsets, such as "-3d -1d"."""
    before = m.before
    if before is not None and (before.kind in _HOLIDAY or isinstance(before.value, Span)):
        return None  # Chinese "the two days before" a feast or a date
    offsets = [offset(written) for written in m.word("PERIOD").split()]
    first, last = (days.plus(context.today, unit, count) for count, unit in offsets)
    return Span(first, last, "day", 0.85, relative=True)


@RELATIVE("day of another year", "(YEAROFF | MOD UYEAR) OF? REL PART?")
def _day_of_year(context: Context, m: Match) -> Span:
    """Chinese "today, last year": the same day of that year, and so for its neighbours."""
    years = m.number("YEAROFF") if m.has("YEAROFF") else shift_of(m)
    then = days.plus_months(context.today, 12 * years)
    return exact(days.plus_days(then, m.number("REL")), 0.95, relative=True)


@RELATIVE("day", "REL (OF? PART | COLON)? (?! LASTORD (OF|IN))")
def _relative_day(context: Context, m: Match) -> Span | None:
    if m.all("REL")[0].kind in chars_of("BESIDE") and m.after is not None:
        ahead = m.after if m.after.kind not in _LINKS else m.ahead(2)
        if ahead is not None and ahead.kind in _NAMED:
            return None  # Swedish "dagen efter påsk" is no tomorrow
    if m.all("REL")[0].kind in chars_of("BESIDE") and m.before is not None:
        behind = m.before if m.before.kind not in chars_of("OF") else m.back(2)
        if behind is not None and (behind.kind in _HOLIDAY or isinstance(behind.value, Span)):
            return None  # Chinese 国庆节前一天
    return exact(days.plus_days(context.today, m.number("REL")), relative=True)


_NAMED = any_of("HOLIDAY DATE MON NUM ORD MD")


@RELATIVE("part of the day", "(THIS | NEXT | PREV) PART")
@RELATIVE("part of the day", "PART (THIS | NEXT | PREV)")
def _part(context: Context, m: Match) -> Span:
    return exact(days.plus_days(context.today, shift_of(m)), 0.95, relative=True)


@RELATIVE("week and weekday", "THE? MOD UWEEK (ON|DASH|COMMA|OF|AND)* THE? WEEKDAY")
@RELATIVE("week and weekday", "THE? UWEEK MOD (ON|DASH|COMMA|OF|AND)* THE? WEEKDAY")
@RELATIVE("week and weekday", "ON? THE? WEEKDAY (OF|IN|COMMA|THE|FROM|DOMEND)* MOD UWEEK")
@RELATIVE("week and weekday", "ON? THE? WEEKDAY (OF|IN|COMMA|THE|FROM)* UWEEK MOD")
@RELATIVE("week and weekday", "WEEKOFF (ON|OF)? WEEKDAY")
def _weekday_of_week(context: Context, m: Match) -> Span:
    weeks = m.number("WEEKOFF") if m.has("WEEKOFF") else shift_of(m)
    monday = days.week(context.today)[0]
    return exact(days.plus_days(monday, 7 * weeks + m.number("WEEKDAY") - 1), 0.95, relative=True)


@RELATIVE("weekday", "PREVDAY (OF|IN)* (MOD UWEEK | UWEEK MOD)?")
def _last_weekday(context: Context, m: Match) -> Span:
    """Swedish "i måndags": last Monday in one word."""
    weekday, today = m.number("PREVDAY") - 1, context.today
    if m.has("MOD"):
        monday = days.week(today)[0]
        return exact(days.plus_days(monday, 7 * shift_of(m) + weekday), 0.95, relative=True)
    back = (today.weekday() - weekday - 1) % 7 + 1
    return exact(days.plus_days(today, -back), 0.95, relative=True)


@RELATIVE(
    "weekday",
    "THE? THIS? (NEXT|PREV) WEEKDAY (?! LINK* (NUM|ORD|MD|MON)"
    "| (OF|IN) THE? (DATE|MOD UNIT|UYEARS? YEAR|UMONTH|UQUARTER))",
)
@RELATIVE("weekday", "THE? THIS WEEKDAY (NEXT|PREV)? (?! LINK* (NUM|ORD|MD|MON))")
@RELATIVE("weekday", "THE? WEEKDAY (OF|THE)* MOD (?! UNIT)")
def _moved_weekday(context: Context, m: Match) -> Span | None:
    """Last: the latest before today. This: the one of this week. Next: the one of next week, but
    "coming" and "this next" the first after today."""
    if m.tokens[0].kind in chars_of("WDAY") and context.language == "en":
        return None  # "who sat next to her"
    if m.tokens[-1].kind in chars_of("MOD") and "weekday_of_this_week" in context.options:
        return None  # Chinese 周一来: what came on Monday
    weekday = m.number("WEEKDAY") - 1
    today = context.today
    strong = m.one("PREV", "NEXT")
    if strong is not None and _is_last_of(m, strong):
        return None
    if strong is None:
        found = days.plus_days(days.week(today)[0], weekday)
    elif "weekday_of_this_week" in context.options:
        found = days.plus_days(days.week(today)[0], 7 * shift_of(m) + weekday)
    elif strong.kind in chars_of("PREV"):
        found = days.plus_days(today, -((today.weekday() - weekday - 1) % 7 + 1))
        found = days.plus_days(found, 7 * (_far(strong) - 1) * -1)
    elif strong.value is None and not m.has("THIS"):
        found = days.plus_days(days.week(today)[0], 7 + weekday)
    else:
        found = days.plus_days(today, (weekday - today.weekday() - 1) % 7 + 1)
        found = days.plus_days(found, 7 * (_far(strong) - 1))
    return exact(found, 0.95, relative=True)


def _is_last_of(m: Match, modifier: Token) -> bool:
    """Whether "last Friday" is the last one of a period: "(of) March 2024", "March 2024's"."""
    if modifier.kind in chars_of("PREV") and _period_follows(m):
        return True
    before = m.before
    return (
        modifier.kind in chars_of("LASTORD") and before is not None and before.kind in _PERIOD_ENDS
    )


def _period_follows(m: Match) -> bool:
    """Whether a month or a longer period comes next, behind no more than links."""
    for steps in range(1, 4):
        token, then = m.ahead(steps), m.ahead(steps + 1)
        if token is None:
            return False
        if isinstance(token.value, Span):
            return token.value.grain in ("month", "quarter", "year")
        if token.kind in chars_of("MOD"):
            return then is not None and then.kind in _LONG_UNITS
        if token.kind in _LONG_UNITS:
            return steps > 1 or (then is not None and then.kind in chars_of("MOD"))
        if token.kind not in _LINKS:
            return token.kind in _LONG_OFFSETS
    return False


_LINKS = any_of("OF IN THE")
_LONG_UNITS = any_of("UMONTH UQUARTER UYEAR")
_LONG_OFFSETS = any_of("YEAROFF MONTHOFF")
_PERIOD_ENDS = any_of("OF MON DATE UYEARS UMONTH YEAROFF MONTHOFF")


def _far(token: Token) -> int:
    return abs(token.value) if isinstance(token.value, int) else 1


_COUNTED = frozenset().union(*map(chars_of, ["PREV", "NEXT", "PAST", "UNIT"]))

# What follows "this may" where it is a verb.
_VERBS = frozenset().union(*map(chars_of, ["X", "OR", "A", "AND", "NUM", "ORD"]))


@RELATIVE("calendar month", "THE? MOD (UMONTH? OF)? MON (?! UWEEK)")
@RELATIVE("calendar month", "THE? MON (OF|THE)* MOD (?! UNIT | WEEKDAY)")
def _moved_month(context: Context, m: Match) -> Span | None:
    counted = m.after is not None and m.after.kind in _COUNTED
    if counted and m.tokens[-1].kind in chars_of("NUM"):
        return None  # French "ces sept derniers jours"
    if m.has("THIS") and m.has("WMONTH") and m.after is not None and m.after.kind in _VERBS:
        return None
    first, last = days.month(context.today.year + shift_of(m), m.number("MON"))
    return Span(first, last, "month", 0.9, relative=True)
