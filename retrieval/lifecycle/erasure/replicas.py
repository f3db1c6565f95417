"""Processes that hold banks in memory: each lets go of what is outdated, and says when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID, uuid4

from retrieval.errors import FourfoldError
from retrieval.lifecycle.erasure import words
from retrieval.pacing import Background
from retrieval.store.database.pool import Connection, Pool, read, write

log = logging.getLogger(__name__)

SWEEP_S = 5.0
LOST_S = 60.0
"""Who has not swept for so long is gone."""


class Holder(Protocol):
    """What holds banks; see retrieval.bank.cache.SnapshotCache."""

    def generations(self) -> Mapping[tuple[int, int], int]:
        """(bank, part) -> the generation that is held."""
        ...

    def evict(self, bank: int, part: int = 0) -> bool: ...


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Replicas that let go of everything older, and those that were gone before they could."""

    swept: int
    gone: int


class Sweeper:
    """Sweeps the holders of one process. All calls from one event loop."""

    def __init__(self, pool: Pool, holders: Iterable[Holder], period_s: float = SWEEP_S) -> None:
        self._pool, self._holders, self._period_s = pool, tuple(holders), period_s
        self._id: UUID = uuid4()
        self._erasures = -1
        self._background = Background("sweeping", self._run)

    def start(self) -> None:
        self._background.start()

    async def close(self) -> None:
        await self._background.close()
        with suppress(FourfoldError, OSError):
            await write(
                self._pool,
                lambda connection: connection.execute(
                    "delete from replicas where id = $1", self._id
                ),
            )

    async def sweep(self) -> int:
        """Lets go of banks that are gone or were rearranged, how many, and after an erasure of the
        words that this process remembers. Says so."""

        async def look(connection: Connection) -> tuple[datetime, int, dict[int, int]]:
            now = await connection.fetchval("select clock_timestamp()")
            held = sorted({bank for one in self._holders for bank, _ in one.generations()})
            rows = await connection.fetch(
                "select bank, generation from banks where bank = any($1)", held
            )
            erasures = await connection.fetchval("select max(number) from erasures")
            return now, erasures, {row["bank"]: row["generation"] for row in rows}

        now, erasures, newest = await read(self._pool, look)
        count = 0
        for one in self._holders:
            for (bank, part), generation in list(one.generations().items()):
                # One that was loaded since the look is newer, or was there before it.
                if bank not in newest or generation < newest[bank]:
                    count += one.evict(bank, part)
        if erasures != self._erasures:
            words.forget()
            self._erasures = erasures

        async def say(connection: Connection) -> None:
            await connection.execute(
                "insert into replicas (id, swept_at) values ($1, $2)"
                " on conflict (id) do update set swept_at = excluded.swept_at",
                self._id,
                now,
            )
            await connection.execute(
                "delete from replicas where swept_at < now() - interval '1 hour'"
            )

        await write(self._pool, say)
        return count

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except FourfoldError as error:
                log.warning("sweeping is paused: %s", error)
            except Exception:
                log.exception("sweeping failed")
            await asyncio.sleep(self._period_s)


async def announce(pool: Pool) -> None:
    """Has every process forget the words that it remembers, with its next sweep."""
    await write(
        pool, lambda connection: connection.execute("update erasures set number = number + 1")
    )


async def acknowledged(pool: Pool, *, lost_s: float = LOST_S, poll_s: float = 0.5) -> Acknowledged:
    """Waits until every replica has swept after now, or is gone."""

    async def begin(connection: Connection) -> tuple[datetime, set[UUID]]:
        now = await connection.fetchval("select clock_timestamp()")
        rows = await connection.fetch(
            "select id from replicas where swept_at > $1::timestamptz - $2 * interval '1 second'",
            now,
            lost_s,
        )
        return now, {row["id"] for row in rows}

    since, waited = await read(pool, begin)
    every, swept = set(waited), 0
    while waited:

        async def look(connection: Connection) -> tuple[set[UUID], set[UUID]]:
            rows = await connection.fetch(
                "select id, swept_at > $2 as swept from replicas where id = any($1)"
                " and swept_at > clock_timestamp() - $3 * interval '1 second'",
                list(every),
                since,
                lost_s,
            )
            alive = {row["id"] for row in rows}
            return {row["id"] for row in rows if row["swept"]}, alive

        done, alive = await read(pool, look)
        swept = len(done)
        waited = alive - done
        if waited:
            await asyncio.sleep(poll_s)
    return Acknowledged(swept, len(every) - swept)
