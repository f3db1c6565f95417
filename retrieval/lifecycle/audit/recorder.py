"""Puts entries into the log: changes in the transaction that makes them, and how they ended before
they are answered; reads together within a second."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from retrieval.errors import FourfoldError, NotFound
from retrieval.lifecycle.audit.redaction import Bodies
from retrieval.pacing import Background
from retrieval.store import audit, banks
from retrieval.store.audit import AuditEntry
from retrieval.store.database.pool import Connection, Pool, with_writes, write

log = logging.getLogger(__name__)

FLUSH_S = 1.0
WAITING_MOST = 10_000
"""Reads that wait to be written; beyond, and where the database is away, they are lost and
counted."""
SETTING = "audit_log_enabled"
SETTING_S = 5.0
"""How long what a bank says is remembered."""
_BANKS_MOST = 10_000
_KEY = "audit"


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is noted. `actions`: only these; none: all. `addresses`: the caller's as well."""

    enabled: bool = False
    actions: frozenset[str] = frozenset()
    bodies: Bodies = "redacted"
    addresses: bool = False


noted: ContextVar[AuditEntry | None] = ContextVar("noted", default=None)
"""The request whose changes are being made."""


@contextmanager
def noting(entry: AuditEntry | None) -> Iterator[None]:
    """Every transaction that is committed inside has the entry with it."""
    if entry is None:
        yield
        return

    async def also(connection: Connection) -> None:
        await audit.add(connection, [entry])

    whose, what = noted.set(entry), with_writes.set(also)
    try:
        yield
    finally:
        with_writes.reset(what)
        noted.reset(whose)


class Recorder:
    """One per process; all calls from one event loop. `lost` counts reads that were not noted."""

    def __init__(self, pool: Pool, settings: AuditSettings) -> None:
        self._pool = pool
        self.settings = settings
        self.lost = 0
        self._waiting: list[AuditEntry] = []
        self._banks: dict[tuple[str, str], tuple[float, bool]] = {}
        self._key: bytes | None = None
        self._background = Background("audit", self._run)

    def start(self) -> None:
        self._background.start()

    async def close(self) -> None:
        """Writes what waits, and stops."""
        await self._background.close()
        await self.flush()

    async def wants(self, tenant: str, bank_id: str, action: str) -> bool:
        """Is this noted? The bank's own word counts, remembered for SETTING_S."""
        if self.settings.actions and action not in self.settings.actions:
            return False
        return await self.on(tenant, bank_id)

    async def on(self, tenant: str, bank_id: str) -> bool:
        """Is the bank's log on?"""
        now = time.monotonic()
        known = self._banks.get((tenant, bank_id))
        if known is not None and known[0] > now:
            return known[1]
        try:
            head = await banks.head(self._pool, tenant, bank_id, building=True)
            own = head.config.get(SETTING)
        except NotFound:
            own = None
        found = self.settings.enabled if own is None else bool(own)
        if len(self._banks) >= _BANKS_MOST:
            self._banks.clear()
        self._banks[tenant, bank_id] = (now + SETTING_S, found)
        return found

    async def key(self) -> bytes:
        """What texts are hashed with: made once, and kept in the database."""
        if self._key is None:

            async def work(connection: Connection) -> bytes:
                await connection.execute(
                    "insert into server_keys (name, value) values ($1, $2) on conflict do nothing",
                    _KEY,
                    secrets.token_bytes(32),
                )
                return bytes(
                    await connection.fetchval("select value from server_keys where name = $1", _KEY)
                )

            self._key = await write(self._pool, work)
        return self._key

    async def changed(self, entry: AuditEntry) -> None:
        """Notes how a change ended; it is in the log when this returns."""
        await write(self._pool, lambda connection: audit.add(connection, [entry]))

    def seen(self, entry: AuditEntry) -> None:
        """Notes a read, before long."""
        if len(self._waiting) >= WAITING_MOST:
            self.lost += 1
            return
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Writes the reads that wait."""
        entries, self._waiting = self._waiting, []
        if not entries:
            return
        try:
            await write(self._pool, lambda connection: audit.add(connection, entries))
        except FourfoldError as error:
            self.lost += len(entries)
            log.warning("%d reads are not in the audit log: %s", len(entries), error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flush()
            except Exception:
                log.exception("the audit log failed")
