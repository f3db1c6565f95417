"""Which memory a fact restates: the first of another document, however many say the same."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ingest.facts import Fact
from retrieval.ingest.restating import paired, text_key

pytestmark = pytest.mark.unit


class Counted(str):
    """A document's id that knows how often any was compared."""

    __slots__ = ()
    compared = 0

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__ne__(other)

    __hash__ = str.__hash__


def facts_of(written: list[tuple[int, int]]) -> list[Fact]:
    return [Fact(uuid4(), f"text {text}", document_id=f"d{doc}") for doc, text in written]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=40))
def test_the_first_that_another_document_says(written: list[tuple[int, int]]) -> None:
    facts = facts_of(written)
    expected: dict[UUID, UUID] = {}
    for at, fact in enumerate(facts):
        before = (
            one
            for one in facts[:at]
            if one.text == fact.text
            and one.document_id != fact.document_id
            and one.id not in expected
        )
        if (other := next(before, None)) is not None:
            expected[fact.id] = other.id
    assert paired(facts, [text_key(fact) for fact in facts], []) == expected


def test_a_document_that_repeats_itself_is_compared_once_a_fact() -> None:
    facts = [Fact(uuid4(), "the same", document_id=Counted("d")) for _ in range(2_000)]
    Counted.compared = 0
    assert paired(facts, [text_key(fact) for fact in facts], []) == {}
    assert Counted.compared <= 3 * len(facts)
