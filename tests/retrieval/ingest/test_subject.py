import pytest

from retrieval.text.subject import ASKS, flags, subject

pytestmark = pytest.mark.unit

ENTITIES = [(1, "Ann"), (2, "Ann Lee"), (3, "Project Atlas")]


@pytest.mark.parametrize(
    ("text", "context", "want"),
    [
        ("Ann Lee: I moved to Oslo", None, 2),
        ("ann went home", None, 1),
        ("Annual report of Project Atlas", None, -1),
        ("The Project Atlas uses Kubernetes", None, 3),
        ("“Project Atlas” is late", None, 3),
        ("It uses Kubernetes", "project atlas", 3),
        ("It uses Kubernetes", "a meeting", -1),
    ],
)
def test_subject(text: str, context: str | None, want: int) -> None:
    assert subject(text, context, ENTITIES) == want


def test_the_only_entity_is_the_subject() -> None:
    assert subject("The exchanger was replaced", None, [(7, "Unit 5")]) == 7
    assert subject("Nothing named", None, []) == -1
    assert subject("", None, ENTITIES) == -1


@pytest.mark.parametrize(
    ("text", "asks"),
    [("Why?", ASKS), ('He said "why?" ', ASKS), ("真的吗？", ASKS), ("No.", 0), ("", 0)],
)
def test_flags(text: str, asks: int) -> None:
    assert flags(text) == asks
