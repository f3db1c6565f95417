"""Connections to PostgreSQL, and what happens when they fail.

`read` and `write` are the only ways in: they map the driver's errors to ours (`faults` says which
is which). A statement that runs out of time raises DeadlineExceeded. What may pass within seconds
is tried again after 0.5, 1 and 2 s: reads always, writes only as long as nothing of them can have
been committed. Then, or at once where waiting does not help, Unavailable says what the server
says. Connections that are of no use any more are given up, so that nothing has to be restarted
once the server is well.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import asyncpg
import orjson

from retrieval.errors import DeadlineExceeded, Overloaded, TooMuch, Unavailable
from retrieval.store.database.faults import by_hand, fault, outcome_unknown, reason

log = logging.getLogger(__name__)

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection | asyncpg.pool.PoolConnectionProxy"

DATABASE = "the database"

STORAGE_FULL = "FF413"
"""SQLSTATE of our own, raised by the trigger `check_stored` (migration 41)."""

RETRY_WAITS_S = (0.5, 1.0, 2.0)


RELEASE_S = 10.0
"""Most seconds to wait for a statement that was cancelled, before its connection is given up."""

IDLE_S = 60.0
"""After so long without work a connection beyond `min_size` is closed: its process in the database
holds some 5 MB."""

TROUBLE_S = 10.0
"""How long writes count as impossible after one failed, whatever is written meanwhile: a full disk
refuses large ones and takes small ones."""

_EXPIRY_S = 1.0
"""Least seconds between two times that all connections are given up."""


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """A pool that knows its limits of time, and how the last writes went."""

    schema = "public"
    acquire_timeout_s = 30.0
    statement_timeout_s = 600.0
    _expired_at = _failed_at = -1e9
    _failure: str | None = None

    acquired: Callable[[float], None] = staticmethod(lambda _seconds: None)
    """Hears how long each call waited for its connection."""

    @property
    def trouble(self) -> str | None:
        """Why writes are refused by the server's state; None while they are not."""
        return self._failure

    def write_failed(self, said: str) -> None:
        self._failure, self._failed_at = said, time.monotonic()

    def written(self) -> None:
        if self._failure is not None and time.monotonic() - self._failed_at > TROUBLE_S:
            self._failure = None

    async def give_up_all(self) -> None:
        """Every connection leads to a server that is of no use: each is replaced before it is used
        again."""
        now = time.monotonic()
        if now - self._expired_at >= _EXPIRY_S:
            self._expired_at = now
            log.warning("giving up all database connections")
            await self.expire_connections()

    async def finish(self) -> None:
        """Closes the pool; what does not end within RELEASE_S is cut off."""
        try:
            async with asyncio.timeout(RELEASE_S):
                await self.close()
        except TimeoutError:
            self.terminate()


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """`statement_cache_size = 0` is for a pooler in transaction mode (PgBouncer): statements are
    then unnamed and session settings are sent on every checkout instead of at connect."""

    dsn: str
    schema: str = "public"
    min_size: int = 2
    max_size: int = 20
    command_timeout_s: float = 60.0
    acquire_timeout_s: float = 30.0
    statement_timeout_s: float = 600.0
    statement_cache_size: int = 256

    def session(self) -> dict[str, str]:
        path = f'"{self.schema}"' if self.schema == "public" else f'"{self.schema}", public'
        return {
            "search_path": path,
            "timezone": "UTC",
            "application_name": "fourfold",
            "statement_timeout": str(int(self.statement_timeout_s * 1000)),
            "idle_in_transaction_session_timeout": "120000",
            "jit": "off",
            "plan_cache_mode": "auto",
            "default_transaction_isolation": "read committed",
        }


async def open_pool(settings: PoolSettings, patience_s: float = 0.0) -> Pool:
    """A pool whose connections carry our codecs (jsonb as Python values) and session settings.

    Raises Unavailable if the server cannot be reached, four seconds after it refused first, or
    after `patience_s`.
    """
    pooled = settings.statement_cache_size == 0
    session = settings.session()

    async def init(connection: Connection) -> None:
        await connection.set_type_codec(
            "jsonb",
            schema="pg_catalog",
            format="binary",
            encoder=lambda value: b"\x01" + orjson.dumps(value),
            decoder=lambda raw: orjson.loads(raw[1:]),
        )

    async def setup(connection: Connection) -> None:
        # A pooler may have given us another server connection than last time.
        quoted = ", ".join(f"set_config('{k}', '{v}', false)" for k, v in session.items())
        await connection.execute(f"select {quoted}")

    async def reset(connection: Connection) -> None:
        """Nothing to undo: the driver rolls back, and we set nothing beyond a transaction."""

    async def connect() -> Pool:
        pool = Pool(
            settings.dsn,
            min_size=settings.min_size,
            max_size=settings.max_size,
            command_timeout=settings.command_timeout_s,
            timeout=min(settings.acquire_timeout_s, 10.0),
            max_queries=50_000,
            max_inactive_connection_lifetime=IDLE_S,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            loop=asyncio.get_running_loop(),
            statement_cache_size=settings.statement_cache_size,
            max_cached_statement_lifetime=0,
            # At connect these survive everything; a pooler would refuse them there.
            server_settings=None if pooled else session,
            init=init,
            setup=setup if pooled else None,
            reset=reset,
        )
        pool.schema = settings.schema
        pool.acquire_timeout_s = settings.acquire_timeout_s
        pool.statement_timeout_s = settings.statement_timeout_s
        try:
            await pool
        except TimeoutError as error:
            raise Unavailable(DATABASE, "it does not answer") from error
        return pool

    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return await _attempts(connect, settings.statement_timeout_s)
        except Unavailable as error:
            if time.monotonic() + error.retry_after_s >= give_up_at:
                raise
            log.warning("%s; waiting for it", error)
            await asyncio.sleep(error.retry_after_s)


async def read(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    """The result of `work` on a connection of its own; `work` may run more than once."""

    async def once() -> T:
        async with _connection(pool) as connection:
            return await work(connection)

    return await _attempts(once, pool.statement_timeout_s)


with_writes: ContextVar[Callable[[Connection], Awaitable[None]] | None] = ContextVar(
    "with_writes", default=None
)
"""What is to be part of every transaction that somebody's request commits; see `write`."""


async def write(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    """The result of `work` inside one transaction, committed when this returns; what `with_writes`
    says goes with it.

    Any error rolls back. `work` runs again after a lost connection unless the commit had been
    sent: then Unavailable says that the outcome is not known.
    """

    async def once() -> T:
        async with _connection(pool) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                result = await work(connection)
                if (also := with_writes.get()) is not None:
                    await also(connection)
            except BaseException:
                try:
                    await transaction.rollback()
                except Exception:  # what went wrong first is what counts
                    _drop(connection)
                raise
            try:
                await transaction.commit()
            except Exception as error:
                if outcome_unknown(error):
                    _drop(connection)
                    raise Unavailable(
                        DATABASE, "it went away during a commit: look before you repeat"
                    ) from error
                raise
            pool.written()
            return result

    try:
        return await _attempts(once, pool.statement_timeout_s)
    except Unavailable as error:
        if error.part == DATABASE:
            pool.write_failed(str(error))
        raise


async def refuses_writes(connection: Connection) -> str | None:
    """Why the server that this connection leads to takes no writes; None where it takes them."""
    row = await connection.fetchrow(
        "select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as fixed"
    )
    if row["standby"]:
        return "it is a standby of another server, or recovers"
    return "it is set to read only" if row["fixed"] == "on" else None


@asynccontextmanager
async def _connection(pool: Pool) -> AsyncIterator[Connection]:
    begin = time.perf_counter()
    try:
        connection = await pool.acquire(timeout=pool.acquire_timeout_s)
        pool.acquired(time.perf_counter() - begin)
    except TimeoutError as error:
        if pool.get_size() < pool.get_max_size():  # there was room for one more
            raise Unavailable(DATABASE, "it does not answer") from error
        raise Overloaded("no database connection became free in time") from error
    try:
        yield connection
    except Exception as error:
        # The driver may take a connection that the dying server still talks on for a good one.
        if (found := fault(error)) is not None:
            if found.drop:
                _drop(connection)
            if found.all:
                await pool.give_up_all()
        raise
    finally:
        try:
            await pool.release(connection, timeout=RELEASE_S)
        except (TimeoutError, OSError, asyncpg.InterfaceError):
            _drop(connection)


def _drop(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # it is gone from the pool already
        connection.terminate()


async def _attempts(once: Callable[[], Awaitable[T]], limit_s: float) -> T:
    for wait in (*RETRY_WAITS_S, None):
        begin = time.monotonic()
        try:
            return await once()
        except Exception as error:
            found = fault(error)
            if found is None:
                if isinstance(error, asyncpg.PostgresError) and error.sqlstate == STORAGE_FULL:
                    raise TooMuch(str(error.message)) from None
                raise
            if found.verdict == "late" and not by_hand(error, time.monotonic() - begin, limit_s):
                raise DeadlineExceeded("a database query") from error
            if wait is None or found.verdict in ("refused", "late"):
                raise Unavailable(DATABASE, reason(error), found.retry_after_s) from error
            await asyncio.sleep(wait * 0.1 * random.random() if found.verdict == "again" else wait)
    raise AssertionError("unreachable")
