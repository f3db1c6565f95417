"""Days of other calendars in ours: the Chinese one with its solar terms, the Islamic, the Hebrew.

Both from tables: the Chinese calendar of 1900-2100 (borax), and Umm al-Qura of 1924-2077
(hijridate). Outside of those years: OverflowError. Korea's new moon is at times that of the next
day (1997, 2027), and many countries tell Islamic days by sight: there a feast may be a day off.
"""

from __future__ import annotations

from datetime import date

from borax.calendars.lunardate import LunarDate, TermUtils  # type: ignore[import-untyped]
from hijridate import Gregorian, Hijri


def lunar(year: int, month: int, day: int, *, leap: bool = False) -> date:
    """A day of the Chinese year that begins in `year`; OverflowError where that has none."""
    try:
        found: date = LunarDate(year, month, day, int(leap)).to_solar_date()
    except ValueError:
        raise OverflowError(f"no day {month}-{day} in the Chinese year {year}") from None
    return found


def lunar_year_of(day: date) -> int:
    """The Chinese year that a day lies in, by the year of ours in which it begins."""
    try:
        return day.year - (day < lunar(day.year, 1, 1))
    except OverflowError:
        return day.year


def lunar_month(year: int, month: int, *, leap: bool = False) -> tuple[date, date]:
    """First and last day of a month of the Chinese year that begins in `year`."""
    first = lunar(year, month, 1, leap=leap)
    try:
        return first, lunar(year, month, 30, leap=leap)
    except OverflowError:
        return first, lunar(year, month, 29, leap=leap)


def in_year(month: int, day: int, year: int) -> date:
    """The first instance of a Chinese day in a year of ours; the last before where it has none."""
    if month < 11:  # the rest may lie in the year after
        return lunar(year, month, day)
    found = [lunar(year - 1, month, day), lunar(year, month, day)]
    return next((one for one in found if one.year == year), found[0])


def eve(year: int) -> date:
    """The last day of the Chinese year that ends in `year`."""
    return date.fromordinal(lunar(year, 1, 1).toordinal() - 1)


def solar_term(number: int, year: int) -> date:
    """The day of a solar term, counted from 0, the minor cold in January."""
    try:
        found: date = TermUtils.nth_term_day(year, number)
    except (ValueError, IndexError):
        raise OverflowError(f"no solar terms are known for {year}") from None
    return found


def islamic(month: int, day: int, year: int) -> date:
    """As `in_year`, of an Islamic day."""
    hijri = Gregorian(year, 1, 1).to_hijri().year
    found = [_islamic(hijri + more, month, day) for more in (0, 1)]
    return next((one for one in found if one.year == year), found[0])


def islamic_month(month: int, year: int) -> tuple[date, date]:
    """First and last day of an Islamic month that begins in a year of ours."""
    first = islamic(month, 1, year)
    hijri = Gregorian(first.year, first.month, first.day).to_hijri()
    following = _islamic(hijri.year + month // 12, month % 12 + 1, 1)
    return first, date.fromordinal(following.toordinal() - 1)


def rosh_hashanah(year: int) -> date:
    """The first day of the Hebrew year that begins in a year of ours (Reingold and Dershowitz,
    Calendrical Calculations, chapter 8: mean new moons, put off by the calendar's rules)."""
    return _hebrew_new_year(year + 3761)


def hanukkah(year: int) -> date:
    """The evening before the 25th of Kislev, when its eight days begin."""
    first = rosh_hashanah(year)
    length = (_hebrew_new_year(year + 3762) - first).days
    return date.fromordinal(first.toordinal() + 82 + (length in (355, 385)))


def _hebrew_new_year(year: int) -> date:
    before, this, after = (_molad(one) for one in (year - 1, year, year + 1))
    delay = 2 if after - this == 356 else 1 if this - before == 382 else 0
    return date.fromordinal(this + delay - 1_373_427)


def _molad(year: int) -> int:
    """Days from the calendar's epoch to the new moon that its year begins with."""
    months = (235 * year - 234) // 19
    day = 29 * months + (12_084 + 13_753 * months) // 25_920
    return day + (3 * (day + 1) % 7 < 3)


def _islamic(year: int, month: int, day: int) -> date:
    try:
        found = Hijri(year, month, day).to_gregorian()
    except ValueError:
        raise OverflowError(f"no day {month}-{day} in the Islamic year {year}") from None
    return date(found.year, found.month, found.day)
