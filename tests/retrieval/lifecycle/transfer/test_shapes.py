"""JSON of another kind than who reads it counts on is refused with the archive."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval.lifecycle.transfer import shapes
from retrieval.store.database.pool import Pool, read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("table", shapes.OBJECTS)
@pytest.mark.parametrize("value", [[], [1], 5, True, "x"])
def test_what_is_no_object(table: str, value: Any) -> None:
    for name in shapes.OBJECTS[table]:
        shapes.check(table, {name: {}})
        shapes.check(table, {name: None})
        with pytest.raises(ValueError, match=name):
            shapes.check(table, {name: value})


@pytest.mark.parametrize("table", ["documents", "memory_units"])
def test_metadata_and_scopes(table: str) -> None:
    good: tuple[Any, ...] = (None, "per_tag", "shared", [], [["a"], []])
    for scopes in good:
        shapes.check(table, {"metadata": {"a": "b"}, "observation_scopes": scopes})
    with pytest.raises(ValueError, match="no texts"):
        shapes.check(table, {"metadata": {"a": 1}})
    bad: tuple[Any, ...] = ("all", 5, {}, ["a"], [[1]])
    for scopes in bad:
        with pytest.raises(ValueError, match="scopes"):
            shapes.check(table, {"observation_scopes": scopes})


@pytest.mark.integration
async def test_every_column_of_json_is_spoken_for(pool: Pool) -> None:
    rows = await read(
        pool,
        lambda c: c.fetch(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = current_schema() and data_type = 'jsonb'"
        ),
    )
    there = {(row[0], row[1]) for row in rows}
    said = {(table, name) for table, names in shapes.OBJECTS.items() for name in names}
    assert said <= there
    carried = {each for each in there if each[0] in shapes.OBJECTS} - said
    assert carried == {
        ("documents", "observation_scopes"), ("memory_units", "observation_scopes"),
        ("mental_models", "terms"), ("operations", "payload"),  # never taken from an archive
        ("audit_logs", "request"), ("audit_logs", "response"),  # bodies, of any kind
    }  # fmt: skip
