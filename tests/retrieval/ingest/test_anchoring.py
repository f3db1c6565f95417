"""Which stored chunks stand in a document's next text."""

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ingest.documents.anchoring import Known, PlacedChunk, content_hash, place
from retrieval.ingest.documents.chunking import appended, layout

pytestmark = pytest.mark.unit

WORDS = ["alpha", "beta", "gamma", "delta", "echo", "fox", "golf", "hotel", "india", "kilo", "lima"]


def stored(text: str, size: int) -> list[Known]:
    placed = place(layout(text, size), [])
    return [Known(i, p.cut.text, p.hash) for i, p in enumerate(placed)]


def changed(before: str, after: str, size: int = 300) -> tuple[list[PlacedChunk], int]:
    placed = place(layout(after, size), stored(before, size))
    return placed, sum(p.known is None for p in placed)


def prose(seed: int, sentences: int) -> str:
    random_ = random.Random(seed)
    out = []
    for _ in range(sentences):
        words = random_.choices(WORDS, k=random_.randint(4, 12))
        out.append(" ".join(words).capitalize() + random_.choice([". ", ".\n", ".\n\n"]))
    return "".join(out)


DOCUMENT = prose(1, 110)


def test_a_line_on_top_is_one_new_chunk() -> None:
    assert len(stored(DOCUMENT, 300)) >= 20
    placed, new = changed(DOCUMENT, "A line on top.\n" + DOCUMENT)
    assert new == 1
    assert placed[0].cut.text == "A line on top.\n"
    assert [p.known for p in placed[1:]] == list(range(len(placed) - 1))


@pytest.mark.parametrize("at", [0.0, 0.3, 0.7, 1.0])
def test_one_change_costs_what_it_touches(at: float) -> None:
    place_ = int(at * len(DOCUMENT))
    for after in (
        DOCUMENT[:place_] + " changed " + DOCUMENT[place_:],
        DOCUMENT[: max(0, place_ - 150)] + DOCUMENT[place_:],
        DOCUMENT[:place_] + "\n\n" + prose(2, 4) + "\n\n" + DOCUMENT[place_:],
    ):
        placed, new = changed(DOCUMENT, after)
        assert new <= 4
        assert "".join(p.cut.text for p in placed) == after


def test_a_moved_part_and_many_changes() -> None:
    third = len(DOCUMENT) // 3
    placed, new = changed(DOCUMENT, DOCUMENT[third:] + "\n" + DOCUMENT[:third])
    assert len(placed) - new >= len(stored(DOCUMENT, 300)) // 2
    lines = DOCUMENT.split("\n")
    for i in range(5, len(lines), 25):
        lines[i] = f"Line {i} was written anew."
    placed, new = changed(DOCUMENT, "\n".join(lines))
    assert new < len(placed) / 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Version 1", "Version 10"),
        ("Ann lives in York", "Ann lives in York no more"),
        ("The code is 12", "The code is 12, then 13"),
        ("work at sea", "homework at sea"),
    ],
)
def test_what_goes_on_is_not_what_stood_there(before: str, after: str) -> None:
    placed, _ = changed(before, after)
    assert [(p.cut.text, p.known) for p in placed] == [(after, None)]


def test_what_ends_where_it_ended_stays() -> None:
    placed, _ = changed("Version 1", "Version 1\nVersion 2")
    assert [p.known for p in placed] == [0, None]
    placed, _ = changed("It rains.", "It rains. It snows.")
    assert [p.known for p in placed] == [0, None]


def test_conversations_grow_by_their_new_turns() -> None:
    turns = [{"role": "user", "text": prose(i, 1)} for i in range(60)]
    before = json.dumps(turns[:40], indent=1)
    after = appended(before, json.dumps(turns[40:]))
    placed, new = changed(before, after)
    kept = [p for p in placed if p.known is not None]
    assert [p.known for p in kept] == list(range(len(stored(before, 300))))
    assert [t for p in placed for t in json.loads(p.cut.text)] == turns
    assert new == len(placed) - len(kept)


def test_without_texts_hashes_tell() -> None:
    known = [Known(k.index, "", k.hash) for k in stored(DOCUMENT, 300)]
    placed = place(layout(DOCUMENT, 300), known)
    assert [p.known for p in placed] == list(range(len(known)))
    placed = place(layout(DOCUMENT + "\n\nMore.", 300), known)
    assert sum(p.known is None for p in placed) <= 2


@given(st.data())
def test_any_change_gives_the_text_and_keeps_the_order(data: st.DataObject) -> None:
    letters = st.text(alphabet="ab .\n\r\u2028A1", max_size=120)
    before, size = data.draw(letters), data.draw(st.integers(1, 30))
    after = before
    for _ in range(data.draw(st.integers(0, 3))):
        low = data.draw(st.integers(0, len(after)))
        high = data.draw(st.integers(low, len(after)))
        after = after[:low] + data.draw(st.text(alphabet="ab .\nA", max_size=20)) + after[high:]
    placed, new = changed(before, after, size)
    if after.strip():
        assert "".join(p.cut.text for p in placed) == after
    kept = [p.known for p in placed if p.known is not None]
    assert kept == sorted(set(kept))
    assert all(content_hash(p.cut.text) == p.hash for p in placed)
    if after == before:
        assert new == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (prose(3, 60_000), prose(4, 60_000)),
        ("a" * 3_000_000, "a" * 4_000_000),
        ("ab" * 1_500_000, "a" * 2_999_999 + "b"),
        ("same line\n" * 300_000, "same line\n" * 299_990 + "other\n"),
    ],
    ids=["all other", "one letter", "two letters", "repeated"],
)
def test_long_documents_are_compared_in_little_time(before: str, after: str) -> None:
    known = stored(before, 3000)
    begin = time.process_time()
    placed = place(layout(after, 3000), known)
    assert time.process_time() - begin < 5
    assert "".join(p.cut.text for p in placed) == after
