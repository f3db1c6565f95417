"""Rows of an archive into a table, whatever columns the table has by now."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.lifecycle.transfer import shapes
from retrieval.lifecycle.transfer.lines import Line
from retrieval.store.database.pool import Connection


async def columns(connection: Connection, table: str) -> frozenset[str]:
    """The columns of a table that can be written."""
    found = await connection.fetch(
        "select attname from pg_attribute where attrelid = to_regclass($1) and attnum > 0"
        " and not attisdropped and attidentity <> 'a' and attgenerated = ''",
        table,
    )
    return frozenset(row[0] for row in found)


async def insert(connection: Connection, table: str, lines: Sequence[Line]) -> None:
    """Appends rows; fields that are no columns are left out, and columns that no line has get
    their default."""
    if not lines:
        return
    for line in lines:
        shapes.check(table, line)
    known = await columns(connection, table)
    names = sorted(known & {name for line in lines for name in line})
    quoted = ", ".join(f'"{name}"' for name in names)
    await connection.execute(
        f"insert into {table} ({quoted}) select {quoted}"
        f" from jsonb_populate_recordset(null::{table}, $1)",
        [{name: line.get(name) for name in names} for line in lines],
    )
