"""What goes along with an answer: the fields of a memory, the entity map, what stays hidden."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from retrieval.recall import extras
from retrieval.types import FactType, MemoryRow

pytestmark = pytest.mark.unit

MAY, JUNE, JULY = (datetime(2024, month, 1, tzinfo=UTC) for month in (5, 6, 7))


def row(ordinal: int = 0, **fields: Any) -> MemoryRow:
    bare = MemoryRow(
        ordinal, f"id-{ordinal}", f"text {ordinal}", FactType.WORLD, None, None, None, None, None,
        None, (), None, None, (),
    )  # fmt: skip
    return bare._replace(**fields)


def test_fields_without_a_value_are_left_out() -> None:
    assert extras.result(row(), None) == {"id": "id-0", "text": "text 0", "type": "world"}


def test_fields_with_a_value_are_shown_once_each() -> None:
    whole = row(
        fact_type=FactType.OBSERVATION, context="c", occurred_start=MAY, occurred_end=JUNE,
        mentioned_at=JULY, document_id="d", chunk_id="k", tags=("t",), metadata={"a": "b"},
        proof_count=0, valid_from=MAY,
    )  # fmt: skip
    assert extras.result(whole, {0: [("e", "Ann")]}) == {
        "id": "id-0", "text": "text 0", "type": "observation", "entities": ["Ann"], "context": "c",
        "occurred_start": MAY, "occurred_end": JUNE, "mentioned_at": JULY, "document_id": "d",
        "metadata": {"a": "b"}, "chunk_id": "k", "tags": ["t"], "proof_count": 0,
        "valid_from": MAY,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("as_of", "shown"), [(None, True), (JULY, True), (JUNE, True), (MAY, False)]
)
def test_an_end_that_came_later_is_not_shown(as_of: datetime | None, shown: bool) -> None:
    over = row(valid_from=MAY, valid_until=JUNE, superseded_by="other")
    found = extras.result(over, None, as_of)
    assert ("valid_until" in found, "superseded_by" in found) == (shown, shown)
    assert found["valid_from"] == MAY


def test_what_took_its_place_is_named_where_it_may_be_seen() -> None:
    over = row(valid_from=MAY, valid_until=JUNE, superseded_by="other")
    assert extras.result(over, None, heirs={"other"})["superseded_by"] == "other"
    hidden = extras.result(over, None, heirs=frozenset())
    assert "superseded_by" not in hidden
    assert hidden["valid_until"] == JUNE


def test_the_entity_map_is_in_order_of_first_appearance() -> None:
    names = {0: [("2", "Bob")], 1: [("1", "Ann"), ("2", "Bob")]}
    found = extras.entity_map([row(0), row(1), row(2)], names)
    assert list(found) == ["Bob", "Ann"]
    assert found["Ann"] == {"entity_id": "1", "canonical_name": "Ann", "observations": []}


def test_what_may_be_seen() -> None:
    assert extras.visible(["a", "b"], None) == ["a", "b"]
    assert extras.visible(["a", "b"], {"b"}) == ["b"]
    assert extras.visible(["a", "b"], frozenset()) == []
