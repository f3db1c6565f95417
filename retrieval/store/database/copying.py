"""Many rows at a time without holding up the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from retrieval.store.database.pool import Connection

ROWS: Final = 500
SIZE: Final = 1 << 18
"""A slice has this many rows or, judged by the lengths of texts, characters: the driver encodes it
in one go."""


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
    while part := _slice(rows):
        await connection.executemany(sql, part)


def _slice(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    part: list[Sequence[Any]] = []
    size = 0
    for row in islice(rows, ROWS):
        part.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if size >= SIZE:
            break
    return part
