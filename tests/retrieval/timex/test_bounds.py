"""No text holds its reader: work grows in proportion to the text at most, and only up to a cap."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.recall import intent
from retrieval.timex import (
    asks_for_length,
    event_reference,
    explicit_dates,
    find,
    is_quick,
    parse,
    warm,
)
from retrieval.timex.engine.text import MAX_CHARACTERS, Folded
from retrieval.timex.rules.events import MAX_CHARACTERS as EVENT_CHARACTERS
from tests.retrieval.timex.days_of import NOW, read

pytestmark = pytest.mark.unit
warm()

READERS: dict[str, Callable[[str], object]] = {
    "parse": lambda text: parse(text, NOW),
    "explicit_dates": lambda text: explicit_dates(text, NOW),
    "event_reference": event_reference,
    "asks_for_length": asks_for_length,
    "is_quick": is_quick,
    "asks_why": intent.asks_why,
    "asks_about_now": intent.asks_about_now,
    "asks_what_happened": intent.asks_what_happened,
}
NASTY = [
    "\n", " ", " \t\n", "7", "-", "1-", "1/", "12.", "2024-", "2024/05/", "2025-W", "(", "'s ",
    "last ", "before ", "before\n\n", "before a ", "since x ", "when i was ", "\"'", "vor ",
    "how many days from ", "how long ", "what did ", "what is ", "was hat ", "qu'a ", "reason ",
    "two thousand ", "and two ", "the of ", "may ", "may - ", "2024 ", "from 2020 to ", "10:30 ",
    "1 day and ", "2024-05-10T10:00 ", "half ", "2 years 3 ", "first week of ", "q1 ", "und",
    "zwanzig", "undzwanzig", "一", "三天", "之前", "年", "の前に", "月", "전에 ", "dan önce ",
    "के बाद ", "قبل ", "\u200b", "e\u0301", "rest of ", "between ", "ağustos'ta ", ", ", ". ",
    "недели три назад ", "года через ", "at 10 to 5 ", "at half ", "weekend ", "周末", "周五",
    "version 2024.2 ", "5월 2주차 ", "천", "구백", "«Hier» ", "maja ", "co tydzień ", "前两天",
    "usually monday ", "open until monday ", "what does may mean ", "Jan Mai ",
    "quem ligou na segunda, ", "geplant am montag ", "how often in a week ", "at 9 on monday ",
    "一日に何", "陈九月的", "de 25e kwam ",
]  # fmt: skip


def seconds(call: Callable[[str], object], text: str) -> float:
    """CPU seconds of one call, the least of three."""
    least = float("inf")
    for _ in range(3):
        gc.disable()
        start = time.process_time()
        call(text)
        least = min(least, time.process_time() - start)
        gc.enable()
    return least


@pytest.mark.parametrize("name", READERS)
def test_four_times_the_text_takes_no_more_than_its_share(name: str) -> None:
    """A loose bound: six times as long, beside a floor below which clocks say nothing; quadratic
    work would take sixteen times as long."""
    call = READERS[name]
    for unit in NASTY:
        size = max(1, 1_000 // len(unit))
        short, long = seconds(call, unit * size), seconds(call, unit * size * 4)
        if long > 6 * max(short, 0.002):  # once more: the machine may have been busy
            short, long = seconds(call, unit * size), seconds(call, unit * size * 4)
        assert long <= 6 * max(short, 0.002), (unit, short, long)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("unit", ["\n", "x", "last ", "三天", "before ", "7"])
def test_ten_million_characters_cost_no_more_than_the_cap(name: str, unit: str) -> None:
    text = unit * (10_000_000 // len(unit))
    READERS[name](text[:1_000])
    assert seconds(READERS[name], text) < 1.5


def test_white_space_of_any_length_is_one_space() -> None:
    text = "what happened" + "\n \t" * 50_000 + "last  week" + " " * 500
    folded = Folded(text)
    assert folded.text == "what happened last week "
    (found,) = find(text, NOW)
    assert text[found.start : found.end] == found.text == "last  week"
    assert read("what \n\n happened\n last\tweek") == read("what happened last week")


def test_a_text_is_read_up_to_the_cap() -> None:
    inside = "x " * (MAX_CHARACTERS // 2 - 20) + "on 4 May 2023"
    outside = "x " * (MAX_CHARACTERS // 2 + 20) + "on 4 May 2023"
    assert read(inside) == ("2023-05-04", "2023-05-04")
    assert read(outside) is None
    assert event_reference("x " * EVENT_CHARACTERS + "before the merger") is None
    assert not intent.asks_why("x " * intent.MAX_CHARACTERS + "why?")


def test_an_event_is_read_for_a_few_hundred_characters() -> None:
    found = event_reference("what broke before the merger of " + "many houses and " * 60 + "?")
    assert found is not None
    assert found.phrase.startswith("the merger of many houses")
    assert len(found.phrase) <= 300


@given(st.lists(st.sampled_from(NASTY), min_size=1, max_size=12), st.integers(1, 60))
@settings(max_examples=60)
def test_no_mixture_takes_long(units: list[str], times: int) -> None:
    text = ("".join(units) * times)[:3_000]
    for call in READERS.values():
        start = time.process_time()
        call(text)
        assert time.process_time() - start < 2.0
