"""What counts as said: numbers, names, scripts, sentences."""

from datetime import UTC, datetime

import pytest

from retrieval.llm import grounding

pytestmark = pytest.mark.unit
NOON = datetime(2024, 5, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "source", "invented"),
    [
        ("She paid 4,500 euros.", "She paid 4500 euros.", set()),
        ("She paid 4 500 euros.", "She paid 4.500 euros.", set()),
        ("She paid 4,500 euros.", "She paid a lot.", {"4500"}),
        ("Room 12", "room １２", set()),
        ("It costs 3.5.", "It costs 3,5.", set()),
        ("It costs 3.5.", "It costs 5.", {"3.5"}),
        ("On 7 May 2024 she left.", "She left yesterday.", set()),
        ("On 6 May 2024 she left.", "She left yesterday.", {"6"}),
        ("At 10:30", "at 10.30", set()),
        ("In 2024", "on 2024-05-01", set()),
        ("No numbers", "", set()),
    ],
)
def test_numbers(text: str, source: str, invented: set[str]) -> None:
    assert grounding.invented_numbers(text, [source], reference_time=NOON) == invented


def test_dates_that_are_known_may_be_said() -> None:
    text = "He moved on 3 March 2021 at 09:15."
    moved = datetime(2021, 3, 3, 9, 15, tzinfo=UTC)
    assert grounding.invented_numbers(text, ["He moved."], dates=[moved]) == set()
    assert grounding.invented_numbers(text, ["He moved."]) == {"3", "2021", "09:15"}


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        ("Ann met Bo.", ["Ann", "Bo", "Cy"], ["Ann", "Bo"]),
        ("Annabelle met Bo.", ["Ann"], []),
        ("ANN’S cat", ["ann"], ["ann"]),
        ("王小明去了北京", ["北京", "上海"], ["北京"]),
        ("C++ is old", ["C++", "C"], ["C++", "C"]),
        ("", ["Ann", ""], []),
    ],
)
def test_names(text: str, names: list[str], found: list[str]) -> None:
    assert grounding.names_in(text, names) == found


def test_invented_names() -> None:
    known = ["Ann", "Bo", "Lisbon"]
    assert grounding.invented_names("Ann moved to Lisbon.", known, ["Ann moved."]) == ["Lisbon"]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Ann lives here", "Latin"),
        ("Анна живёт здесь", "Cyrillic"),
        ("安娜住在这里", "Han"),
        ("アンナはここに住んでいる", "Japanese"),
        ("東京に住む", "Japanese"),
        ("안나는 여기 산다", "Hangul"),
        ("123 !?", ""),
    ],
)
def test_scripts(text: str, script: str) -> None:
    assert grounding.main_script(text) == script


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("Ann likes tea [F1].", True),
        ("Ann likes tea [F1, O2]", True),
        ("As F12 says", True),
        ("id 0b5f2c9e-8c1f-4b6e-9d0a-3b7f1a2c4d5e", True),
        ("a\x07b", True),
        ("a\u202eb", True),
        ("The F-16 is a plane.", False),
        ("Formula 1 in 2024", False),
    ],
)
def test_machinery(text: str, bad: bool) -> None:
    assert grounding.has_machinery(text) == bad


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('She said "yes." Then left.', ['She said "yes."', "Then left."]),
        ("Version 3.5 is out. e.g. this one", ["Version 3.5 is out. e.g. this one"]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("- one\n- two\n\nthree", ["- one", "- two", "three"]),
        ("  ", []),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert [text[a:b] for a, b in grounding.sentences(text)] == parts
