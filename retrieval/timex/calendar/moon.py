"""New and full moons, to within some minutes (Meeus, Astronomical Algorithms, chapter 49), and the
Hindu feasts that follow from them, by the clock of India."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from math import floor, radians, sin

_INDIA = timedelta(hours=5, minutes=30)
_EVENING = timedelta(hours=17)
"""A full moon after it still holds on that evening, and the day after is the feast."""
_NIGHT = timedelta(hours=18, minutes=30)
"""Until then a new moon is over before the lamps are lit, and they were lit the evening before."""

# Sines of (M, M', F) by their multiples, with E's power: the coefficients in days.
_NEW = (
    (-0.40720, 0, 1, 0, 0), (0.17241, 1, 0, 0, 1), (0.01608, 0, 2, 0, 0), (0.01039, 0, 0, 2, 0),
    (0.00739, -1, 1, 0, 1), (-0.00514, 1, 1, 0, 1), (0.00208, 2, 0, 0, 2),
)  # fmt: skip
_FULL = (
    (-0.40614, 0, 1, 0, 0), (0.17302, 1, 0, 0, 1), (0.01614, 0, 2, 0, 0), (0.01043, 0, 0, 2, 0),
    (0.00734, -1, 1, 0, 1), (-0.00515, 1, 1, 0, 1), (0.00209, 2, 0, 0, 2),
)  # fmt: skip
_MONTH = 29.530588861


def holi(year: int) -> date:
    """The day of colours: after the evening of the first full moon from 28 February on."""
    moon = _phase_from(datetime(year, 2, 28), full=True)
    return (moon + timedelta(days=1) - _EVENING).date()


def diwali(year: int) -> date:
    """The last evening before the first new moon from 18 October on."""
    moon = _phase_from(datetime(year, 10, 18), full=False)
    return (moon - _NIGHT).date()


def _phase_from(start: datetime, *, full: bool) -> datetime:
    """The first such moon from a moment on, both by the clock of India; OverflowError for years
    that no calendar has."""
    try:
        years = start.year + start.timetuple().tm_yday / 365.25 - 2000
        number = floor(years * 12.3685) - 1 + (0.5 if full else 0)
        while (found := _phase(number, full=full) + _INDIA) < start:
            number += 1
    except ValueError:
        raise OverflowError(f"no moon is known for {start.year}") from None
    return found


def _phase(k: float, *, full: bool) -> datetime:
    t = k / 1236.85
    day = 2451550.09766 + _MONTH * k + 0.00015437 * t * t
    e = 1 - 0.002516 * t - 0.0000074 * t * t
    sun = radians(2.5534 + 29.10535670 * k)
    moon = radians(201.5643 + 385.81693528 * k + 0.0107582 * t * t)
    latitude = radians(160.7108 + 390.67050284 * k - 0.0016118 * t * t)
    for size, suns, moons, latitudes, power in _FULL if full else _NEW:
        day += size * e**power * sin(suns * sun + moons * moon + latitudes * latitude)
    seconds_ahead = 64 + 60 * t  # of dynamical time, in our century
    return datetime(2000, 1, 1, 12) + timedelta(days=day - 2451545.0, seconds=-seconds_ahead)
