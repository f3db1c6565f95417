from __future__ import annotations

import pytest

from tests.system.history import History, Read, Write

pytestmark = pytest.mark.unit

ADD = Write(1, 2, {"a": "one"})
REPLACE = Write(3, 4, {"a": "two", "b": "one"})
DELETE = Write(5, 6, {"b": "one"})
WRITES = [ADD, REPLACE, DELETE]


@pytest.mark.parametrize(
    "reads",
    [
        [Read(0, 0.5, {})],
        [Read(0, 1.5, {}), Read(0, 1.5, {"a": "one"})],
        [Read(2.5, 2.6, {"a": "one"})],
        [Read(2.5, 3.5, {"a": "one"}), Read(2.5, 3.5, {"a": "two", "b": "one"})],
        # Replaced between search and fetch: left out.
        [Read(2.5, 3.5, {})],
        [Read(4.5, 5.5, {"b": "one"})],
        [Read(7, 8, {"b": "one"})],
        [Read(2.5, 9, {"a": "two", "b": "one"})],
    ],
)
def test_possible_reads_are_explained(reads: list[Read]) -> None:
    assert History(list(WRITES), reads).violations() == []


@pytest.mark.parametrize(
    ("reads", "what"),
    [
        ([Read(2.5, 2.6, {})], "stale: an acknowledged memory is missing"),
        ([Read(4.5, 4.6, {"a": "one", "b": "one"})], "stale: an old text"),
        ([Read(7, 8, {"a": "two", "b": "one"})], "a deleted memory"),
        ([Read(2.5, 3.5, {"a": "two"})], "half a write"),
        ([Read(2.5, 3.5, {"a": "one", "b": "one"})], "half a write, the other half"),
        ([Read(2.5, 2.6, {"a": "one", "x": "one"})], "a foreign memory"),
        ([Read(0, 0.5, {"a": "one"})], "from the future"),
        (
            [Read(2.5, 3.2, {"a": "two", "b": "one"}), Read(3.3, 3.5, {"a": "one"})],
            "back in time between two reads",
        ),
    ],
)
def test_impossible_reads_are_found(reads: list[Read], what: str) -> None:
    assert len(History(list(WRITES), reads).violations()) == 1, what
