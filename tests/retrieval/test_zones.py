"""Whose days are meant: offsets, named zones, changes of clocks, and memories without a time."""

import contextlib
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval import timex, zones
from retrieval.bank.filters import bounds, by_date, overlaps
from retrieval.errors import InvalidInput
from retrieval.types import NO_TIME, Filters, RecallQuery, Window, microseconds

pytestmark = pytest.mark.unit

TOKYO = timezone(timedelta(hours=9))


def query(now: datetime, **changes: object) -> RecallQuery:
    return replace(RecallQuery("t", "b", "yesterday", now), **changes)  # type: ignore[arg-type]


def window(text: str, now: datetime) -> tuple[str, str]:
    """The window of a text on the clocks of `now`."""
    found = timex.parse(text, now)
    assert found is not None
    shown = zones.window_seen(found.window, now.tzinfo)
    assert shown.start is not None
    assert shown.end is not None
    return shown.start.isoformat(), shown.end.isoformat()


# Names


@pytest.mark.parametrize(
    ("name", "right"),
    [("europe/berlin", "Europe/Berlin"), ("UTC", "UTC"), (" Asia/Kathmandu ", "Asia/Kathmandu")],
)
def test_names(name: str, right: str) -> None:
    assert zones.canonical(name) == right


@pytest.mark.parametrize(
    "name", ["", "+09:00", "Mars/Olympus", "../../etc/passwd", "America", "/", "\x00", "x" * 9999]
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="IANA") as told:
        zones.canonical(name)
    assert len(str(told.value)) < 400


# What a time without an offset means

NAIVE = datetime(2026, 7, 1, 3)


@pytest.mark.parametrize(
    ("own", "default", "hours"),
    [(None, None, 0), (None, "Asia/Tokyo", 9), ("Asia/Tokyo", "Europe/Berlin", 9)],
)
def test_the_recalls_own_zone_wins(own: str | None, default: str | None, hours: int) -> None:
    found = zones.settled(query(NAIVE, timezone=own), default)
    assert found.now.replace(tzinfo=None) == NAIVE
    assert found.now.utcoffset() == timedelta(hours=hours)


def test_an_offset_wins_over_every_zone() -> None:
    given = query(NAIVE.replace(tzinfo=TOKYO), timezone="America/New_York")
    assert zones.settled(given, "Europe/Berlin").now == given.now
    assert zones.settled(given, "Europe/Berlin").now.utcoffset() == timedelta(hours=9)


def test_the_clock_is_seen_in_the_zone() -> None:
    now = datetime(2026, 6, 30, 18, tzinfo=UTC)
    found = zones.settled(query(now, from_clock=True), "Asia/Tokyo").now
    assert found == now
    assert found.day == 1


def test_windows_and_as_of_without_an_offset_are_local_too() -> None:
    day = Window(datetime(2026, 6, 30), datetime(2026, 6, 30, 23, 59))
    asked = query(NAIVE, window=day, filters=Filters(window=day, as_of=datetime(2026, 7, 1)))
    found = zones.settled(asked, "Asia/Tokyo")
    assert found.window == found.filters.window
    assert found.window is not None
    assert found.window.start == datetime(2026, 6, 29, 15, tzinfo=UTC)
    assert found.filters.as_of == datetime(2026, 6, 30, 15, tzinfo=UTC)
    mixed = Window(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 6, 30))
    with pytest.raises(InvalidInput, match="temporal_window"):
        zones.settled(query(NAIVE, window=mixed), "Asia/Tokyo")


def test_the_ends_of_the_calendar() -> None:
    for naive in (datetime.min, datetime.max):
        place = "Asia/Tokyo" if naive == datetime.min else "America/New_York"
        with pytest.raises(InvalidInput, match="query_timestamp"):
            zones.settled(query(naive), place)


def test_a_query_keeps_its_zone_between_processes() -> None:
    found = zones.settled(query(NAIVE, timezone="Europe/Berlin"), None)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.now.tzinfo == ZoneInfo("Europe/Berlin")


def test_nothing_to_settle_is_the_same_query() -> None:
    asked = query(datetime(2026, 7, 1, tzinfo=UTC), from_clock=True)
    assert zones.settled(asked, None) is asked


# Words


def test_last_month_is_that_of_the_caller() -> None:
    asked = datetime(2026, 7, 1, 3, tzinfo=TOKYO)
    first, last = window("what did we do last month?", asked)
    assert first == "2026-06-01T00:00:00+09:00"
    assert last == "2026-06-30T23:59:59.999999+09:00"


BERLIN, YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
APIA, NEPAL = ZoneInfo("Pacific/Apia"), ZoneInfo("Asia/Kathmandu")


@pytest.mark.parametrize(
    ("text", "now", "first", "hours"),
    [
        # 29 March 2026, 2:00 -> 3:00; 25 October 2026, 3:00 -> 2:00
        ("yesterday", datetime(2026, 3, 30, 1, tzinfo=BERLIN), "2026-03-29T00:00:00+01:00", 23),
        ("yesterday", datetime(2026, 10, 26, 1, tzinfo=BERLIN), "2026-10-25T00:00:00+02:00", 25),
        ("today", datetime(2026, 3, 29, 23, tzinfo=BERLIN), "2026-03-29T00:00:00+01:00", 23),
        ("last month", datetime(2026, 4, 1, 0, tzinfo=BERLIN), "2026-03-01T00:00:00+01:00", 743),
        # 8 March 2026, 1 November 2026
        ("yesterday", datetime(2026, 3, 9, 0, 30, tzinfo=YORK), "2026-03-08T00:00:00-05:00", 23),
        ("yesterday", datetime(2026, 11, 2, 0, 30, tzinfo=YORK), "2026-11-01T00:00:00-04:00", 25),
        ("last week", datetime(2026, 11, 4, 9, tzinfo=YORK), "2026-10-26T00:00:00-04:00", 169),
        # Samoa had no 30 December 2011
        ("today", datetime(2011, 12, 31, 9, tzinfo=APIA), "2011-12-31T00:00:00+14:00", 24),
        ("today", datetime(2011, 12, 29, 9, tzinfo=APIA), "2011-12-29T00:00:00-10:00", 24),
        ("this month", datetime(2011, 12, 29, 9, tzinfo=APIA), "2011-12-01T00:00:00-10:00", 720),
        # a quarter of an hour
        ("yesterday", datetime(2026, 7, 1, 3, tzinfo=NEPAL), "2026-06-30T00:00:00+05:45", 24),
    ],
)
def test_days_on_which_clocks_change(text: str, now: datetime, first: str, hours: int) -> None:
    found = window(text, now)
    assert found[0] == first
    begin, end = (datetime.fromisoformat(side).astimezone(UTC) for side in found)
    assert end - begin == timedelta(hours=hours) - timedelta(microseconds=1)


def test_a_day_that_never_was_has_no_window_and_breaks_nothing() -> None:
    assert timex.parse("on 30 December 2011", datetime(2012, 1, 5, tzinfo=APIA)) is None


def test_hours_are_hours_when_clocks_change() -> None:
    now = datetime(2026, 3, 29, 4, tzinfo=BERLIN)  # three hours after one o'clock, by clocks
    found = timex.parse("in the past 3 hours", now)
    assert found is not None
    assert found.window.start == now.astimezone(UTC) - timedelta(hours=3)


# Memories that carry only a date


def us(text: str | None) -> int:
    return (
        NO_TIME if text is None else microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))
    )


def touches(span: Window, *memories: tuple[str | None, str | None, str | None]) -> list[bool]:
    """Of (start, end, mentioned), in UTC."""
    columns = [
        np.array([us(part) for part in column], np.int64) for column in zip(*memories, strict=True)
    ]
    found: list[bool] = overlaps(columns[0], columns[1], columns[2], bounds(span)).tolist()
    return found


def day_of(day: str, zone: str) -> Window:
    found = timex.parse(f"on {day}", datetime(2026, 12, 31, tzinfo=ZoneInfo(zone)))
    assert found is not None
    return zones.window_seen(found.window, ZoneInfo(zone))


DATE = [
    ("2026-06-30", None, None),
    ("2026-06-30", "2026-06-30", None),
    ("2026-06-30", "2026-06-30T23:59:59", None),
    ("2026-06-30", "2026-06-30T23:59:59.999999", None),
    (None, None, "2026-06-30"),
]


@pytest.mark.parametrize(
    "zone", ["Asia/Tokyo", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "Etc/GMT+12"]
)
def test_a_date_counts_by_the_calendar(zone: str) -> None:
    for day, right in (("29 June", False), ("30 June", True), ("1 July", False)):
        found = touches(day_of(f"{day} 2026", zone), *DATE)
        assert found == [right] * len(DATE), (day, zone)


def test_a_moment_counts_by_its_instant() -> None:
    evening = ("2026-06-30T16:00:00", None, None)  # in Tokyo it is 1 July
    said = ("2026-05-01", "2026-05-01", "2026-06-30T16:00:00")
    for day, right in (("30 June", False), ("1 July", True)):
        assert touches(day_of(f"{day} 2026", "Asia/Tokyo"), evening, said) == [right] * 2
    assert touches(day_of("30 June 2026", "UTC"), evening, said, *DATE) == [True] * 7


def test_a_date_and_a_mention_count_each_by_its_own_rule() -> None:
    # The event is out by its date, though in by its instants; the mention the other way about.
    both = ("2026-06-29", "2026-06-29T23:59:59", "2026-07-01T10:00:00")
    assert touches(day_of("30 June 2026", "Asia/Tokyo"), both) == [False]


def test_sides_of_two_offsets_and_open_ones() -> None:
    since = Window(datetime(2026, 6, 30, tzinfo=TOKYO), None)
    assert touches(since, *DATE) == [True] * len(DATE)
    assert touches(since, ("2026-06-29", None, None), (None, None, None)) == [False, False]
    until = Window(None, datetime(2026, 6, 30, 23, 59, 59, tzinfo=timezone(-timedelta(hours=8))))
    assert touches(until, *DATE, ("2026-07-01", None, None)) == [*[True] * len(DATE), False]


def test_which_carry_only_a_date() -> None:
    rows = [
        ("2026-06-30", None, True),
        ("2026-06-30", "2026-07-02", True),
        ("2026-06-30", "2026-07-02T23:59:59.999", True),
        ("2026-06-30", "2026-06-30T12:00:00", False),
        ("2026-06-30T10:00:00", None, False),
        (None, "2026-06-30", False),
    ]
    start, end = (np.array([us(row[i]) for row in rows], np.int64) for i in (0, 1))  # type: ignore[arg-type]
    assert by_date(start, end).tolist() == [row[2] for row in rows]


def test_days_of_an_event_that_is_known_by_its_date() -> None:
    span = Window(datetime(2026, 6, 30, tzinfo=UTC), None)
    found = zones.days_of(span, ZoneInfo("Asia/Tokyo"))
    assert found.start == datetime(2026, 6, 29, 15, tzinfo=UTC)
    assert zones.days_of(span, UTC) is span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-03-04", datetime(2025, 3, 4, tzinfo=UTC)),
        ("2025-03-04T05:06:07Z", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07+02:00", datetime(2025, 3, 4, 3, 6, 7, tzinfo=UTC)),
    ],
)
def test_times_as_callers_write_them(text: str, expected: datetime) -> None:
    assert zones.utc(zones.written(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "now", "2025", "20250304", "2025-W01-1", "0001-01-01T00:00:00+23:00", "2025-02-30"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        zones.written(text)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert zones.utc(zones.written(text)).tzinfo is UTC
