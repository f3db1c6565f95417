"""The second scan: after an erasure everything is looked through again, by id."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np

from retrieval.lifecycle.erasure.catalogue import KEYWORD, TABLES
from retrieval.lifecycle.erasure.removal import Erased
from retrieval.store import erasure
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead
from retrieval.store.segments.format import unpack

VALUES = (
    "select $1::bigint as bank, $2::text as tenant, $3::text as bank_id, $4::uuid[] as memories,"
    " $5::text[] as texts, $6::text[] as documents, $7::int[] as numbers, $8::uuid[] as entities,"
    " $9::bigint as version, $10::timestamptz as at"
)
"""What was erased, as a row e."""


async def remaining(pool: Pool, head: BankHead, erased: Erased) -> dict[str, int]:
    """What is still there of it, by table; {} where it is gone."""

    every = await asyncio.to_thread(lambda: erased.every)

    async def work(connection: Connection) -> dict[str, int]:
        tables = await connection.fetch(
            "select table_name from information_schema.tables where table_schema = $1", pool.schema
        )
        names = {row["table_name"] for row in tables}
        found = {
            name: await _count(connection, name, table.test, head, erased, every)
            for name, table in TABLES.items()
            if table.test is not None and name in names
        }
        for name in sorted(name for name in names if name.startswith(KEYWORD)):
            found[name] = await connection.fetchval(
                f"select count(*) from {name} k where bank = $1 and not exists (select from"
                " memory_units m where m.bank = k.bank and m.ordinal = k.ordinal)",
                head.bank,
            )
        found["mental_models"] = len(await erasure.citing(connection, head.bank, every))
        found["segments"] = await _segments(connection, head.bank, erased, every)
        return {name: count for name, count in found.items() if count}

    return await read(pool, work)


async def _count(
    connection: Connection,
    name: str,
    test: str,
    head: BankHead,
    erased: Erased,
    every: Sequence[UUID],
) -> int:
    found: int = await connection.fetchval(
        f"with e as ({VALUES}) select count(*) from {name} t, e where {test}",
        head.bank,
        head.tenant,
        head.bank_id,
        every,
        [*erased.memories, *erased.observations],
        list(erased.documents),
        list(erased.entity_numbers),
        [UUID(id) for id in erased.entities],
        erased.version,
        datetime.fromisoformat(erased.at),
    )
    return found


async def _segments(
    connection: Connection, bank: int, erased: Erased, every: Sequence[UUID]
) -> int:
    """Rows of packed arrays that name what was erased, or lie outside of the bank."""
    end = await connection.fetchval("select next_ordinal from banks where bank = $1", bank)
    rows = await connection.fetch(
        "select kind, first_ordinal, count from segments where bank = $1"
        " order by kind, first_ordinal",
        bank,
    )
    wrong = 0
    memories = await asyncio.to_thread(lambda: {id.bytes for id in every})
    for kind, first, count in rows:
        wrong += kind != "links" and first + count > (end or 0)
        if kind == "columns":
            packed = await connection.fetchval(
                "select payload from segments where bank = $1 and kind = $2 and first_ordinal = $3",
                bank,
                kind,
                first,
            )
            if packed is not None:
                wrong += await asyncio.to_thread(
                    _naming, unpack(packed), memories, erased.entity_numbers
                )
    return wrong


def _naming(arrays: Mapping[str, Any], memories: Collection[bytes], numbers: Sequence[int]) -> int:
    """How often the columns name one of the memories (16 bytes each) or entities."""
    found = int(np.isin(arrays["entity"], np.asarray(numbers, np.int32)).sum())
    for name in ("id", "source"):
        found += sum(row.tobytes() in memories for row in arrays[name])
    return found
