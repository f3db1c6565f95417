"""Handles out of an answer."""

from __future__ import annotations

import pytest

from retrieval.reflect.citing import parse
from retrieval.reflect.evidence import EvidenceItem, EvidenceSet

pytestmark = pytest.mark.unit


@pytest.fixture
def evidence() -> EvidenceSet:
    found = EvidenceSet()
    for n in range(1, 4):
        found.memory({"id": f"0000000{n}-0000-4000-8000-000000000000", "text": "x",
                      "type": "world"}, n)  # fmt: skip
    found.memory({"id": "o", "text": "y", "type": "observation"}, 0)
    return found


def handles(items: tuple[EvidenceItem, ...]) -> str:
    return " ".join(item.handle for item in items)


@pytest.mark.parametrize(
    ("written", "text", "cited"),
    [
        ("Ann moved. [F1] Bo stayed. [F2]", "Ann moved. Bo stayed.", ["F1", "F2"]),
        ("Ann moved [F1]. Bo stayed [F2, O1].", "Ann moved. Bo stayed.", ["F1", "F2 O1"]),
        ("Ann moved [F1][F2]. Bo", "Ann moved. Bo", ["F1 F2", ""]),
        ("Ann moved [F1] and [F2], [O1].", "Ann moved.", ["F1 F2 O1"]),
        ("Ann moved [F1] and stayed [F2].", "Ann moved and stayed.", ["F1 F2"]),
        ("Ann moved [F1] and Bo, [F2] too.", "Ann moved and Bo, too.", ["F1 F2"]),
        ("安搬家了[F1]、[F2]。", "安搬家了。", ["F1 F2"]),
        ("Ann moved (F1). Bo stayed【F2】.", "Ann moved. Bo stayed.", ["F1", "F2"]),
        ("Ann moved [f1; F2 and F3].", "Ann moved.", ["F1 F2 F3"]),
        ("Ann moved [F1-F3].", "Ann moved.", ["F1 F2 F3"]),
        ("Ann moved [F9].", "Ann moved.", [""]),
        ("Ann moved [^F1].", "Ann moved.", ["F1"]),
        ("Ann moved [00000002-0000-4000-8000-000000000000].", "Ann moved.", ["F2"]),
        ("[F1] Ann moved.", "Ann moved.", ["F1"]),
        ("- [F1] Ann moved.\n- Bo stayed. [F2]", "- Ann moved.\n- Bo stayed.", ["F1", "F2"]),
        ("1. Ann moved. [F1]\n2. Bo [F2]", "1. Ann moved.\n2. Bo", ["F1", "F2"]),
        ("Dr. Lee moved. [F1]", "Dr. Lee moved.", ["F1"]),
        ("安搬家了。[F1]她喜欢茶。[F2]", "安搬家了。她喜欢茶。", ["F1", "F2"]),
        ("See [the list] and [1].", "See [the list] and [1].", [""]),
        ("Ann moved\n[F1]\n\nBo [F2]", "Ann moved\n\n\nBo", ["", "F1 F2"]),
    ],
)
def test_handles(evidence: EvidenceSet, written: str, text: str, cited: list[str]) -> None:
    answer = parse(written, evidence)
    assert answer.text == text
    assert [handles(one.items) for one in answer.sentences] == cited
    assert all(text[one.start : one.end] == one.text for one in answer.sentences)


def test_titles(evidence: EvidenceSet) -> None:
    answer = parse(
        "## Ann\n\n**Moves**\n\nShe moved:\n- to Porto [F1]\n\n| who | where |\n|---|---|\n"
        "| Bo | Rome [F2] |",
        evidence,
    )
    assert [one.text for one in answer.sentences if one.title] == [
        "## Ann", "**Moves**", "She moved:", "| who | where |",
    ]  # fmt: skip


def test_sentences_go(evidence: EvidenceSet) -> None:
    answer = parse("A is. [F1] B is. C is. [F2]\n\n- D is.\n- E is. [F3]\n", evidence)
    gone = [one for one in answer.sentences if not one.items]
    left = answer.without(gone)
    assert left.text == "A is. C is.\n\n- E is."
    assert [left.text[one.start : one.end] for one in left.sentences] == [
        "A is.", "C is.", "- E is.",
    ]  # fmt: skip
    assert answer.without(answer.sentences).text == ""
