"""Rules for periods by name or number: years, quarters, seasons, decades, centuries, weeks."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import plausible, shift_of
from retrieval.timex.engine.grammar import (
    OTHER,
    Context,
    Match,
    Rules,
    Span,
    Token,
    change,
    chars_of,
)
from retrieval.timex.rules.dates import exact, year_of

ERAS = Rules()


@ERAS("fiscal year", "(IN|THE|OF)* FISCAL UYEAR? OF? (YEAR|NUM)")
@ERAS("fiscal year", "(IN|THE|OF)* YEAR YMARK? FISCAL UYEAR?")
@ERAS("fiscal year", "(IN|THE|OF)* MOD FISCAL UYEAR?")
def _fiscal_year(context: Context, m: Match) -> Span | None:
    start = context.settings.fiscal_year_start_month
    number = m.one("YEAR", "NUM")
    if number is None:
        today = context.today
        year = today.year + (start > 1 and today.month >= start) + shift_of(m)
    else:
        year = year_of(context, number)
    first = days.day(year - (start > 1), start, 1)
    return Span(first, days.plus_days(days.plus_months(first, 12), -1), "year", 0.9, explicit=True)


@ERAS("fiscal year", "YEAR FYEAR | FYEAROFF")
def _year_from_april(context: Context, m: Match) -> Span:
    """Japanese 年度: from April, unless told otherwise; it bears the number of its first year."""
    start = context.settings.fiscal_year_start_month
    month = 4 if start == 1 else start
    today = context.today
    if m.has("YEAR"):
        year = m.number("YEAR")
    else:
        year = today.year - (today.month < month) + m.number("FYEAROFF")
    first = days.day(year, month, 1)
    last = days.plus_days(days.plus_months(first, 12), -1)
    return Span(first, last, "year", 0.9, explicit=m.has("YEAR"))


_LINKS = "(OF|IN|COMMA|DASH|SLASH|THE)*"

_YEAR_OF = "THE? UYEARS? YEAR YMARK?"

_ANY = "(SEASON | LONESEASON)"
_NTH = (
    "(QN | HN | ORD UQUARTER | ORD UHALF "
    "| (ORD | NUM DOT) (?= (AND|TO|DASH|UNTIL) THE? ORD UQUARTER))"
)

_TAIL = "(TO|PUNTIL|PBETWEEN|OF)*"


@ERAS(
    "quarter", f"(IN|THE)* (QN | ORD UQUARTER | UQUARTER (NUM | ORD)) {_LINKS} UYEARS? YEAR YMARK?"
)
@ERAS("quarter", f"YEAR YMARK? {_LINKS} (QN | ORD UQUARTER | UQUARTER NUM | NUM UQUARTER)")
@ERAS("half", f"(IN|THE)* (HN | ORD (UHALF | HALFWORD)) {_LINKS} UYEARS? YEAR YMARK?")
@ERAS("half", f"YEAR YMARK? {_LINKS} (HN | ORD (UHALF | HALFWORD))")
def _part_of_year(context: Context, m: Match) -> Span:
    return part_of_year(m, m.number("YEAR"))


def part_of_year(m: Match, year: int) -> Span:
    """The quarter or half that a match names, in this year."""
    if m.has("HN", "UHALF", "HALFWORD"):
        size, number = 6, m.number("HN", "ORD")
    else:
        size, number = 3, m.number("QN", "ORD", "NUM")
    if not 1 <= number <= 12 // size:
        raise LookupError("no such part")
    first, last = days.months(year, size * (number - 1) + 1, size * number)
    return Span(first, last, "half" if size == 6 else "quarter", explicit=True)


@ERAS(
    "quarters",
    f"(IN|THE|FROM|BETWEEN)* {_NTH} (AND|TO|DASH|UNTIL) THE? {_NTH} {_LINKS} UYEARS? YEAR",
)
def _parts_of_year(context: Context, m: Match) -> Span | None:
    """ "Q1 to Q3 2024": the year stands once for both."""
    return parts_of_year(m, m.number("YEAR"))


def parts_of_year(m: Match, year: int) -> Span | None:
    """From the first to the second quarter or half that a match names, in this year."""
    size = 6 if m.has("HN", "UHALF") else 3
    first, last = (int(str(token.value)) for token in m.all("QN", "HN", "ORD", "NUM"))
    if not 1 <= first < last <= 12 // size:
        return None
    span = days.months(year, size * (first - 1) + 1, size * last)
    return Span(*span, "half" if size == 6 else "quarter", explicit=True)


@ERAS("seasons", f"(FROM|IN|THE|BETWEEN)* {_ANY} (AND|TO|DASH|UNTIL) THE? {_ANY} {_LINKS} YEAR")
def _seasons_of_year(context: Context, m: Match) -> Span | None:
    first, last = (
        season(context, int(str(token.value)), m.number("YEAR"))
        for token in m.all("SEASON", "LONESEASON")
    )
    if first.first is None or last.last is None or first.first >= last.last:
        return None
    return Span(first.first, last.last, "season", 0.9)


@ERAS("season", f"(IN|THE|OF)* {_ANY} {_LINKS} YEAR (DASH | SLASH) YEAR")
def _season_over_two_years(context: Context, m: Match) -> Span | None:
    begin, end = (int(str(token.value)) for token in m.all("YEAR"))
    return season(context, m.number("SEASON", "LONESEASON"), begin) if end == begin + 1 else None


@ERAS("season", f"(IN|THE|OF)* (SEASON|LONESEASON) {_LINKS} UYEARS? YEAR YMARK?")
@ERAS("season", f"YEAR YMARK? {_LINKS} (SEASON|LONESEASON)")
def _season_of_year(context: Context, m: Match) -> Span:
    return season(context, m.number("SEASON", "LONESEASON"), m.number("YEAR"))


@ERAS("season", "THE? (SEASON|LONESEASON) BEFORE THE? PREV (?! UNIT)")
@ERAS("season", "THE? (SEASON|LONESEASON) AFTER THE? NEXT (?! UNIT)")
def _season_but_one(context: Context, m: Match) -> Span:
    """ "The summer before last"."""
    return _nth_season(context, m.number("SEASON", "LONESEASON"), -2 if m.has("PREV") else 2)


@ERAS("season", "(IN|THE)* (SEASON|LONESEASON) OF? APOSTROPHE NUM")
@ERAS("season", "THE? (SEASON|LONESEASON) OF NUM")
def _season_of_short_year(context: Context, m: Match) -> Span | None:
    number = m.all("NUM")[0]
    if len(number.text) != 2 or not (m.has("APOSTROPHE") or m.number("NUM") > 31):
        return None
    return season(context, m.number("SEASON", "LONESEASON"), year_of(context, number))


@ERAS("season", "THE? THIS? PAST (SEASON|LONESEASON)")
def _past_season(context: Context, m: Match) -> Span:
    return _nth_season(context, m.number("SEASON", "LONESEASON"), -1)


@ERAS("season", "THE? MOD (SEASON|LONESEASON)")
@ERAS("season", "THE? (SEASON|LONESEASON) MOD (?! UNIT)")
def _moved_season(context: Context, m: Match) -> Span:
    return _nth_season(context, m.number("SEASON", "LONESEASON"), shift_of(m))


_SEASONS = ("SEASONS", "SEASON", "LONESEASON")


@ERAS("season", "NUM (SEASONS|SEASON|LONESEASON) AGO")
@ERAS("season", "PREAGO NUM (SEASONS|SEASON|LONESEASON)")
def _seasons_ago(context: Context, m: Match) -> Span | None:
    count = m.number("NUM")
    return _nth_season(context, m.number(*_SEASONS), -count) if 1 <= count <= 50 else None


def _nth_season(context: Context, number: int, shift: int) -> Span:
    """The `shift`-th instance of a season that is over (negative) or to come; 0 is this one."""
    today = context.today
    near = [season(context, number, y) for y in range(today.year - 52, today.year + 3)]
    if shift < 0:
        past = [s for s in near if s.last is not None and s.last < today]
        return past[shift]
    if shift > 0:
        return [s for s in near if s.first is not None and s.first > today][shift - 1]
    for found in near:
        if found.first and found.last and found.first <= today <= found.last:
            return found
    return near[-3]


@ERAS("season", "PREVSEASON")
def _last_season(context: Context, m: Match) -> Span:
    return _nth_season(context, m.number("PREVSEASON"), -1)


@ERAS(
    "season",
    "(IN|SINCE) THE? SEASON (?! X SEASON | (OF|THE|IN)* (MOD | UNIT MOD | YEAROFF | DATE))",
)
def _season(context: Context, m: Match) -> Span | None:
    if m.has("SINCE"):
        return None
    return latest_season(context, m.number("SEASON", "LONESEASON"))


def latest_season(context: Context, number: int) -> Span:
    """The latest instance of a season that has begun."""
    today = context.today
    for year in (today.year, today.year - 1, today.year - 2):
        found = season(context, number, year)
        if found.first is not None and found.first <= today:
            return change(found, confidence=0.85)
    raise OverflowError


def season(context: Context, number: int, year: int) -> Span:
    """Season 1-4 (spring first) that starts in this year: meteorological, three whole months."""
    if context.settings.hemisphere == "south":
        number = (number + 1) % 4 + 1
    first = days.day(year, 3 * number, 1)
    last = days.plus_days(days.plus_months(first, 3), -1)
    return Span(first, last, "season", 0.95)


@ERAS("decade", "(IN|THE)* (NUM|ORD) UCENTURY OF? (THE|OF)* NUM DECS")
def _decade_of_century(context: Context, m: Match) -> Span:
    numbers = m.all("NUM", "ORD")
    century = m.number("NUM", "ORD")
    tens = int(str(numbers[-1].value))
    first = (century - 1) * 100 + tens // 10 * 10
    return _decade(first)


def _decade(first: int) -> Span:
    start, end = days.years(first, first + 9)
    return Span(start, end, "decade", 0.95)


@ERAS("decade", "(IN|THE|OF)* UDECADE? (OF|THE)* YEAR DECS UDECADE?")
@ERAS("decade", "(IN|THE|OF)* (DECPRE|UDECADE) (OF|THE)* YEAR")
@ERAS("decade", "(IN|THE|OF)* YEAR OF? UDECADE")
@ERAS("decade", "YEAR YMARK? DECS")
def _decade_of_year(context: Context, m: Match) -> Span:
    year = m.number("YEAR")
    by_hundreds = m.has("DECS") and "centuries_by_hundreds" in context.options
    # Swedish "1800-talet"; "2000-talet" is as often its first ten years.
    if by_hundreds and year % 100 == 0 and year < 2000:
        return Span(*days.years(year, year + 99), "century", 0.95)
    return _decade(year // 10 * 10)


@ERAS("decade", "(IN|THE|OF)* (DECPRE|UDECADE) (OF|THE)* APOSTROPHE? NUM")
@ERAS("decade", "(IN|THE|OF)* APOSTROPHE? NUM APOSTROPHE? DECS UDECADE?")
@ERAS("decade", "(IN|THE|OF)* NUM (OF UDECADE | UDECADE OF)")
@ERAS("decade", "(IN|THE|OF)* UYEAR APOSTROPHE? (NUM | YEAR)")
def _decade_of_two_digits(context: Context, m: Match) -> Span | None:
    if m.has("UYEAR") and m.all("UYEAR")[0].value != 2:
        return None
    if m.before is not None and m.before.kind in chars_of("UCENTURY"):
        return None
    tens = m.number("NUM", "YEAR")
    if m.has("YEAR"):
        return _decade(tens) if tens % 10 == 0 else None
    if tens % 10 or tens > 99:
        return None
    century = context.today.year // 100 * 100
    first = century + tens
    return _decade(first if first <= context.today.year else first - 100)


@ERAS("decade", "(IN|THE|OF)* (DECPRE|UDECADE)? (OF|THE)* NUM? (DASH)? DECADE UDECADE?")
def _decade_in_words(context: Context, m: Match) -> Span:
    value = m.number("DECADE")
    if m.has("NUM"):
        value = m.number("NUM") * 100 + value
    elif value < 100:
        century = context.today.year // 100 * 100
        value += century if century + value <= context.today.year else century - 100
    return _decade(value)


@ERAS("century", "(IN|THE)* (ORD | NUM ORDEND?) UCENTURY")
@ERAS("century", "UCENTURY (ORD | NUM)")
@ERAS("century", "(IN|THE)* (UCENTURY ROMAN | ROMAN UCENTURY)")
def _century(context: Context, m: Match) -> Span | None:
    number = m.number("ORD", "NUM", "ROMAN")
    if m.after is not None and m.after.kind in chars_of("DECS"):
        return None
    first, last = days.years(max(1, (number - 1) * 100), number * 100 - 1)
    return Span(first, last, "century", 0.95)


@ERAS("century", "(IN|THE|OF|ON)* HUNDREDS")
def _hundreds(context: Context, m: Match) -> Span:
    """Italian "Ottocento", Swedish "artonhundratalet": the century by its hundreds."""
    first = m.number("HUNDREDS")
    return Span(*days.years(first, first + 99), "century", 0.95)


@ERAS("year", "YEAR (?! X UNIT | UNIT | UTIME)")
def _year_in_one_word(context: Context, m: Match) -> Span | None:
    """German "neunzehnhundertneunundachtzig", Italian "millenovecentottantaquattro", which count
    nothing."""
    year = m.all("YEAR")[0]
    after = m.after
    counts = after is not None and after.kind == OTHER and context.is_capital(after.start)
    if year.text or context.language not in _ONE_WORD or year.end - year.start < 12 or counts:
        return None
    if not 1100 <= m.number("YEAR") <= context.today.year + 20 or m.number("YEAR") % 100 == 0:
        return None
    return Span(*days.year(m.number("YEAR")), "year", 0.8, explicit=True)


_ONE_WORD = frozenset({"de", "it", "nl", "sv"})


@ERAS("years", f"(FROM|BETWEEN) {_YEAR_OF} FROM? (TO|UNTIL|DASH|AND) {_YEAR_OF} {_TAIL}")
@ERAS("years", f"{_YEAR_OF} (DASH|TO|UNTIL) {_YEAR_OF} {_TAIL}")
@ERAS("years", f"{_YEAR_OF} (FROM|TO|AND|DASH) {_YEAR_OF} OF? (TO|PUNTIL|PBETWEEN)+")
def _years(context: Context, m: Match) -> Span | None:
    first, last = (int(str(t.value)) for t in m.all("YEAR"))
    if not (plausible(context, first) and plausible(context, last) and first < last):
        return None
    return Span(*days.years(first, last), "year", 0.9, explicit=True)


@ERAS(
    "week number",
    "(IN|THE|FROM|BETWEEN)* UWEEK NUM (DASH|TO|AND|UNTIL) UWEEK? NUM "
    f"({_LINKS} UYEARS? YEAR | (?! UNIT))",
)
def _numbered_weeks(context: Context, m: Match) -> Span | None:
    first, last = m.all("NUM")[:2]
    year = m.number("YEAR") if m.has("YEAR") else context.today.year
    if not (first.text and last.text):
        return None
    begin = days.numbered_week(year, int(first.text))[0]
    end = days.numbered_week(year, int(last.text))[1]
    return Span(begin, end, "week", 0.9) if begin < end else None


@ERAS("week number", "(IN|THE|FROM|BETWEEN)* UWEEK NUM (DASH|TO|AND|UNTIL) DATE")
def _up_to_a_week(context: Context, m: Match) -> Span | None:
    """ "Week 10 to week 12 of 2024"."""
    end, number = m.spans()[0], m.all("NUM")[0]
    if end.rule != "week number" or end.last is None or not number.text:
        return None
    year = days.plus_days(end.last, -3).year
    begin = days.numbered_week(year, m.number("NUM"))[0]
    return Span(begin, end.last, "week", 0.9) if begin < end.last else None


@ERAS("week number", f"(IN|THE)* UWEEK OF? NUM {_LINKS} UYEARS? YEAR YMARK?")
@ERAS("week number", f"YEAR YMARK? {_LINKS} UWEEK NUM")
@ERAS("week number", f"YEAR YMARK? {_LINKS} ORD UWEEK")
@ERAS("week number", "(IN|THE)* UWEEK NUM (?! UNIT)")
@ERAS("week number", "NUM ORDEND UWEEK")
def _numbered_week(context: Context, m: Match) -> Span | None:
    if m.has("NUM") and not m.all("NUM")[0].text:
        return None
    number = m.number("NUM", "ORD")
    year = m.number("YEAR") if m.has("YEAR") else context.today.year
    return Span(*days.numbered_week(year, number), "week", 0.9)


@ERAS(
    "years", "IN (THE|UYEAR)* YEAR YMARK? (UYEAR | LOC)? AND YEAR (YMARK | UYEAR | LOC)* (?! UNIT)"
)
@ERAS("years", "YEAR YMARK AND YEAR YMARK | YEAR AND YEAR (UYEAR | LOC)")
def _two_years(context: Context, m: Match) -> Span | None:
    """ "In 2020 and 2021": years that follow each other."""
    first, last = (int(str(token.value)) for token in m.all("YEAR"))
    if last != first + 1 or not (plausible(context, first) and plausible(context, last)):
        return None
    return Span(*days.years(first, last), "year", 0.9, explicit=True)


@ERAS(
    "year",
    "IN (OF|THE|DASH)* UYEAR? OF? YEAR YMARK? (?! DOT NUM | SLASH | DASH NUM | MON)",
)
@ERAS("year", "IN NUM YMARK")
@ERAS(
    "year", "NEAR (THE|IN|OF|UYEAR)* YEAR YMARK? (?! UNIT | UTIME | DASH | SLASH | DOT NUM | MON)"
)
@ERAS("year", "YEAR YMARK")
@ERAS("year", "YEAR (UYEAR | LOC) (?! MON | OF? MON)")
@ERAS("year", "NUM YMARK (?! AGO | LATER | UNIT | HALFWORD | PAFTER | PBEFORE | MON | WITHINPOST)")
@ERAS("year", "UYEAR OF? YEAR (?! MON)")
def _year(context: Context, m: Match) -> Span | None:
    token = m.all("YEAR")[0] if m.has("YEAR") else m.all("NUM")[0]
    if token.kind in chars_of("NUM"):
        if len(token.text) == 3:
            return _whole_year(m.number("NUM"))
        if len(token.text) != 2 and not (m.number("NUM") < 10 and _two_words(token)):
            return None
        return _whole_year(year_of(context, token))
    year = m.number("YEAR")
    spelled = not token.text
    if spelled and year % 1000 == 0 and m.after is not None and m.after.kind == OTHER:
        return None  # "in two thousand requests"
    if not plausible(context, year) and not (
        (m.has("UYEAR", "YMARK") or spelled) and 1000 <= year <= 2999
    ):
        return None
    if m.has("YMARK") and not plausible(context, year) and not m.has("IN"):
        return _whole_year(year) if year < context.today.year else None
    return _whole_year(year)


@ERAS("year", "(UDAY | UWEEK | UMONTH | UQUARTER | UWEEKEND) (OF | IN)* YEAR (?! MON | UNIT)")
def _year_of_what(context: Context, m: Match) -> Span | None:
    """ "In which month of 2022": the year that the asked time lies in."""
    asked = m.before is not None and m.before.text in _WHICH
    return _whole_year(m.number("YEAR")) if asked and plausible(context, m.number("YEAR")) else None


_WHICH = frozenset({
    "which", "what", "welche", "welchem", "welchen", "welcher", "welches", "quel", "quelle",
    "que", "cual", "quale", "che", "welke", "welk", "qual", "vilken", "vilket", "hangi",
    "ktory", "ktorym", "ktore", "какои", "каком", "какую",
})  # fmt: skip


@ERAS(
    "year",
    "(?<= IN | OF | SINCE | BEFORE | AFTER | FROM | TO | UNTIL | BETWEEN | AND)"
    "APOSTROPHE NUM (?! DECS | UNIT | APOSTROPHE | DASH | SLASH | COLON)",
)
def _short_year(context: Context, m: Match) -> Span | None:
    """ "In '18": an apostrophe for the century."""
    number = m.all("NUM")[0]
    return _whole_year(year_of(context, number)) if len(number.text) == 2 else None


def _two_words(token: Token) -> bool:
    return token.end - token.start == 2


def _whole_year(year: int) -> Span:
    first, last = days.year(year)
    return Span(first, last, "year", 0.95, explicit=True)


@ERAS("year", "UYEAR NUM (?! UNIT)")
@ERAS("year", "NUM UYEAR LOC")
def _small_year(context: Context, m: Match) -> Span | None:
    token = m.all("NUM")[0]
    return _whole_year(m.number("NUM")) if len(token.text) == 3 else None


@ERAS("now", "RECENT (?! THIS (NUM | FEW) UNIT)")
def _now(context: Context, m: Match) -> Span:
    return exact(context.today, 0.7, relative=True)
