"""What a database needs that stands at an earlier moment than its servers know: after a restore,
by whatever means. Run while no server works on it; doing it twice changes nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from retrieval.store import epoch
from retrieval.store.database.pool import Connection, Pool, write


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done. `erasures`: those that were made since, done again."""

    banks: int
    operations: int
    files: int
    webhooks: int
    erasures: int = 0

    def wire(self) -> dict[str, int]:
        return asdict(self)


Replay: TypeAlias = Callable[[Pool], Awaitable[int]]
"""Erases again what was erased after the moment that the database stands at, by a ledger that lies
outside of it; how many erasures."""


async def mend(pool: Pool, replay: Replay | None = None) -> Mended:
    """Makes replicas read every bank anew, puts work that was under way back into the queue, and
    removes or stops what must not go on as it was."""

    async def work(connection: Connection) -> Mended:
        banks = await _count(
            connection,
            "update banks set generation = generation + 1, version = version + 1"
            " where state = 'open'",
        )
        waiting = await _count(
            connection,
            "update operations set status = 'pending', lease = null, leased_until = null,"
            " next_retry_at = null, updated_at = now() where status = 'processing'",
        )
        files = await _count(
            connection, "delete from stored_files where expires_at <= now() or sha256 is null"
        )
        webhooks = 0
        if await connection.fetchval("select to_regclass('webhooks') is not null"):
            # Whoever they called has heard of things that are no longer so.
            webhooks = await _count(connection, "update webhooks set enabled = false where enabled")
        return Mended(banks, waiting, files, webhooks)

    done = await write(pool, work)
    await epoch.renew(pool)
    if replay is None:
        return done
    return Mended(done.banks, done.operations, done.files, done.webhooks, await replay(pool))


async def _count(connection: Connection, sql: str) -> int:
    return int((await connection.execute(sql)).split()[-1])
