"""Cutting text: the pieces are the text again, and no text makes it slow or large."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ingest.documents.chunking import appended, chunk, layout

pytestmark = pytest.mark.unit

SIZE = 3000
LONG = 4_000_000


@given(
    st.text(
        alphabet=st.sampled_from(
            'ab .,!?\n\r\t\x0b\x0c\x1c\x1d\x85\u2028\u2029\u200dé́の。漢🦀👩[]{}":'
        )
    ),
    st.integers(1, 40),
)
def test_the_chunks_are_the_text_again(text: str, size: int) -> None:
    made = layout(text, size)
    if made.kind == "turns":
        return
    pieces = [piece.text for piece in made.pieces(0, len(text))]
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= max(size, 2) for piece in pieces)
    for left, right in pairwise(pieces):
        assert not (left.endswith("\r") and right.startswith("\n"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
def test_a_line_end_is_a_place_to_cut(end: str) -> None:
    lines = [f"line {i} of some words" for i in range(4)]
    assert chunk(end.join(lines), 30) == [*(line + end for line in lines[:-1]), lines[-1]]


@pytest.mark.parametrize("other", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_what_python_takes_for_a_line_end_is_none(other: str) -> None:
    text = f"page{other}one goes on and on here"
    assert chunk(text, 20)[0] == f"page{other}one goes on "


def test_the_most_telling_mark_in_reach() -> None:
    assert chunk("One here. Two is here.\nThree, it is.\n\nFour.", 30) == [
        "One here. Two is here.\n",
        "Three, it is.\n\nFour.",
    ]
    assert chunk("これは本です。それは犬です。", 8) == ["これは本です。", "それは犬です。"]
    # A short title does not stand alone because a blank line follows it.
    assert chunk("Title\n\n" + "words and more. " * 5, 60)[0].startswith("Title\n\nwords")


def test_letters_are_not_torn_from_their_marks() -> None:
    assert chunk("e\u0301" * 5, 3) == ["e\u0301"] * 5
    family = "👩\u200d👩\u200d👧"
    assert chunk(family * 2, 6) == [family, family]


def test_turns_stay_whole_and_chunks_of_them_are_arrays() -> None:
    turns = [{"role": "user", "text": f"turn {i}"} for i in range(20)]
    for written in (json.dumps(turns), json.dumps(turns, indent=2)):
        pieces = chunk(written, 120)
        assert len(pieces) > 3
        assert [turn for piece in pieces for turn in json.loads(piece)] == turns
    long = [{"text": "x" * 100}, {"text": "short"}]
    assert json.loads(chunk(json.dumps(long), 50)[-1]) == long[1:]
    assert len(chunk(json.dumps(long), 50, 200)) == 2


def test_lines_of_objects_are_cut_between_lines() -> None:
    lines = [json.dumps({"n": i, "t": "a. b. c"}) for i in range(30)]
    for end in ("\n", "\r\n", "\n\n"):
        text = end.join(lines)
        pieces = chunk(text, 100)
        assert "".join(pieces) == text
        rows = [row for piece in pieces for row in piece.split("\n") if row.strip()]
        assert rows == [row + "\r" if end == "\r\n" and row != lines[-1] else row for row in lines]


@pytest.mark.parametrize(
    "text",
    [
        "a" * LONG,
        "a" + "\n" * LONG + "b",
        "a\n" + "\n" * 100_000 + "b",
        "x\r\n" * (LONG // 3),
        "x" + "\r" * LONG,
        ". " * (LONG // 2),
        "e" + "\u0301" * LONG,
        "x" + "\u200d" * LONG,
        "[" * (LONG // 2) + "]" * (LONG // 2),
        '[{"a":' + "[" * (LONG // 2) + "]" * (LONG // 2) + "}]",
        "[" + ",".join(["{}"] * (LONG // 3)) + "]",
        "{" * LONG,
        '{"a":1}\n' * (LONG // 8),
        "[1" + "0" * LONG + "]",
        '["' + "\\" * LONG + '"]',
    ],
    ids=lambda text: repr(text[:8]),
)
def test_any_long_text_is_cut_in_little_time(text: str) -> None:
    begin = time.process_time()
    pieces = chunk(text, SIZE)
    assert time.process_time() - begin < 3
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= SIZE


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "a", "a"),
        ("a", "b", "a\nb"),
        ('[{"a": 1}]', '[{"b": 2}]', '[{"a": 1},{"b": 2}]'),
        (' [ {"a": 1} ]\n', '\n[{"b": 2} ] ', ' [ {"a": 1},{"b": 2} ] '),
        ("[]", "[1]", "[1]"),
        ("[1]", "[ ]", "[1]"),
        ("[1]", "[broken", "[1]\n[broken"),
        ("[1] [2]", "[3]", "[1] [2]\n[3]"),
    ],
)
def test_what_is_appended(old: str, new: str, expected: str) -> None:
    assert appended(old, new) == expected
