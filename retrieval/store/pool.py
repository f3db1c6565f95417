"""Connections to PostgreSQL, and what happens when they fail.

`read` and `write` are the only ways in: they map the driver's errors to ours. A statement that
runs out of time raises DeadlineExceeded. A lost connection is tried again after 0.5, 1 and 2 s:
reads always, writes only as long as nothing of them can have been committed. Then Unavailable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import asyncpg
import orjson

from retrieval.errors import DeadlineExceeded, Overloaded, Unavailable

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection | asyncpg.pool.PoolConnectionProxy"

RETRY_WAITS_S = (0.5, 1.0, 2.0)


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """A pool that knows how long a caller waits for a connection."""

    acquire_timeout_s = 30.0


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
        }


async def open_pool(settings: PoolSettings) -> Pool:
    """A pool whose connections carry our codecs (jsonb as Python values) and session settings.

    Raises Unavailable if the server cannot be reached within about four seconds.
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
            max_inactive_connection_lifetime=300.0,
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
        pool.acquire_timeout_s = settings.acquire_timeout_s
        await pool
        return pool

    return await _attempts(connect)


async def read(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    """The result of `work` on a connection of its own; `work` may run more than once."""

    async def once() -> T:
        async with _connection(pool) as connection:
            return await work(connection)

    return await _attempts(once)


async def write(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    """The result of `work` inside one transaction, committed when this returns.

    Any error rolls back. `work` runs again after a lost connection unless the commit had been
    sent: then Unavailable says that the outcome is not known.
    """

    async def once() -> T:
        async with _connection(pool) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                result = await work(connection)
            except BaseException:
                try:
                    await transaction.rollback()
                except Exception:  # what went wrong first is what counts
                    _drop(connection)
                raise
            try:
                await transaction.commit()
            except Exception as error:
                if _lost(error):
                    raise Unavailable(
                        "the database", "it went away during a commit: look before you repeat"
                    ) from error
                raise
            return result

    return await _attempts(once)


@asynccontextmanager
async def _connection(pool: Pool) -> AsyncIterator[Connection]:
    try:
        connection = await pool.acquire(timeout=pool.acquire_timeout_s)
    except TimeoutError as error:
        raise Overloaded("no database connection became free in time") from error
    try:
        yield connection
    except Exception as error:
        # The driver may take a connection that the dying server still talks on for a good one.
        if _lost(error):
            _drop(connection)
        raise
    finally:
        await pool.release(connection)


def _drop(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # it is gone from the pool already
        connection.terminate()


def _lost(error: BaseException) -> bool:
    """Is the connection or the server gone, rather than the statement wrong?"""
    if isinstance(error, asyncpg.InterfaceError):  # also raised for misuse of the driver
        return "clos" in str(error) or "released back" in str(error)
    return isinstance(
        error,
        OSError
        | asyncpg.InternalClientError  # the driver lost count of what was going on
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError  # shut down, crashed, starting up
        | asyncpg.TooManyConnectionsError,
    )


async def _attempts(once: Callable[[], Awaitable[T]]) -> T:
    for wait in (*RETRY_WAITS_S, None):
        try:
            return await once()
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            raise DeadlineExceeded("a database query") from error
        except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
            if wait is None:
                raise
            await asyncio.sleep(wait * 0.1 * random.random())
        except Exception as error:
            if not _lost(error):
                raise
            if wait is None:
                raise Unavailable("the database", str(error) or type(error).__name__) from error
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")
