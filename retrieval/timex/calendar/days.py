"""Arithmetic on calendar days: periods, shifts, Easter. Beyond years 1-9999: OverflowError."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta, tzinfo

Days = tuple[date, date]
"""First and last day, both inside."""

MONTHS_OF = {"month": 1, "quarter": 3, "half": 6, "year": 12, "decade": 120, "century": 1200}
DAYS_OF = {"day": 1, "night": 1, "week": 7, "weekend": 7, "fortnight": 14}
MINUTES_OF = {"hour": 60, "minute": 1, "second": 1}


def opening(day_: date, zone: tzinfo | None) -> datetime:
    """The first instant of a day of that zone, in UTC; where clocks skip midnight, what follows."""
    return datetime.combine(day_, time.min, zone).astimezone(UTC)


def closing(day_: date, zone: tzinfo | None) -> datetime:
    """The last instant of a day of that zone, in UTC, whatever clocks do on it."""
    if day_ == date.max:
        return datetime.combine(day_, time.max, zone).astimezone(UTC)
    return opening(day_ + timedelta(days=1), zone) - timedelta(microseconds=1)


def later(moment: datetime, minutes: float) -> datetime:
    """So many minutes after an aware moment, on its clocks, though they be changed in between."""
    return (moment.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(moment.tzinfo)


def day(year: int, month: int, day_: int) -> date:
    """That day; OverflowError where the calendar has none."""
    try:
        return date(year, month, day_)
    except ValueError:
        raise OverflowError(f"no day {year}-{month}-{day_}") from None


def plus_days(start: date, count: int) -> date:
    return start + timedelta(days=count)


def plus_months(start: date, count: int) -> date:
    """The same day of another month, or that month's last day where it is shorter."""
    index = start.year * 12 + start.month - 1 + count
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"year {year}")
    return date(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))


def plus(start: date, unit: str, count: int) -> date:
    """`count` units after `start`; business days skip Saturday and Sunday."""
    if unit in MONTHS_OF:
        return plus_months(start, count * MONTHS_OF[unit])
    if unit == "workday":
        return _plus_workdays(start, count)
    return plus_days(start, count * DAYS_OF[unit])


def _plus_workdays(start: date, count: int) -> date:
    weeks, rest = divmod(abs(count), 5)
    step = 1 if count >= 0 else -1
    current = plus_days(start, step * 7 * weeks)
    while rest:
        current = plus_days(current, step)
        rest -= current.weekday() < 5
    return current


def month(year: int, month_: int) -> Days:
    first = day(year, month_, 1)
    return first, date(year, month_, monthrange(year, month_)[1])


def months(year: int, first: int, last: int) -> Days:
    return day(year, first, 1), month(year, last)[1]


def year(year_: int) -> Days:
    return day(year_, 1, 1), day(year_, 12, 31)


def years(first: int, last: int) -> Days:
    return day(first, 1, 1), day(last, 12, 31)


def week(inside: date) -> Days:
    """Monday to Sunday of the ISO week."""
    monday = plus_days(inside, -inside.weekday())
    return monday, plus_days(monday, 6)


def iso_week(year_: int, number: int) -> Days:
    return week(plus_days(day(year_, 1, 4), 7 * (number - 1)))


def numbered_week(year_: int, number: int) -> Days:
    """The ISO week of that number; OverflowError where the year has none."""
    first, last = iso_week(year_, number)
    if not 1 <= number <= 53 or plus_days(first, 3).year != year_:
        raise OverflowError(f"no week {number} in {year_}")
    return first, last


def full_year(written: str, today: date) -> int:
    """A year as written; two digits mean the century that puts it at most 20 years ahead."""
    value = int(written)
    if len(written) > 2:
        return value
    found = today.year // 100 * 100 + value
    return found - 100 if found > today.year + 20 else found


def period(unit: str, inside: date) -> Days:
    """The calendar period of this unit that holds the day."""
    if unit in ("day", "night", "workday"):
        return inside, inside
    if unit == "week":
        return week(inside)
    if unit == "weekend":
        monday = week(inside)[0]
        return plus_days(monday, 5), plus_days(monday, 6)
    if unit == "month":
        return month(inside.year, inside.month)
    if unit in ("quarter", "half"):
        size = MONTHS_OF[unit]
        first = (inside.month - 1) // size * size + 1
        return months(inside.year, first, first + size - 1)
    if unit == "year":
        return year(inside.year)
    size = MONTHS_OF[unit] // 12
    first = inside.year // size * size
    return years(max(1, first), first + size - 1)


def nth_weekday(days: Days, weekday: int, nth: int) -> date:
    """The nth such weekday of a period, from its end where nth < 0; OverflowError if none."""
    if nth > 0:
        found = plus_days(days[0], (weekday - days[0].weekday()) % 7 + 7 * (nth - 1))
    else:
        found = plus_days(days[1], -((days[1].weekday() - weekday) % 7) + 7 * (nth + 1))
    if not days[0] <= found <= days[1]:
        raise OverflowError("no such weekday in the period")
    return found


def nth_week(days: Days, nth: int) -> Days:
    """A period has the weeks whose Thursday lies in it (ISO 8601), counted from 1, or from -1."""
    return week(nth_weekday(days, 3, nth))


def easter(year_: int) -> date:
    """Gregorian Easter Sunday (Meeus, Astronomical Algorithms, chapter 8)."""
    a, (b, c) = year_ % 19, divmod(year_, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    j = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * j) // 451
    n, p = divmod(h + j - 7 * m + 114, 31)
    return day(year_, n, p + 1)


def orthodox_easter(year_: int) -> date:
    """Julian Easter Sunday in the Gregorian calendar of 1900-2099 (Meeus, chapter 8)."""
    d = (19 * (year_ % 19) + 15) % 30
    e = (2 * (year_ % 4) + 4 * (year_ % 7) - d + 34) % 7
    m, p = divmod(d + e + 114, 31)
    return plus_days(day(year_, m, p + 1), 13)
