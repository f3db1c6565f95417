from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from retrieval.timex import Settings, explicit_dates, find, parse, warm
from retrieval.timex.engine.lexicon import LANGUAGES, lexicon
from tests.retrieval.timex.days_of import NOW, Days, days_of, read

pytestmark = pytest.mark.unit


def day(text: str) -> Days:
    return text, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # dates in full, in every order people write them
        ("minutes of 2023-11-04T09:30:00Z", day("2023-11-04")),
        ("the invoice of 4 Nov 2023", day("2023-11-04")),
        ("the invoice of Nov 4th, 2023", day("2023-11-04")),
        ("the invoice of 11/04/2023", day("2023-11-04")),
        ("the invoice of 24/11/2023", day("2023-11-24")),
        ("on Saturday, November 4, 2023", day("2023-11-04")),
        ("on the fourth of November 2023", day("2023-11-04")),
        ("on november the twenty-first nineteen ninety nine", day("1999-11-21")),
        # without the year: the latest
        ("on 4 November", day("2024-11-04")),
        ("on 4 June", day("2025-06-04")),
        ("on February 29", day("2024-02-29")),
        # periods by name
        ("sales in May 2024", ("2024-05-01", "2024-05-31")),
        ("sales in Q1 of 2024", ("2024-01-01", "2024-03-31")),
        ("sales in the second half of 2024", ("2024-07-01", "2024-12-31")),
        ("sales in H1 2024", ("2024-01-01", "2024-06-30")),
        ("music of the eighties", ("1980-01-01", "1989-12-31")),
        ("what happened in the 19th century", ("1800-01-01", "1899-12-31")),
        ("week 33 of 2023", ("2023-08-14", "2023-08-20")),
        ("the first week of March 2024", ("2024-03-04", "2024-03-10")),
        ("the last Friday of March 2024", day("2024-03-29")),
        ("in mid October 2024", ("2024-10-10", "2024-10-20")),
        ("at the end of last month", ("2025-05-16", "2025-05-31")),
        # told from the anchor
        ("two winters ago", ("2023-12-01", "2024-02-29")),
        ("vor zwei Sommern", ("2023-06-01", "2023-08-31")),
        ("il y a deux printemps", ("2024-03-01", "2024-05-31")),
        ("in early spring", ("2025-03-01", "2025-03-30")),
        ("in late autumn", ("2024-10-31", "2024-11-30")),
        ("the day before yesterday", day("2025-06-16")),
        ("two weeks and three days ago", day("2025-06-01")),
        ("a year and a half ago", day("2023-12-18")),
        ("in the past six months", ("2024-12-18", "2025-06-18")),
        ("last Tuesday", day("2025-06-17")),
        ("last Wednesday", day("2025-06-11")),
        ("next Monday", day("2025-06-23")),
        ("this Friday", day("2025-06-20")),
        ("Tuesday of last week", day("2025-06-10")),
        ("three days after last Monday", day("2025-06-19")),
        ("the month before last", ("2025-04-01", "2025-04-30")),
        ("the weekend two weeks ago", ("2025-06-07", "2025-06-08")),
        ("the second week of March last year", ("2024-03-11", "2024-03-17")),
        ("the first Monday of May last year", day("2024-05-06")),
        ("at the end of the quarter", ("2025-05-31", "2025-06-30")),
        ("since the start of the quarter", ("2025-04-01", None)),
        # ranges
        ("from 3 to 9 May 2024", ("2024-05-03", "2024-05-09")),
        ("between March and May 2024", ("2024-03-01", "2024-05-31")),
        ("Nov 2023 - Feb 2024", ("2023-11-01", "2024-02-29")),
        ("from November to February 2024", ("2023-11-01", "2024-02-29")),
        ("from yesterday to tomorrow", ("2025-06-17", "2025-06-19")),
        # open on one side
        ("after March 2024", ("2024-04-01", None)),
        ("before 3 May 2024", (None, "2024-05-02")),
        ("since last Monday", ("2025-06-16", None)),
        ("until yesterday", (None, "2025-06-17")),
        ("no later than 2019", (None, "2018-12-31")),
        ("in 2019 or later", ("2019-01-01", None)),
        # holidays
        ("on Christmas Eve", day("2024-12-24")),
        ("on Good Friday 2024", day("2024-03-29")),
        ("on Thanksgiving 2023", day("2023-11-23")),
        ("last Easter", day("2025-04-20")),
    ],
)
def test_english(text: str, expected: Days) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "???",
        "may we march on the second floor",
        "May I have the third option?",
        "the build listens on 2024",
        "version 2.11.7 of the driver",
        "10.0.0.12 answered 200 requests",
        "call +49 30 901820 or 555-0199",
        "raise the limit from 1024 to 8192",
        "error 2019-13-45",
        "31 April 2024",
        "on 30 February",
        "in the year 0000",
        "three million years ago",
        "how many days passed between 3 May and 9 May?",
        "how long ago did we move in June?",
        "every Friday",
        "sun, sea and sand",
        "a second opinion",
        "the spring framework",
        "fall back to the default",
    ],
)
def test_no_window(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # two apart: the finer; of equals, the first
        ("last month and yesterday", day("2025-06-17")),
        ("3 May 2024 and 9 May 2024", day("2024-05-03")),
        # two that overlap: what both have
        ("in June 2025, this week", ("2025-06-16", "2025-06-22")),
        ("after 3 May 2024 and before 9 May 2024", ("2024-05-04", "2024-05-08")),
    ],
)
def test_several_expressions_make_one_window(text: str, expected: Days) -> None:
    assert read(text) == expected


def test_find_gives_all_in_order_with_their_places() -> None:
    text = "Between Jan 2024 and Mar 2024, or yesterday: what of 2023-05-06?"
    found = find(text, NOW)
    assert [text[one.start : one.end] for one in found] == [one.text for one in found]
    assert [one.start for one in found] == sorted(one.start for one in found)
    assert [days_of(one, NOW) for one in found] == [
        ("2024-01-01", "2024-03-31"),
        day("2025-06-17"),
        day("2023-05-06"),
    ]
    assert all(0 < one.confidence <= 1 and one.rule and one.granularity for one in found)


def test_the_place_is_in_the_text_as_given() -> None:
    text = "Ça va? Straße, Ｑ１　２０２４ — et puis «le 3 mai 2024» déjà"
    for one in find(text, NOW):
        assert text[one.start : one.end] == one.text
    assert [one.text for one in find(text, NOW)][-1].strip("«»") == "le 3 mai 2024"


def test_hours_are_exact() -> None:
    found = parse("what did I do in the last 3 hours", NOW)
    assert found is not None
    assert found.granularity == "hour"
    assert (found.window.start, found.window.end) == (NOW - timedelta(hours=3), NOW)


def test_bounds_are_days_of_the_anchors_offset_in_utc() -> None:
    anchor = datetime(2025, 6, 18, 1, 0, tzinfo=timezone(timedelta(hours=8)))
    found = parse("yesterday", anchor)
    assert found is not None
    assert found.window.start == datetime(2025, 6, 16, 16, 0, tzinfo=UTC)
    assert found.window.start is not None
    assert found.window.start.utcoffset() == timedelta(0)
    assert found.window.end == datetime(2025, 6, 17, 15, 59, 59, 999999, tzinfo=UTC)


def test_seasons_follow_the_hemisphere() -> None:
    south = Settings(hemisphere="south")
    assert read("in summer 2023", settings=south) == ("2023-12-01", "2024-02-29")
    assert read("last winter", settings=south) == ("2024-06-01", "2024-08-31")
    assert read("last winter") == ("2024-12-01", "2025-02-28")


def test_fiscal_years_follow_their_start() -> None:
    october = Settings(fiscal_year_start_month=10)
    assert read("revenue in fiscal year 2024", settings=october) == ("2023-10-01", "2024-09-30")
    assert read("revenue in FY2024") == ("2024-01-01", "2024-12-31")
    assert read("last fiscal year", settings=october) == ("2023-10-01", "2024-09-30")


def test_the_order_of_day_and_month_can_be_set() -> None:
    assert read("on 03/07/2024") == day("2024-03-07")
    assert read("on 03/07/2024", settings=Settings(day_first=True)) == day("2024-07-03")
    assert read("on 03/07/2024", settings=Settings(region="GB")) == day("2024-07-03")


@pytest.mark.parametrize(
    "broken",
    [{"hemisphere": "east"}, {"fiscal_year_start_month": 0}, {"fiscal_year_start_month": 13}],
)
def test_impossible_settings_are_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Settings(**broken)  # type: ignore[arg-type]


def test_explicit_dates_depend_on_no_anchor() -> None:
    text = "Signed on 4 May 2023 in Oslo; renewed last week, again in June 2024."
    found = explicit_dates(text, NOW)
    assert [one.text for one in found] == ["4 May 2023", "June 2024"]
    later = explicit_dates(text, NOW + timedelta(days=400))
    assert [one.window for one in found] == [one.window for one in later]


def test_a_date_in_a_long_text_is_found_where_it_is() -> None:
    filler = "the quick brown fox jumps over a lazy dog and looks for its bone " * 40
    text = filler + "which we saw on 4 May 2023 near the barn " + filler
    found = find(text, NOW)
    assert [one.text.strip() for one in found] == ["4 May 2023"]
    assert text[found[0].start : found[0].end] == found[0].text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("co jsem dělal včera", "2025-06-17"),
        ("vad sa", None),
        ("Що сталося вчора?", "2025-06-17"),
        ("mit csináltam tegnap", "2025-06-17"),
    ],
)
def test_other_languages_go_to_dateparser(text: str, expected: str | None) -> None:
    assert read(text) == (None if expected is None else day(expected))
    assert read(text, settings=Settings(fallback=False)) is None


def test_every_language_loads_and_has_a_day() -> None:
    from retrieval.timex.engine.lexicon import LANGUAGES, lexicon

    words = {
        "en": "yesterday", "es": "ayer", "fr": "hier", "de": "gestern", "it": "ieri", "pt": "ontem",
        "nl": "gisteren", "sv": "igår",
        "pl": "wczoraj", "tr": "dün", "ru": "вчера", "zh": "昨天", "ja": "昨日",
        "ko": "어제", "hi": "कल क्या हुआ", "ar": "أمس",
    }  # fmt: skip
    assert set(words) == set(LANGUAGES)
    for language, text in words.items():
        assert lexicon(language).language == language
        assert read(text) == day("2025-06-17"), language


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("¿qué pasó el 3 de mayo de 2024?", "2024-05-03", "2024-05-03"),
        ("las ventas del primer trimestre de 2024", "2024-01-01", "2024-03-31"),
        ("les ventes de la semaine dernière", "2025-06-09", "2025-06-15"),
        ("il y a deux mois et trois jours", "2025-04-15", "2025-04-15"),
        ("am 3. Mai 2024", "2024-05-03", "2024-05-03"),
        ("Ende letzten Jahres", "2024-07-01", "2024-12-31"),
        ("die neunziger Jahre", "1990-01-01", "1999-12-31"),
        ("nella prima settimana di marzo 2024", "2024-03-04", "2024-03-10"),
        ("cinque giorni fa", "2025-06-13", "2025-06-13"),
        ("na semana passada", "2025-06-09", "2025-06-15"),
        ("em março de 2024", "2024-03-01", "2024-03-31"),
        ("de eerste vrijdag van maart 2024", "2024-03-01", "2024-03-01"),
        ("för tre veckor sedan", "2025-05-28", "2025-05-28"),
        ("geçen ayın sonunda", "2025-05-16", "2025-05-31"),
        ("2024'ün ilk çeyreğinde", "2024-01-01", "2024-03-31"),
        ("три недели назад", "2025-05-28", "2025-05-28"),
        ("в конце прошлого года", "2024-07-01", "2024-12-31"),
        ("летом 2023 года", "2023-06-01", "2023-08-31"),
        ("先週の金曜日", "2025-06-13", "2025-06-13"),
        ("3か月前", "2025-03-18", "2025-03-18"),
        ("平成30年5月", "2018-05-01", "2018-05-31"),
        ("지난달", "2025-05-01", "2025-05-31"),
        ("3주 전에", "2025-05-28", "2025-05-28"),
        ("पिछले महीने के अंत में", "2025-05-16", "2025-05-31"),
        ("दो हफ्ते पहले", "2025-06-04", "2025-06-04"),
        ("الأسبوع الماضي", "2025-06-09", "2025-06-15"),
        ("قبل ثلاثة أيام", "2025-06-15", "2025-06-15"),
    ],
)
def test_other_languages(text: str, first: str, last: str) -> None:
    assert read(text) == (first, last)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        # years by the name of a reign
        ("乾隆五十年", "1785-01-01", "1785-12-31"),
        ("光绪元年", "1875-01-01", "1875-12-31"),
        ("贞观3年6月", "0629-06-01", "0629-06-30"),
        # halves of a month and of a week
        ("上半月的账单", "2025-06-01", "2025-06-15"),
        ("3月下半月", "2025-03-16", "2025-03-31"),
        ("下半周", "2025-06-19", "2025-06-22"),
        ("the first half of February 2024", "2024-02-01", "2024-02-15"),
        ("in the second half of last week", "2025-06-12", "2025-06-15"),
        ("先週の後半", "2025-06-12", "2025-06-15"),
        # the first and last units of a period are not those around the anchor
        ("2024年的前三个月", "2024-01-01", "2024-03-31"),
        ("上个月的前5天", "2025-05-01", "2025-05-05"),
        ("前5天", "2025-06-13", "2025-06-18"),
        ("the last 2 weeks of this year", "2025-12-15", "2025-12-28"),
        ("the last 3 days of April", "2025-04-28", "2025-04-30"),
        ("los últimos dos meses de 2023", "2023-11-01", "2023-12-31"),
        ("les 2 derniers jours de mars", "2025-03-30", "2025-03-31"),
        ("die letzten vier Tage im Mai", "2025-05-28", "2025-05-31"),
        ("the last 3 days", "2025-06-15", "2025-06-18"),
        # said between two years, counted by halves, seen from another year
        ("2015年和2018年之间的订单", "2015-01-01", "2018-12-31"),
        ("三个半月前", "2025-03-03", "2025-03-03"),
        ("80年代初", "1980-01-01", "1983-12-31"),
        ("去年的今天", "2024-06-18", "2024-06-18"),
        ("最近这几天", "2025-06-13", "2025-06-18"),
        ("三月的第二个星期日", "2025-03-09", "2025-03-09"),
        # centuries in Roman numerals
        ("el siglo XIX", "1800-01-01", "1899-12-31"),
        ("au XVIIIe siècle", "1700-01-01", "1799-12-31"),
        ("nel XX secolo", "1900-01-01", "1999-12-31"),
        # since the beginning of the year
        ("株価は年初来で上がった", "2025-01-01", "2025-06-17"),
        ("revenue YTD", "2025-01-01", "2025-06-17"),
        # days that Korean counts in one word
        ("사흘 전에 만났다", "2025-06-15", "2025-06-15"),
        ("이틀 후에", "2025-06-20", "2025-06-20"),
        ("지난 열흘 동안", "2025-06-08", "2025-06-18"),
        # halves of a unit, also in one word
        ("two and a half months ago", "2025-04-03", "2025-04-03"),
        ("in the past one and a half years", "2023-12-18", "2025-06-18"),
        ("vor anderthalb Jahren", "2023-12-18", "2023-12-18"),
        ("vor einem halben Jahr", "2024-12-18", "2024-12-18"),
        ("anderhalve maand geleden", "2025-05-03", "2025-05-03"),
        ("полтора месяца назад", "2025-05-03", "2025-05-03"),
        ("полгода назад", "2024-12-18", "2024-12-18"),
        ("ढाई महीने पहले", "2025-04-03", "2025-04-03"),
        # counted from a day beside today
        ("heute vor zwei Jahren", "2023-06-18", "2023-06-18"),
        ("three weeks ago yesterday", "2025-05-27", "2025-05-27"),
        # years in words, and what only looks like one
        ("en dos mil catorce", "2014-01-01", "2014-12-31"),
        ("en mille neuf cent soixante-huit", "1968-01-01", "1968-12-31"),
        ("em dois mil e dez", "2010-01-01", "2010-12-31"),
        ("bin dokuz yüz seksen dörtte", "1984-01-01", "1984-12-31"),
        # Turkish numbers above ten
        ("on dört gün önce", "2025-06-04", "2025-06-04"),
        ("on iki Mayıs 2024", "2024-05-12", "2024-05-12"),
        # French September, which is seven elsewhere
        ("vu le 12 sept", "2024-09-12", "2024-09-12"),
        ("il y a sept jours", "2025-06-11", "2025-06-11"),
        ("la segunda quincena de abril", "2025-04-16", "2025-04-30"),
        ("na semana retrasada", "2025-06-02", "2025-06-08"),
        # Arabic: two units in one word, numbers after their unit
        ("قبل شهرين", "2025-04-18", "2025-04-18"),
        ("بعد يومين", "2025-06-20", "2025-06-20"),
        ("الأسبوعين الماضيين", "2025-06-04", "2025-06-18"),
        ("الأشهر الثلاثة الماضية", "2025-03-18", "2025-06-18"),
        ("آخر 5 أيام", "2025-06-13", "2025-06-18"),
        ("آخر يوم من الشهر", "2025-06-30", "2025-06-30"),
        ("في الربع الثاني من عام 2023", "2023-04-01", "2023-06-30"),
        ("일주일 전에", "2025-06-11", "2025-06-11"),
        ("一昨日", "2025-06-16", "2025-06-16"),
        # Turkish endings after a year, and the week in the dative
        ("2014'ten 2018'e kadar", "2014-01-01", "2018-12-31"),
        ("geçen haftaya bak", "2025-06-09", "2025-06-15"),
    ],
)
def test_said_in_other_ways(text: str, first: str, last: str) -> None:
    assert read(text) == (first, last)


def test_turkish_before_and_after_a_year() -> None:
    assert read("2018'den sonra") == ("2019-01-01", None)
    assert read("2018'den önce") == (None, "2017-12-31")


@pytest.mark.parametrize(
    "text",
    [
        "guten Morgen zusammen",
        "80到90之间的数",
        "花了两千元",
        "vi xx en la lista",
        "en dos mil usuarios",
        "in two thousand requests",
    ],
)
def test_not_said_in_other_ways(text: str) -> None:
    assert read(text) is None


def test_a_warm_process_loads_nothing_more() -> None:
    warm()
    loaded = lexicon.cache_info().misses
    assert loaded >= len(LANGUAGES)
    for text in ("what did we decide last spring", "was geschah gestern", "昨天发生了什么"):
        assert parse(text, NOW) is not None
    assert lexicon.cache_info().misses == loaded
