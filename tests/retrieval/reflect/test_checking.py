"""What a sentence says that its sources do not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from retrieval.reflect import checking, citing
from retrieval.reflect.declining import declines
from retrieval.reflect.evidence import EvidenceSet
from tests.retrieval.reflect.bank import NOW

pytestmark = pytest.mark.unit

SAID = datetime(2024, 6, 1, 9, tzinfo=UTC)
NAMES = {"Ann", "Bob", "Lisbon", "Porto", "Siemens"}


def evidence(*texts: str) -> EvidenceSet:
    found = EvidenceSet()
    for n, text in enumerate(texts):
        names = [name for name in sorted(NAMES) if name in text]
        found.memory(
            {"id": str(n), "text": text, "type": "world", "entities": names, "mentioned_at": SAID},
            n,
        )
    return found


@pytest.mark.parametrize(
    ("source", "sentence", "good"),
    [
        ("Ann paid 1,200 euros.", "Ann paid 1200 euros.", True),
        ("Ann paid 1,200 euros.", "Ann paid 1300 euros.", False),
        ("Ann has two cats.", "Ann has 3 cats.", False),
        ("Ann moved to Lisbon.", "Ann moved to Porto.", False),
        ("Ann moved to Lisbon.", "Bob moved to Lisbon.", False),
        ("Ann moved to Lisbon.", "She moved to Lisbon.", True),
        ("Ann moved to Lisbon yesterday.", "Ann moved to Lisbon on 31 May 2024.", True),
        ("Ann moved to Lisbon yesterday.", "Ann moved to Lisbon on 30 April 2024.", False),
        ("Ann moved on 2024-05-05.", "Ann moved in May 2024.", True),
        ("Ann moved on 2024-05-05.", "Ann moved in May.", True),
        ("Ann moved on 2024-05-05.", "Ann moved in July.", False),
        ("Ann moved on 2024-05-05.", "Ann moved on Sunday.", True),
        ("Ann moved on 2024-05-05.", "Ann moved on a Monday.", False),
        ("Ann moved in 2021.", "Ann has lived there for 5 years.", False),
        ("Anna wohnt in Köln.", "Anna wohnt in Köln.", True),
        ("Аня живёт в Москве.", "Аня переехала в Москву.", True),
        ("Аня живёт в Москве.", "Аня живёт в Туле с 2019 года.", False),
        ("安在2024年5月搬到里斯本。", "安于2024年5月搬到里斯本。", True),
        ("安在2024年5月搬到里斯本。", "安于2023年搬到里斯本。", False),
        ("Ann drives a Volvo.", "As F1 says, Ann drives a Volvo.", False),
        ("Ann watches F1 races.", "Ann watches F1 races.", True),
    ],
)
def test_one_sentence(source: str, sentence: str, good: bool) -> None:
    shown = evidence(source)
    answer = citing.parse(f"{sentence} [F1]", shown)
    found = checking.check(answer, NAMES, "", NOW)
    assert (not found.faults) == good, found.faults
    assert len(found.claims) == 1


def test_citing_something_else_does_not_help() -> None:
    shown = evidence("Ann moved to Lisbon in 2024.", "Bob works at Siemens.")
    answer = citing.parse("Ann moved to Lisbon in 2024. [F2]", shown)
    (fault,) = checking.check(answer, NAMES, "", NOW).faults
    assert "cannot be found in what it cites" in fault.reason


@pytest.mark.parametrize(
    ("text", "claims", "faults"),
    [
        ("I do not know.", 0, 0),
        ("Hello!", 0, 0),
        ("What else would you like to know?", 0, 0),
        ("Ann likes tea.", 1, 1),
        ("Ann likes tea. [F7]", 1, 1),
        ("## About Ann\n\nAnn moved. [F1]", 1, 0),
        ("## Ann in 1999\n\nAnn moved. [F1]", 2, 1),
        ("---\n\nAnn moved. [F1]", 1, 0),
        ("**Ann hates tea.**", 1, 1),
        ("**Ann moved.** [F1]", 1, 0),
        ("**Where to:** Lisbon [F1]", 1, 0),
        ("Do you want me to look for Bob?", 0, 0),
        ("Ann lives in Paris since 1999, right?", 1, 1),
        ("Nothing is known about Bob. Ann moved. [F1]", 1, 0),
    ],
)
def test_what_needs_a_source(text: str, claims: int, faults: int) -> None:
    answer = citing.parse(text, evidence("Ann moved to Lisbon."))
    found = checking.check(answer, NAMES, "Who is Ann?", NOW)
    assert (len(found.claims), len(found.faults)) == (claims, faults)


@pytest.mark.parametrize(
    "text",
    [
        "I do not know.", "I don’t have any information about that.",
        "There is no record of her birthday.", "The memories do not mention her job.",
        "Das weiß ich nicht.", "Dazu liegen keine Informationen vor.", "Je ne sais pas.",
        "Il n'y a aucune information à ce sujet.", "No lo sé.", "No tengo información sobre eso.",
        "Não sei.", "Non lo so.", "Я не знаю.", "Информации об этом нет.", "我不知道。",
        "没有关于她生日的信息。", "わかりません。", "その情報はありません。", "모르겠습니다.",
        "لا أعرف", "नहीं पता", "Bilmiyorum", "Nie wiem.",
    ],
)  # fmt: skip
def test_declining(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize(
    "text",
    [
        "Ann does not know Bob.", "She has no records by Elvis.", "Nobody likes tea.",
        "Ann didn't know the way.", "No meat is served on Fridays.", "Der Hund ist nicht da.",
        "Anne n'aime pas le thé.", "安不喜欢茶。", "Аня не любит чай.",
    ],
)  # fmt: skip
def test_not_declining(text: str) -> None:
    assert not declines(text)


def test_at_hand() -> None:
    shown = evidence("Ann likes green tea.", "Bob works at Siemens.")
    assert [i.text for i in checking.at_hand("What tea does Ann like?", shown.items)] == [
        "Ann likes green tea."
    ]
    assert checking.at_hand("What is tungsten?", shown.items) == []
    assert checking.at_hand("?", shown.items) == []
