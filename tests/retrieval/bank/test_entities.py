"""Which entities a question names."""

from __future__ import annotations

import time

import numpy as np
import pytest

from retrieval.bank.entities import Entities
from retrieval.store.segments.delta import EntityChange
from retrieval.types import Ints

pytestmark = pytest.mark.unit

NONE = np.empty(0, np.int32)


def entities(*names: str, merged: dict[int, int] | None = None) -> Entities:
    rows = [
        EntityChange(n, n.to_bytes(16, "big"), name, (merged or {}).get(n))
        for n, name in enumerate(names)
    ]
    return Entities.empty().extended(rows, np.empty(0, np.int64), NONE, np.empty(0, np.bool_))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Where did Alice go?", [0]),
        ("where did ALICE go", [0]),
        ("What did Alice's friend say?", [0]),
        ("Alice Chen met Alice.", [1, 0]),
        ("alice-chen", [1]),
        ("Chen Alice", [0]),
        ("Malice in the palice", []),
        ("Did Dr. Waller call?", [2]),
        ("did dr waller call", [2]),
        ("Straße 5 in Köln", [3]),
        ("STRASSE 5 IN KÖLN", [3]),
        ("昨天张伟去了北京大学吗？", [4, 5]),
        ("ｱﾘｽ", []),
        ("The Who played", [6]),
        ("Did Al\u00adice\u2060 go?", [0]),
        ("ＡＬＩＣＥ", [0]),
        ("Is it in C++ or in C?", [8, 7]),
        ("Room ١٠١", [9]),
        ("who played", []),
        ("", []),
    ],
)
def test_names_are_found_as_whole_words_longest_first(text: str, found: list[int]) -> None:
    known = entities(
        "Alice", "Alice Chen", "Dr. Waller", "Straße 5", "张伟", "北京大学", "The Who", "C", "C++",
        "Room 101",
    )  # fmt: skip
    assert known.find(text).tolist() == found


def test_a_name_without_letters_names_nobody() -> None:
    known = entities("!!!", "  ", "\n", "Bo\nb")
    assert known.find("!!! what \n").tolist() == []
    assert known.find("bo b").tolist() == [3]


def test_merged_entities_are_found_as_their_survivor() -> None:
    known = entities("Bob", "Robert", "Bobby", merged={0: 1, 2: 0})
    assert known.find("Bob or Bobby or Robert?").tolist() == [1]
    assert known.survivor.tolist() == [1, 1, 1]


def test_two_entities_of_one_spelling_are_both_found() -> None:
    known = entities("Dr. Waller", "dr waller")
    assert sorted(known.find("Dr Waller").tolist()) == [0, 1]


def test_later_names_renames_and_merges_are_known_and_older_snapshots_keep_theirs() -> None:
    before = entities("Alice", "Bob")
    assert before.find("Alice and Carol").tolist() == [0]

    def extended(known: Entities, *rows: EntityChange) -> Entities:
        return known.extended(rows, np.empty(0, np.int64), NONE, np.empty(0, np.bool_))

    more = extended(before, EntityChange(2, b"c" * 16, "Carol", None))
    assert more.find("Alice and Carol").tolist() == [0, 2]
    for number in range(3, 40):  # many small additions keep the lexicon small
        more = extended(more, EntityChange(number, b"x" * 16, f"Name {number}", None))
    assert more.find("Name 17 of Carol").tolist() == [17, 2]
    assert len(more._lexicon.tiers or ()) < 8
    renamed = extended(more, EntityChange(1, b"b" * 16, "Robert", None))
    assert renamed.find("Bob and Robert").tolist() == [1]
    merged = extended(renamed, EntityChange(2, b"c" * 16, "Carol", 0))
    assert merged.find("Carol").tolist() == [0]
    parted = extended(merged, EntityChange(2, b"c" * 16, "Carol", None))
    assert parted.find("Carol").tolist() == [2]
    assert before.find("Carol or Bob").tolist() == [1]


def test_mentions_and_counts_follow_merges_and_deaths() -> None:
    mentions: Ints = np.array([0, 1, 1, 2, 0], np.int32)
    counts = np.array([2, 1, 1, 1])
    rows = [EntityChange(n, bytes(16), f"N{n}", None) for n in range(3)]
    live = np.ones(4, np.bool_)
    known = Entities.empty().extended(rows, counts, mentions, live)
    assert known.df.tolist() == [2, 2, 1]
    merged = known.extended([EntityChange(0, bytes(16), "N0", 1)], counts[:0], NONE, live)
    assert merged.df.tolist() == [0, 3, 1]
    assert merged.units_of(np.array([0, 2], np.int32))[1].tolist() == [0, 1, 3, 2]
    assert merged.of_units(np.array([0], np.int32))[1].tolist() == [1]
    dead = np.array([False, True, True, True])
    after = merged.extended([], counts[:0], NONE, dead)
    assert after.df.tolist() == [0, 2, 1]
    assert after.units_of(np.array([1], np.int32))[1].tolist() == [1, 3]
    assert known.df.tolist() == [2, 2, 1]


def test_a_question_is_read_in_a_fifth_of_a_millisecond_among_ten_thousand_names() -> None:
    known = entities(*(f"Name{i} Sur{i % 97}" for i in range(10_000)))
    question = (
        "What did Name17 Sur17 tell Name400 Sur12 about the trip to Name55 Sur55 last year "
        "in the mountains near the lake, and who else was there with them on that day?"
    )
    assert known.find(question).tolist() == [17, 400, 55]

    def seconds() -> float:
        start = time.process_time()
        for _ in range(100):
            known.find(question)
        return (time.process_time() - start) / 100

    assert min(seconds() for _ in range(5)) < 0.0002
