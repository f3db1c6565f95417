"""Many rows at a time without holding up the event loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from retrieval.store.database.pool import Connection

ROWS: Final = 500
STATEMENTS: Final = 100
SIZE: Final = 1 << 18
"""A slice has this many rows to copy, so many to run a statement for, or, judged by the lengths of
texts, characters: the driver encodes it in one go."""
_ENTRY: Final = 64
"""An entry of a list costs the driver as much as so many characters."""

ASKED: Final = 1_000
"""Ids and names that are asked for at once: the driver writes and reads a statement in one go."""

T = TypeVar("T")


async def copy(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    records: Iterable[Sequence[Any]],
) -> None:
    """Appends the records, a slice at a time."""
    rows = iter(records)
    while part := _slice(rows):
        await connection.copy_records_to_table(table, columns=columns, records=part)


async def execute_many(connection: Connection, sql: str, records: Iterable[Sequence[Any]]) -> None:
    """The statement for each record, a slice at a time."""
    rows = iter(records)
    while part := _slice(rows, STATEMENTS):
        await connection.executemany(sql, part)


def _slice(rows: Iterable[Sequence[Any]], most: int = ROWS) -> list[Sequence[Any]]:
    part: list[Sequence[Any]] = []
    size = 0
    for row in islice(rows, most):
        part.append(row)
        size += sum(map(_size, row))
        if size >= SIZE:
            break
    return part


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return _ENTRY * len(value) + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return _ENTRY * len(value) + sum(map(_size, value))
    return 0


def slices(values: Collection[T]) -> Iterator[list[T]]:
    """The values, as many at a time as are well asked for in one statement."""
    rest = iter(values)
    while part := list(islice(rest, ASKED)):
        yield part
