from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from retrieval.timex import asks_for_length, event_reference, explicit_dates, find, parse, warm
from tests.retrieval.timex.days_of import days_of

pytestmark = pytest.mark.unit
warm()  # deadlines of examples are about reading texts, not about loading word lists

OFFSETS = st.integers(-12 * 4, 14 * 4).map(lambda q: timezone(timedelta(minutes=15 * q)))
ANCHORS = st.builds(
    datetime.combine,
    st.dates(date(1950, 1, 1), date(2100, 12, 31)),
    st.one_of(st.just(time.min), st.just(time.max), st.times()),
    OFFSETS,
)
EDGES = st.sampled_from(
    [
        date(2024, 2, 29),
        date(2023, 12, 31),
        date(2024, 1, 1),
        date(2020, 12, 31),
        date(2021, 1, 3),
        date(2026, 12, 31),
        date(2000, 2, 29),
        date(2025, 3, 31),
    ]
)
AROUND = st.one_of(
    ANCHORS, st.builds(datetime.combine, EDGES, st.sampled_from([time.min, time.max]), OFFSETS)
)
WORDS = st.sampled_from(
    [
        "last",
        "next",
        "this",
        "past",
        "week",
        "month",
        "year",
        "yesterday",
        "today",
        "ago",
        "in",
        "on",
        "the",
        "of",
        "from",
        "to",
        "between",
        "since",
        "before",
        "after",
        "until",
        "may",
        "march",
        "second",
        "2024",
        "31",
        "2/29",
        "13",
        "29",
        "Feb",
        "Friday",
        "quarter",
        "Q3",
        "century",
        "0000",
        "9999",
        "hace",
        "días",
        "letzte",
        "Woche",
        "в",
        "мае",
        "вчера",
        "去年",
        "三天前",
        "十二月",
        "昨日",
        "先週",
        "어제",
        "지난주",
        "पिछले",
        "साल",
        "कल",
        "أمس",
        "geçen",
        "hafta",
        "99999",
        "years",
        "1",
        "decades",
        "half",
        "early",
        "mid",
        "late",
        "-",
        "/",
        ",",
        ".",
        ":",
        "'",
        "~",
        "之前",
        "以来",
        "から",
        "まで",
        "부터",
    ]
)


@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=14).map(" ".join)), AROUND)
@settings(max_examples=150, deadline=None)
def test_nothing_raises_and_windows_are_sound(text: str, anchor: datetime) -> None:
    for one in find(text, anchor):
        start, end = one.window.start, one.window.end
        assert start is not None or end is not None
        for bound in (start, end):
            assert bound is None or bound.utcoffset() == timedelta(0)
        assert start is None or end is None or start <= end
        assert 0 <= one.start < one.end <= len(text)
        assert text[one.start : one.end] == one.text
        days_of(one, anchor)
    parse(text, anchor)
    explicit_dates(text, anchor)
    event_reference(text)
    asks_for_length(text)


@given(AROUND)
def test_days_around_the_anchor(anchor: datetime) -> None:
    today = anchor.date()
    for text, shift in (("yesterday", -1), ("today", 0), ("tomorrow", 1), ("vorgestern", -2)):
        expected = (today + timedelta(days=shift)).isoformat()
        assert days_of(parse(text, anchor), anchor) == (expected, expected)


@given(AROUND, st.integers(1, 400))
@settings(max_examples=40)
def test_so_many_days_ago(anchor: datetime, count: int) -> None:
    expected = (anchor.date() - timedelta(days=count)).isoformat()
    for text in (f"{count} days ago", f"hace {count} días", f"vor {count} Tagen", f"{count}天前"):
        assert days_of(parse(text, anchor), anchor) == (expected, expected)


@given(AROUND)
def test_last_week_is_the_iso_week_before(anchor: datetime) -> None:
    found = parse("last week", anchor)
    assert found is not None
    first, last = days_of(found, anchor) or (None, None)
    assert first is not None
    assert last is not None
    monday, sunday = date.fromisoformat(first), date.fromisoformat(last)
    assert (monday.weekday(), sunday - monday) == (0, timedelta(days=6))
    assert sunday < anchor.date() <= sunday + timedelta(days=7)


@given(AROUND)
def test_months_and_years_are_whole(anchor: datetime) -> None:
    month = days_of(parse("last month", anchor), anchor)
    year = days_of(parse("last year", anchor), anchor)
    assert month is not None
    assert year == (f"{anchor.year - 1}-01-01", f"{anchor.year - 1}-12-31")
    first, last = (date.fromisoformat(str(one)) for one in month)
    assert first.day == 1
    assert (last + timedelta(days=1)) == anchor.date().replace(day=1)


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)), AROUND)
@settings(max_examples=40)
def test_a_date_in_full_is_that_day_whatever_the_anchor(day: date, anchor: datetime) -> None:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    written = (
        day.isoformat(),
        f"on {day.day} {months[day.month - 1]} {day.year}",
        f"{day.year}年{day.month}月{day.day}日",
        f"{day.day:02}.{day.month:02}.{day.year}",
    )
    for text in written[:3]:
        assert days_of(parse(text, anchor), anchor) == (day.isoformat(), day.isoformat())
    assume(day.day == day.month or day.day > 12)
    assert days_of(parse(written[3], anchor), anchor) == (day.isoformat(), day.isoformat())


@given(st.integers(1900, 2099), st.integers(1, 53))
def test_numbered_weeks_are_iso_weeks(year: int, week: int) -> None:
    anchor = datetime(year, 7, 1, tzinfo=UTC)
    found = days_of(parse(f"week {week} of {year}", anchor), anchor)
    try:
        monday = date.fromisocalendar(year, week, 1)
    except ValueError:
        # The year has no week 53: the sentence names the year at most.
        assert found in (None, (f"{year}-01-01", f"{year}-12-31"))
        return
    assert found == (monday.isoformat(), (monday + timedelta(days=6)).isoformat())


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@given(day=st.dates(date(2015, 1, 1), date(2030, 12, 31)))
@settings(max_examples=40)
def test_a_day_of_a_clock_change_is_still_one_day(zone: str, day: date) -> None:
    anchor = datetime.combine(day, time(12), ZoneInfo(zone))
    found = parse("yesterday", anchor)
    assert found is not None
    before = (day - timedelta(days=1)).isoformat()
    assert days_of(found, anchor) == (before, before)
    assert found.window.start is not None
    assert found.window.end is not None
    length = found.window.end - found.window.start + timedelta(microseconds=1)
    assert timedelta(hours=23) <= length <= timedelta(hours=25)


@given(st.text(alphabet="abcdfghij ,.?", max_size=400), AROUND)
def test_a_text_without_date_words_has_no_window(text: str, anchor: datetime) -> None:
    assert parse(text, anchor) is None
