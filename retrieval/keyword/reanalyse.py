"""A bank's postings made anew by another analyser, while the old ones go on serving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, TypeAlias

import asyncpg

from retrieval.errors import NotFound
from retrieval.keyword.analyser import Analyser, Document
from retrieval.keyword.backends.backend import Progress
from retrieval.keyword.postings import encode

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

BATCH: Final = 2000
"""Ordinals per step and segment: some 50 ms of analysis."""


async def reanalyse(
    connection: Connection, bank: int, analyser: Analyser, batch: int = BATCH
) -> AsyncGenerator[Progress, None]:
    """Makes `analyser` the bank's. Progress in ordinals after every step; nothing where it is so.

    Steps write segments of the new kind beside the old ones, each in a short transaction without
    a lock that writers wait for. The last step locks the bank's row, adds what was written
    meanwhile, names the new analyser, raises the version and drops the old postings, so every
    reader sees either the old or the new ones whole. May be stopped at any time and run again;
    it then begins anew, as it does when the bank's ordinals are given anew meanwhile. NotFound if
    the bank is gone. One run per bank at a time. The connection must be in no transaction.
    """
    kind = f"postings:{analyser.version}"
    done, generation = 0, -1
    while True:
        state = await _state(connection, bank)
        if state["analyser"] == analyser.version:
            return
        if state["generation"] != generation:
            generation, done = state["generation"], 0
            await connection.execute(
                "delete from segments where bank = $1 and kind = $2", bank, kind
            )
        total: int = state["next_ordinal"]
        last = total - done <= batch
        end = min(done + batch, total)
        async with connection.transaction():
            if last:
                # From here on nobody writes, so the end is the end.
                state = await _state(connection, bank, "for update")
                if state["next_ordinal"] - done > batch or state["generation"] != generation:
                    continue
                end = total = state["next_ordinal"]
            payload = await _segment(connection, bank, done, end, analyser)
            if not last:
                state = await _state(connection, bank, "for key share")
                if state["generation"] != generation:
                    continue
            if end > done:
                await connection.execute(
                    "insert into segments (bank, kind, first_ordinal, count, version, payload)"
                    " values ($1, $2, $3, $4, $5, $6)",
                    bank,
                    kind,
                    done,
                    end - done,
                    state["version"],
                    payload,
                )
            if last:
                await connection.execute(
                    "delete from segments where bank = $1 and kind <> $2"
                    " and starts_with(kind, 'postings:')",
                    bank,
                    kind,
                )
                await connection.execute(
                    "update banks set analyser = $2, version = version + 1, updated_at = now()"
                    " where bank = $1",
                    bank,
                    analyser.version,
                )
        done = end
        yield Progress(done, total)
        if last:
            return


async def _state(connection: Connection, bank: int, lock: str = "") -> asyncpg.Record:
    row = await connection.fetchrow(
        "select analyser, generation, next_ordinal, version from banks where bank = $1 " + lock,
        bank,
    )
    if row is None:
        raise NotFound(f"bank {bank} is gone")
    return row


async def _segment(
    connection: Connection, bank: int, first: int, end: int, analyser: Analyser
) -> bytes:
    """Postings of the ordinals [first, end); dead ones have none."""
    rows = await connection.fetch(
        "select ordinal, text, context, text_signals from memory_units"
        " where bank = $1 and ordinal >= $2 and ordinal < $3",
        bank,
        first,
        end,
    )
    documents = [Document("")] * (end - first)
    for row in rows:
        text, context, signals = row["text"], row["context"], row["text_signals"]
        documents[row["ordinal"] - first] = Document(text, context, signals)
    return await asyncio.to_thread(encode, analyser, documents)
