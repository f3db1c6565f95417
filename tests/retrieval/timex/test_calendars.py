"""Feasts and dates of other calendars. The days are those that almanacs print."""

from __future__ import annotations

from datetime import date

import pytest

from retrieval.timex.calendar import calendars
from retrieval.timex.rules.holidays import feast
from tests.retrieval.timex.days_of import Days, read

pytestmark = pytest.mark.unit


def day(text: str) -> Days:
    return text, text


@pytest.mark.parametrize(
    ("code", "year", "expected"),
    [
        ("lunar1-1", 1985, "1985-02-20"),
        ("lunar1-1", 2023, "2023-01-22"),
        ("lunar1-1", 2033, "2033-01-31"),
        ("lunar-1", 2023, "2023-01-21"),
        ("lunar5-5", 2023, "2023-06-22"),  # after a leap second month
        ("lunar8-15", 2020, "2020-10-01"),
        ("lunar12-8", 2022, "2022-01-10"),  # of the Chinese year before
        ("term6", 2008, "2008-04-04"),
        ("term6", 2027, "2027-04-05"),
        ("term23", 2021, "2021-12-21"),
        ("islamic10-1", 2023, "2023-04-21"),
        ("islamic12-10", 2021, "2021-07-20"),
        ("islamic10-1", 2030, "2030-02-04"),
        ("islamic9-1", 2030, "2030-01-05"),  # the first of two
    ],
)
def test_a_feast_in_a_year(code: str, year: int, expected: str) -> None:
    only = date.fromisoformat(expected)
    assert feast(code)(year) == (only, only)


@pytest.mark.parametrize(
    ("code", "year"),
    [
        ("lunar1-1", 1899),
        ("lunar1-1", 2101),
        ("term6", 1800),
        ("islamic10-1", 1900),
        ("lunar-1", 1),
    ],
)
def test_years_that_no_table_has(code: str, year: int) -> None:
    with pytest.raises(OverflowError):
        feast(code)(year)


@pytest.mark.parametrize(
    ("code", "year", "expected"),
    [
        ("rosh+0", 2020, "2020-09-19"),
        ("rosh+0", 2024, "2024-10-03"),
        ("rosh+9", 2021, "2021-09-16"),
        ("pesach+0", 2019, "2019-04-20"),
        ("pesach-30", 2023, "2023-03-07"),
        ("hanukkah", 2022, "2022-12-18"),
        ("hanukkah", 2024, "2024-12-25"),
        ("diwali", 2018, "2018-11-07"),
        ("diwali", 2020, "2020-11-14"),
        ("diwali", 2024, "2024-10-31"),
        ("11-16/3", 2023, "2023-11-22"),  # the Wednesday from 16 November on
        ("6-19/5", 2024, "2024-06-21"),
    ],
)
def test_a_feast_of_other_rules(code: str, year: int, expected: str) -> None:
    only = date.fromisoformat(expected)
    assert feast(code)(year) == (only, only)


@pytest.mark.parametrize(
    ("code", "year", "first", "last"),
    [
        ("islamic9", 2024, "2024-03-11", "2024-04-09"),
        ("islamic12", 2023, "2023-06-19", "2023-07-18"),
        ("easter-7~easter-1", 2024, "2024-03-24", "2024-03-30"),
        ("12-31~1-1", 2023, "2023-12-31", "2024-01-01"),
    ],
)
def test_a_feast_of_several_days(code: str, year: int, first: str, last: str) -> None:
    assert feast(code)(year) == (date.fromisoformat(first), date.fromisoformat(last))


def test_chinese_months_and_years() -> None:
    assert calendars.lunar_month(2020, 4) == (date(2020, 4, 23), date(2020, 5, 22))
    assert calendars.lunar_month(2020, 4, leap=True) == (date(2020, 5, 23), date(2020, 6, 20))
    with pytest.raises(OverflowError):
        calendars.lunar_month(2020, 5, leap=True)
    assert calendars.lunar_year_of(date(2024, 2, 9)) == 2023
    assert calendars.lunar_year_of(date(2024, 2, 10)) == 2024
    assert calendars.lunar_year_of(date(1850, 1, 1)) == 1850


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("春节回家了吗", day("2025-01-29")),
        ("2022年春节", day("2022-02-01")),
        ("前年除夕在哪里过的", day("2023-01-21")),
        ("去年端午节的粽子", day("2024-06-10")),
        ("中秋節送了誰月餅", day("2024-09-17")),
        ("冬至那天", day("2024-12-21")),
        ("春节到元宵节", ("2025-01-29", "2025-02-12")),
        # dates in the Chinese calendar
        ("农历八月十五", day("2024-09-17")),
        ("農曆五月初五", day("2025-05-31")),
        ("正月初八开工", day("2025-02-05")),
        ("2019年腊月二十三", day("2020-01-17")),
        ("八月初三", day("2024-09-05")),
        ("去年正月十五", day("2024-02-24")),
        ("农历闰四月初一", day("2020-05-23")),
        ("去年农历七月", ("2024-08-04", "2024-09-02")),
        ("正月", ("2025-01-29", "2025-02-27")),
        ("正月三天假", ("2025-01-29", "2025-02-27")),
        # the beginning of a month of ours is none
        ("8月初一共花了多少", ("2024-08-01", "2024-08-10")),
        # other languages
        ("dinner on Chinese New Year's Eve", day("2025-01-28")),
        ("the Dragon Boat Festival 2021", day("2021-06-14")),
        ("capodanno cinese 2020", day("2020-01-25")),
        ("추석에 뭐 했지", day("2024-09-17")),
        ("中秋の名月に何をした", day("2024-09-17")),
        ("who came for Eid al-Fitr", day("2025-03-30")),
        ("last Eid al-Adha", day("2025-06-06")),
        ("عيد الأضحى 2023", day("2023-06-28")),
        ("kurban bayramı 2022", day("2022-07-09")),
        ("das Zuckerfest 2024", day("2024-04-10")),
    ],
)
def test_in_words(text: str, expected: Days) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    "text", ["初一的学生", "我儿子上初三", "农历书", "阴历和阳历的区别", "两千元"]
)
def test_no_date(text: str) -> None:
    assert read(text) is None
