"""Rules for days that are named: day and month, with or without a year, and days of a month.

A day without a year is its latest instance up to the anchor; so is a day without a month.
"""

from __future__ import annotations

import re
from datetime import date

from retrieval.timex.calendar import days
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
from retrieval.timex.rules.beside import COUNTABLE, MONTHS, counts, joined
from retrieval.timex.rules.chinese import is_name, told_in_the_past
from retrieval.timex.rules.tense import QUESTION, asks_what_is_planned, is_said

NAMED = Rules()
"""Days and months spelled out; run first."""

BARE = Rules()
"""What counts only where nothing completes it: a lone month, weekday, "the 21st"; run late."""

_PREFIX = "(WEEKDAY DOT? COMMA? (THE|ON)? (OPEN|DASH)?)?"
_YEAR = "(YEAR YMARK? | APOSTROPHE NUM)"


def exact(found: date, /, confidence: float = 1.0, **more: object) -> Span:
    """The span of one day."""
    return change(Span(found, found, "day", confidence), **more)


def day_of_month(token: Token | None) -> int:
    if token is None or not isinstance(token.value, int) or not 1 <= token.value <= 31:
        raise LookupError("no day of a month")
    return token.value


def year_of(context: Context, token: Token | None) -> int:
    if token is None or not isinstance(token.value, int):
        raise LookupError("no year")
    return days.full_year(token.text or str(token.value), context.today)


def latest_day(context: Context, month: int, day: int) -> Span:
    """The latest such day up to the anchor's; the next one where plans are asked for."""
    today, ahead = context.today, asks_what_is_planned(context)
    for years in range(9):
        try:
            found = days.day(today.year + (years if ahead else -years), month, day)
        except OverflowError:
            continue
        if found >= today if ahead else found <= today:
            return exact(found, 0.85, month=month, day=day)
    raise OverflowError("no such day")


def latest_month(context: Context, month: int) -> Span:
    """The latest such month that has begun; the next one where plans are asked for."""
    today = context.today
    if asks_what_is_planned(context):
        year = today.year + (month < today.month)
    else:
        year = today.year - (month > today.month)
    first, last = days.month(year, month)
    return Span(first, last, "month", 0.85, month=month)


def _range(context: Context, m: Match, year: int | None) -> Span:
    if m.has("UDAY") and context.language == "ru":
        raise LookupError("a length: два дня до 5 мая")
    first, second = (day_of_month(t) for t in m.all("DOM")[:2])
    month = m.number("MON")
    if second < first:
        raise LookupError("a range that runs backwards")
    if year is not None:
        return Span(
            days.day(year, month, first), days.day(year, month, second), "day", explicit=True
        )
    start = latest_day(context, month, first).first
    assert start is not None
    return Span(start, days.day(start.year, month, second), "day", 0.8)


_TO = "(DASH|TO|UNTIL|AND)"
_NOT_COUNTED = "(?! UNIT | UTIME | X | NUM | OF | DASH | SLASH)"


@NAMED(
    "days of a month",
    f"(FROM|BETWEEN)? THE? DOM UDAYS? DOT? FROM? {_TO} THE? DOM UDAYS? DOT? LINK* MON LINK* YEAR"
    "(TO|PUNTIL)*",
)
@NAMED(
    "days of a month",
    f"MON (FROM|BETWEEN)? THE? DOM UDAYS? {_TO} THE? DOM UDAYS? LINK* YEAR (TO|PUNTIL)*",
)
@NAMED(
    "days of a month",
    f"(FROM|BETWEEN)? MON THE? DOM UDAYS? {_TO} THE? DOM UDAYS? LINK* YEAR (TO|PUNTIL)*",
)
@NAMED(
    "days of a month",
    f"(FROM|BETWEEN)? YEAR LINK* YMARK? MON DOM UDAYS? FROM? {_TO} DOM UDAYS (TO|PUNTIL)*",
)
def _days_of_month_and_year(context: Context, m: Match) -> Span:
    return _range(context, m, m.number("YEAR"))


@NAMED("date", f"{_PREFIX} THE? DOM UDAYS? DOT? LINK* MON DOT? LINK* UYEAR? {_YEAR}")
@NAMED("date", f"{_PREFIX} MON DOT? LINK* DOM UDAYS? LINK* UYEAR? {_YEAR}")
@NAMED("date", "YEAR YMARK? LINK* MON DOT? LINK* DOM MDAY?")
def _date(context: Context, m: Match) -> Span | None:
    numbers = m.all("DOM")
    if joined(m) or (m.has("UDAY") and m.before is not None and m.before.kind in _ORDERS):
        return None  # "the first 10 days of March 2024"
    if m.has("APOSTROPHE"):
        year = year_of(context, numbers[-1])
    else:
        year = m.number("YEAR")
    found = days.day(year, m.number("MON"), day_of_month(numbers[0]))
    return None if counts(context, m, numbers[0], found) else exact(found, explicit=True)


@NAMED("months", "(YEAR YMARK LINK*)? NUM (DASH | TO) MON (?! LINK* DOM MDAY)")
def _months_written_once(context: Context, m: Match) -> Span | None:
    """Chinese "2024年1-3月": the word for the month stands once."""
    first, last = m.number("NUM"), m.number("MON")
    if "year_first" not in context.options or not 1 <= first < last:
        return None
    today = context.today
    year = m.number("YEAR") if m.has("YEAR") else today.year - (first > today.month)
    return Span(*days.months(year, first, last), "month", 0.9, explicit=m.has("YEAR"))


@NAMED("date", "NUM YMARK MON DOM MDAY?")
def _date_short_year(context: Context, m: Match) -> Span:
    year, day = m.all("DOM")
    return exact(
        days.day(year_of(context, year), m.number("MON"), day_of_month(day)), 0.95, explicit=True
    )


@NAMED("days of a month", "MON THE? DOM UDAYS FROM DOM UDAYS (TO|PUNTIL)*")
@NAMED("days of a month", "MON OF? DOM FROM DOM (DOMEND|TO|LOC)* (TO|PUNTIL)+")
@NAMED(
    "days of a month",
    f"(FROM|BETWEEN)? THE? DOM UDAYS? DOT? FROM? {_TO} THE? DOM UDAYS? DOT? LINK* MON (TO|PUNTIL)*",
)
@NAMED(
    "days of a month",
    f"MON (FROM|BETWEEN)? THE? DOM UDAYS? DOT? FROM? {_TO} THE? DOM UDAYS? (TO|PUNTIL)*",
)
@NAMED(
    "days of a month",
    f"(FROM|BETWEEN) MON THE? DOM UDAYS? FROM? {_TO} THE? DOM UDAYS? (TO|PUNTIL)*",
)
def _days_of_month(context: Context, m: Match) -> Span | None:
    if m.after is not None and m.after.kind in chars_of("MONTH") | chars_of("WMONTH"):
        return None
    return _range(context, m, None)


@NAMED("date", f"{_PREFIX} THE? DOM UDAYS? DOT? LINK* MON DOT? LINK* NUM")
@NAMED("date", f"{_PREFIX} MON DOT? LINK* DOM UDAYS? LINK* NUM")
def _date_two_digits(context: Context, m: Match) -> Span | None:
    numbers = m.all("DOM")
    year = numbers[-1]
    if len(year.text) != 2 or len(numbers) != 2:
        return None
    counted = m.after is not None and m.after.kind in _COUNTED
    if counted and not (numbers[0].kind in chars_of("ORD") and m.after.kind == OTHER):  # type: ignore[union-attr]
        return None
    found = days.day(year_of(context, year), m.number("MON"), day_of_month(numbers[0]))
    return exact(found, 0.9, explicit=True)


_COUNTED = any_of("X MON ORD TO DASH UDAY UWEEK UMONTH UYEAR UHOUR UMINUTE CLOCK AND")


@NAMED("date", "YEAR SLASH NUM SLASH MON")
@NAMED("date", "NUM DASH YEAR DASH MON")
@NAMED("date", "MON DASH YEAR DASH NUM")
@NAMED("date", "YEAR DOT NUM DOT NUM DOT?")
@NAMED("date", "YEAR NUM NUM")
def _date_in_odd_order(context: Context, m: Match) -> Span | None:
    numbers = m.all("NUM")
    year = m.number("YEAR")
    if m.has("MON"):
        return exact(days.day(year, m.number("MON"), day_of_month(numbers[0])), 0.95, explicit=True)
    if m.has("DOT"):  # Korean "2024. 5. 3."
        if "year_first" not in context.options:
            return None
    elif any(len(t.text) != 2 for t in numbers):
        return None
    month, day = (int(t.text) for t in numbers)
    return exact(days.day(year, month, day), 0.8, explicit=True)


@NAMED("date", "NUM DASH NUM COMMA YEAR")
def _dashed_and_year(context: Context, m: Match) -> Span | None:
    first, second = m.all("NUM")
    if not first.text or not second.text:
        return None
    a, b = day_of_month(first), day_of_month(second)
    month, day = (b, a) if (context.day_first and b <= 12) or a > 12 else (a, b)
    return exact(days.day(m.number("YEAR"), month, day), 0.9, explicit=True)


@NAMED("date", "MD COMMA? YEAR")
def _numbers_and_year(context: Context, m: Match) -> Span:
    span = m.spans()[0]
    assert span.month is not None
    assert span.day is not None
    return exact(days.day(m.number("YEAR"), span.month, span.day), 0.95, explicit=True)


@NAMED("month", "MONTH UMONTH (?! LINK* UYEARS? YEAR)")
def _month_named_so(context: Context, m: Match) -> Span | None:
    """Turkish, Hindi: "the month of October" with the word after the name."""
    moved = m.before is not None and m.before.kind in chars_of("MOD")
    if moved or "month_word" not in context.options:
        return None
    return latest_month(context, m.number("MON"))


@NAMED("months of the year", "MON (COMMA MON)+ COMMA? AND MON (OF | IN | COMMA)* YEAR")
@NAMED("months of the year", "YEAR YMARK? OF? MON (COMMA MON)* (AND | COMMA) MON (?! DOM MDAY)")
def _listed_months(context: Context, m: Match) -> Span | None:
    """ "June, July and August 2024", Chinese "2024年5月和6月": from the first to the last."""
    months = [int(str(token.value)) for token in m.all("MON")]
    if months != sorted(set(months)):
        return None
    return months_until(m.number("YEAR"), months[0], months[-1])


@NAMED("month and year", "MON DOT? LINK* UYEARS? OF? YEAR YMARK?")
@NAMED("month and year", "MON UMONTH LINK* UYEARS? YEAR YMARK?")
@NAMED("month and year", "YEAR UYEARS? LINK* MON")
def _month_and_year(context: Context, m: Match) -> Span:
    year = m.number("YEAR")
    if year < 1:
        return Span(None, None, "none", void=True)
    first, last = days.month(year, m.number("MON"))
    return Span(first, last, "month", explicit=True)


@NAMED("months of the year", "(FROM|BETWEEN)? MON DOT? (AND | SLASH) MON DOT? LINK* YEAR")
@NAMED("months of the year", "FROM MON DOT (TO | DASH | UNTIL) MON DOT? LINK* YEAR")
@NAMED("months of the year", "(FROM|BETWEEN)? MON DOT? (AND | SLASH) MON DOT? APOSTROPHE NUM")
def _months_and_year(context: Context, m: Match) -> Span | None:
    first, last = (int(str(token.value)) for token in m.all("MON"))
    year = m.number("YEAR") if m.has("YEAR") else year_of(context, m.all("NUM")[-1])
    return months_until(year, first, last)


def months_until(year: int, first: int, last: int) -> Span | None:
    """From one month to another of a year; the first of the year before where it is later in it."""
    if first == last:
        return None
    begin = days.month(year - (first > last), first)[0]
    return Span(begin, days.month(year, last)[1], "month", 0.95, explicit=True)


@NAMED("month and year", "MON DOT? OF? APOSTROPHE NUM")
@NAMED("month and year", "MON OF NUM")
@NAMED("month and year", "MON NUM")
@NAMED("month and year", "NUM YMARK OF? MON")
def _month_and_short_year(context: Context, m: Match) -> Span | None:
    number = m.all("NUM")[0]
    if len(number.text) != 2 and not m.has("YMARK"):
        return None
    if not m.has("APOSTROPHE", "YMARK") and m.number("NUM") <= 31:
        return None
    first, last = days.month(year_of(context, number), m.number("MON"))
    return Span(first, last, "month", 0.9, explicit=True)


@NAMED("month and day", f"{_PREFIX} THE? ORD (OF|COMMA|DASH|SLASH|DOT|THE)* MON")
@NAMED("month and day", f"{_PREFIX} THE? DOM UDAYS? DOT? (OF|DASH|SLASH|COMMA)? THE? MON")
@NAMED("month and day", f"{_PREFIX} MON DOT? (OF|DASH|SLASH|COMMA)? (THE|ON)? DOM UDAYS?")
def _month_and_day(context: Context, m: Match) -> Span | None:
    number = m.all("DOM")[0]
    day = day_of_month(number)
    if joined(m) or (number.kind in chars_of("AGO") and m.before and m.before.kind in COUNTABLE):
        return None  # Hindi पहले is "first", but behind a unit "ago"
    if m.has("UDAY") and m.before is not None and m.before.kind in _ORDERS:
        return None  # "the last 3 days of March"
    closing = m.tokens[-1] is number and m.after is not None
    if "year_first" in context.options and m.tokens[-1] is number:
        told = closing and m.after.kind == OTHER and m.after.start == number.end  # type: ignore[union-attr]
        if not number.text or m.has("COMMA") or told:
            return None  # "7月，一名": a day of a month has its 日
    if closing and m.after.kind in _UNITS:  # type: ignore[union-attr]
        return None
    if closing and m.has("ON") and m.after.kind in chars_of("MON"):  # type: ignore[union-attr]
        return None  # "we saw May on 12 April"
    spelled = number.kind in chars_of("NUM") and not number.text
    if m.has("WMONTH") and spelled and m.tokens.index(number) < m.tokens.index(m.all("MON")[0]):
        return None  # "one may ask"
    try:
        found = latest_day(context, m.number("MON"), day)
    except OverflowError:
        return Span(None, None, "none", void=True)
    assert found.first is not None
    return None if counts(context, m, number, found.first) else found


_UNITS = any_of("UDAY UWEEK UMONTH UYEAR UHOUR UMINUTE UQUARTER WEEKNO")


_ORDERS = any_of("PREV PAST LASTORD ORD")


@BARE("month and day", "(ON|IN|WEEKDAY|THE|COMMA)? MD")
def _numbers(context: Context, m: Match) -> Span | None:
    token = m.all("MD")[0]
    span = m.spans()[0]
    if m.has("ON", "IN", "WEEKDAY"):
        return span
    if "/" not in token.text:
        return None
    first, second = (int(part) for part in token.text.replace(" ", "").split("/"))
    if first < second <= 10 or (first, second) == (24, 7):
        return span if not m.has("COMMA") and m.before is None and m.after is None else None
    return change(span, confidence=0.7)


@BARE("month", "(IN|THE|OF) WMONTH")
@BARE("month", "(?<= BETWEEN | FROM | SINCE | UNTIL | BEFORE | AFTER | TO | AND | DASH) WMONTH")
@BARE("month", "MONTH DOT?")
def _month(context: Context, m: Match) -> Span | None:
    if joined(m) or (m.has("NUM") and (m.before is None or m.before.kind not in _BEFORE_DAY)):
        return None  # French "les sept nains" are no September
    only_article = m.has("WMONTH") and m.has("THE") and not m.has("OF", "IN")
    if only_article and context.language == "en" and not context.is_capital(m.tokens[-1].start):
        return None  # "the march on Washington"
    if m.before is not None and m.has("WMONTH") and m.before.kind in _CONNECTORS:
        other = m.back(2)  # "to march" is no month, "from January to March" is
        if other is None or other.kind not in MONTHS:
            return None
    word = m.one("WMONTH")
    short = word is not None and word.end - word.start <= 3 and context.language != "en"
    other = m.ahead(2)
    ranged = m.after is not None and m.after.kind in _CONNECTORS
    ranged = ranged and other is not None and other.kind in MONTHS
    linked = m.has("IN", "THE", "OF") or (m.before is not None and m.before.kind in chars_of("OF"))
    if short and linked and not ranged:
        return None  # Spanish "el mar" is the sea: a short form needs a year or a day
    return latest_month(context, m.number("MON"))


@NAMED("month and day", f"{_PREFIX} THE? (ORD | NUM DOT) (ORD | NUM DOT) YEAR?")
def _dotted_month(context: Context, m: Match) -> Span | None:
    """German writes and says the month as a number: "27. 11.", "der siebte vierte"."""
    if "dotted_months" not in context.options:
        return None
    day, month = (day_of_month(t) for t in m.all("DOM")[:2])
    if m.has("YEAR"):
        return exact(days.day(m.number("YEAR"), month, day), 0.9, explicit=True)
    return latest_day(context, month, day)


@BARE("day of the month", "NUM MDAY OF? WEEKDAY")
@BARE("day of the month", "NUM WEEKDAY (?! LATER | AGO)")
def _number_and_weekday(context: Context, m: Match) -> Span | None:
    if not m.has("MDAY") and "verb_last" not in context.options:
        return None
    return _weekday_and_number(context, m)


@NAMED("date", "NUM OF NUM OF YEAR")
@BARE("month and day", "(THE | ON | IN) NUM OF NUM (?! UNIT | UTIME | NUM)")
def _numbered_month(context: Context, m: Match) -> Span | None:
    if "numbered_months" not in context.options:
        return None
    day, month = m.all("NUM")
    if not day.text or not month.text:
        return None
    if m.has("YEAR"):
        found = days.day(m.number("YEAR"), day_of_month(month), day_of_month(day))
        return exact(found, 0.95, explicit=True)
    return latest_day(context, day_of_month(month), day_of_month(day))


_CONNECTORS = any_of("TO AND DASH UNTIL")


@BARE("day of the month", "WEEKDAY COMMA? (THE|ON)? UDAY? DOM DOT?")
def _weekday_and_number(context: Context, m: Match) -> Span | None:
    """With an article, this month's such day if its weekday is right; else the latest that fits."""
    weekday, number = m.number("WEEKDAY") - 1, day_of_month(m.one("DOM"))
    today = context.today
    counted = (_COUNTED | _UNITS) - (_CONNECTORS - chars_of("DASH"))
    verb = m.after is not None and m.after.kind == OTHER and "verb_last" in context.options
    if m.after is not None and m.after.kind in counted and not m.has("ORD") and not verb:
        return None
    if m.after is not None and (m.after.kind in _HALVES or m.after.text in _HOURS):
        return None  # Turkish "cuma dokuz buçukta", Chinese 周五九点: an hour
    spelled = m.one("ORD")
    if spelled is not None and not spelled.text and "ordinal_after" in context.options:
        return exact(days.nth_weekday(days.period("month", today), weekday, number), 0.8)
    first = 0 if m.has("THE") else None
    for back in range(240):
        try:
            month = days.plus_months(today.replace(day=1), -back)
            found = days.day(month.year, month.month, number)
        except OverflowError:
            continue
        if found.weekday() == weekday and (found <= today or back == first):
            return exact(found, 0.85)
    return None


_ON = chars_of("ON")
_HALVES, _HOURS = chars_of("HALFWORD"), frozenset("点時时시")

_BEFORE_DAY = any_of(
    "ON IN STOP COMMA OF SINCE BEFORE AFTER UNTIL FROM TO STARTING DATE AND BETWEEN"
)


@BARE("day of the month", "ON? THE ORD (?! UNIT | X | NUM | OF | WMONTH)")
@BARE("day of the month", "ON THE ORD (?= X)")
@BARE(
    "day of the month",
    "ON THE? DOM DOT? (?! UNIT | X | NUM | OF | UTIME | CLOCK | AND | SLASH | DASH | COLON)",
)
@BARE("day of the month", "THE NUM DOT? (?= STOP | $)")
@BARE(
    "day of the month",
    "THE NUM DOT? (?! UNIT | X | NUM | OF | UTIME | CLOCK | AND | SLASH | DASH | COLON)",
)
@BARE("day of the month", f"(ON | THE | IN)* UDAY NUM {_NOT_COUNTED}")
@BARE("day of the month", "THE? DOM MDAY")
@BARE("day of the month", "(UMONTH OF?)? NUM (DOMEND | LOC DOMEND)")
def _day_of_month(context: Context, m: Match) -> Span | None:
    number = m.all("DOM")[0]
    verb_last = "verb_last" in context.options
    if m.after is not None and m.after.kind == OTHER and m.has("ORD") and not verb_last:
        return None
    ended = m.after is None or m.after.kind in chars_of("STOP") | chars_of("DOT")
    closing = ended and m.has("THE") and "article_day" in context.options
    if (
        not closing
        and m.before is not None
        and m.before.kind not in _BEFORE_DAY
        and not m.has("ON", "MDAY", "UDAY", "DOMEND")
    ):
        return None
    if is_name(context, m):
        return None
    if m.has("NUM") and m.before is not None and m.before.kind in chars_of("UNIT"):
        return None  # French "un an sur deux"
    if m.has("UDAY") and not m.has("ON", "THE") and "numbered_days" not in context.options:
        return None  # "day 21"; Spanish and Portuguese number the days of a month so
    return numbered_day(context, number)


def numbered_day(context: Context, number: Token) -> Span | None:
    """The latest day of a month with this number up to the anchor's, or the next where plans are
    asked for."""
    day = day_of_month(number)
    today = context.today
    month = today.replace(day=1)
    ahead = asks_what_is_planned(context)
    for _ in range(12):
        try:
            found = days.day(month.year, month.month, day)
        except OverflowError:
            found = None
        if found is not None and (found >= today if ahead else found <= today):
            return exact(found, 0.8, day=day)
        month = days.plus_months(month, 1 if ahead else -1)
    return None


@BARE(
    "weekday",
    "(?<= IN | ON | SINCE | UNTIL | BEFORE | AFTER) ORD (?= STOP | DOT | COMMA | CLOCK | $)",
)
def _numbered_weekday(context: Context, m: Match) -> Span | None:
    """Portuguese "na segunda", the second day of the week: Monday; "no segundo" is no day."""
    number, word = m.number("ORD"), m.all("ORD")[0]
    if "numbered_weekdays" not in context.options or word.text or not 2 <= number <= 6:
        return None
    led = m.before is not None and m.before.kind in _ON | chars_of("IN")
    if len(context.text) > QUESTION or context.text[word.end - 1] != "a":
        return None  # "no segundo"
    if led and _has_a_rank(context):
        return None
    return latest_weekday(context, number - 2)


def _has_a_rank(context: Context) -> bool:
    """Or where "quinta" is an estate."""
    return is_said(_RANKED, context.text)


_RANKED = re.compile(r"\b(?:ficou|chegou|terminou|colocad\w+|mora|moram|vive|vivem|fica)\b")


@BARE("week of", "THE? UWEEK (OF|THE)+ NUM (?! X | UNIT | OF | NUM | MON)")
def _week_of_day(context: Context, m: Match) -> Span | None:
    day = day_of_month(m.one("NUM"))
    month = context.today.replace(day=1)
    while (found := days.day(month.year, month.month, day)) > context.today:
        month = days.plus_months(month, -1)
    return Span(*days.week(found), "week", 0.75)


@BARE("weekday of this month", "THE? ORD WEEKDAY")
def _nth_weekday(context: Context, m: Match) -> Span | None:
    month = days.period("month", context.today)
    return exact(days.nth_weekday(month, m.number("WEEKDAY") - 1, m.number("ORD")), 0.8)


@BARE("month and day", "WEEKDAY NUM DASH NUM")
@BARE(
    "month and day",
    "(IN | ON | THE) NUM DASH NUM (?! UNIT | UTIME | NUM | OF | DASH | SLASH)",
)
def _weekday_and_numbers(context: Context, m: Match) -> Span | None:
    first, second = (day_of_month(t) for t in m.all("NUM"))
    if first <= 12 and second <= 12 and not m.has("WEEKDAY", "IN", "ON"):
        return None
    if any(not t.text for t in m.all("NUM")):
        return None
    first, second = (day_of_month(t) for t in m.all("NUM"))
    swap = first > 12 or (context.day_first and second <= 12)
    month, day = (second, first) if swap else (first, second)
    return latest_day(context, month, day)


@BARE("weekday", "DAY (UDAY (?! AGO | LATER) | DOT)?")
@BARE("weekday", "(?<= ON | TO | UNTIL | BEFORE | AFTER | FROM | SINCE) WDAY")
def _weekday(context: Context, m: Match) -> Span | None:
    """The last one before today; in languages that count so, the one of this week."""
    led = m.before is not None and m.before.kind in _ON
    if m.has("WDAY") and not m.has("DAY") and not led and context.language == "en":
        return None  # "after sun"
    return latest_weekday(context, m.number("WEEKDAY") - 1)


def latest_weekday(context: Context, weekday: int) -> Span:
    """The last one before today, or the next where plans are asked for; in languages that count so,
    the one of this week."""
    today = context.today
    if "weekday_of_this_week" in context.options:
        found = days.plus_days(days.week(today)[0], weekday)
        if found > today and told_in_the_past(context):
            found = days.plus_days(found, -7)
    elif asks_what_is_planned(context):
        found = days.plus_days(today, (weekday - today.weekday() - 1) % 7 + 1)
    else:
        found = days.plus_days(today, -((today.weekday() - weekday - 1) % 7 + 1))
    return exact(found, 0.85, weekday=weekday)
