"""The keys that entities are found by, and rebuilding those of an older folding.

`name_key` is the folded name, unique in a bank; an entity that was merged because another has its
key keeps it with its number behind it. `plain_key` is the name as typed without its accents and
punctuation, null where that is the name_key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retrieval.ingest.entities import merging
from retrieval.ingest.entities.similarity import plain
from retrieval.store.database.pool import Connection
from retrieval.text import folding

_PAGE = 5_000
"""Rows read or written at a time: what the event loop has to unpack."""


def plain_key(key: str) -> str | None:
    """The `plain_key` of an entity with this `name_key`."""
    found = plain(key)
    return None if found in ("", key) else found


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    name: str
    key: str
    merged: bool
    mentions: int


async def renew(connection: Connection, bank: int, version: int) -> None:
    """Folds the bank's names as this program does, if an older folding made its keys.

    Entities that then have the same name become one: the most mentioned, the oldest of those. The
    bank is locked, and this write changes its version.
    """
    held = await connection.fetchval("select name_folding from banks where bank = $1", bank)
    if held == folding.REVISION:
        return
    rows = await _rows(connection, bank)
    keys, merges = await asyncio.to_thread(_plan, rows)
    await _write(connection, bank, keys)
    for survivor, gone in merges.items():
        await merging.merge(connection, bank, version, survivor, gone)
    await _aliases(connection, bank)
    await connection.execute(
        "update banks set name_folding = $2 where bank = $1", bank, folding.REVISION
    )


async def _rows(connection: Connection, bank: int) -> list[_Row]:
    rows: list[_Row] = []
    last = -1
    while True:
        page = await connection.fetch(
            "select entity_no, canonical_name, name_key, merged_into is not null, mention_count"
            " from entities where bank = $1 and entity_no > $2 order by entity_no limit $3",
            bank,
            last,
            _PAGE,
        )
        rows += [_Row(*row) for row in page]
        if len(page) < _PAGE:
            return rows
        last = rows[-1].number


def _plan(
    rows: Sequence[_Row],
) -> tuple[list[tuple[int, str, str | None]], Mapping[int, list[int]]]:
    """(number, name_key, plain_key) of the entities that get others; who is merged into whom."""
    by_key: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_key[folding.key(row.name)].append(row)
    keys: list[tuple[int, str, str | None]] = []
    merges: dict[int, list[int]] = {}
    for key, same in by_key.items():
        first, *others = sorted(same, key=lambda row: (row.merged, -row.mentions, row.number))
        own = plain_key(key)
        if first.key != key or own is not None:
            keys.append((first.number, key, own))
        keys += [(row.number, aside(key, row.number), None) for row in others]
        if gone := [row.number for row in others if not row.merged]:
            merges[first.number] = gone
    return keys, merges


def aside(key: str, number: int) -> str:
    """The key of a merged entity whose name another entity has; no name has a line end."""
    return f"{key}\n{number}"


async def _write(
    connection: Connection, bank: int, keys: Sequence[tuple[int, str, str | None]]
) -> None:
    # First keys that nobody has: a new key may be another entity's old one.
    for start in range(0, len(keys), _PAGE):
        await connection.execute(
            "update entities set name_key = E'\\n' || entity_no"
            " where bank = $1 and entity_no = any($2)",
            bank,
            [number for number, _, _ in keys[start : start + _PAGE]],
        )
    for start in range(0, len(keys), _PAGE):
        part = keys[start : start + _PAGE]
        await connection.execute(
            "update entities e set name_key = w.k, plain_key = w.p"
            " from unnest($2::int[], $3::text[], $4::text[]) w(n, k, p)"
            " where e.bank = $1 and e.entity_no = w.n",
            bank,
            [number for number, _, _ in part],
            [key for _, key, _ in part],
            [own for _, _, own in part],
        )


async def _aliases(connection: Connection, bank: int) -> None:
    rows = await connection.fetch(
        "select name_key, entity_no from entity_aliases where bank = $1", bank
    )
    changed = [
        (old, new, number)
        for old, number in rows
        # A merged entity's key set aside is its name with a number behind it.
        if (new := folding.key(old.split("\n")[0])) != old
    ]
    await connection.execute(
        "delete from entity_aliases a using unnest($2::text[], $3::int[]) w(k, n)"
        " where a.bank = $1 and a.name_key = w.k and a.entity_no = w.n",
        bank,
        [old for old, _, _ in changed],
        [number for _, _, number in changed],
    )
    await connection.execute(
        "insert into entity_aliases (bank, name_key, entity_no)"
        " select $1, k, n from unnest($2::text[], $3::int[]) w(k, n) where k <> ''"
        " on conflict do nothing",
        bank,
        [new for _, new, _ in changed],
        [number for _, _, number in changed],
    )
    # A name is no alias of the entity that has it.
    await connection.execute(
        "delete from entity_aliases a using entities e where a.bank = $1 and e.bank = $1"
        " and e.entity_no = a.entity_no and e.name_key = a.name_key",
        bank,
    )
