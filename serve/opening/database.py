"""The database that the settings name, and what ranks keywords inside it.

Apart from the composition root, which brings torch: commands that only ask the database start at
once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack

from retrieval.errors import Unavailable
from retrieval.keyword import backends
from retrieval.keyword.backends import KeywordBackend
from retrieval.maintenance import keyword
from retrieval.store.database import migrate
from retrieval.store.database.migrate import SchemaTooOld
from retrieval.store.database.pool import Pool, PoolSettings, open_pool, write
from retrieval.store.database.roles import Roles, grant
from serve import metrics
from serve.settings import Settings
from serve.settings.model import RESIDENT

log = logging.getLogger(__name__)

START_WAIT_S = 600.0
"""How long a stage waits for its database when it starts."""
START_LOOK_S = 2.0


def pool_settings(settings: Settings) -> PoolSettings:
    database = settings.database
    if database.database_url is None:
        raise ValueError("database_url is not set: the launcher sets it when it starts its own")
    return PoolSettings(
        dsn=database.database_url.get_secret_value(),
        schema=database.database_schema,
        min_size=min(database.db_pool_min_size, database.db_pool_max_size),
        max_size=database.db_pool_max_size,
        command_timeout_s=database.db_command_timeout_s,
        acquire_timeout_s=database.db_acquire_timeout_s,
        statement_timeout_s=database.db_statement_timeout_s,
        statement_cache_size=database.db_statement_cache_size,
    )


async def open_database(settings: Settings, stack: AsyncExitStack) -> Pool:
    """The database for a stage of the server, once it can be used.

    A database that is away, or was not migrated yet, is waited for: a stage that gives up would be
    started again and again, and then not at all. SchemaTooNew, SchemaChanged at once; Unavailable
    and SchemaTooOld after START_WAIT_S.
    """
    give_up_at = time.monotonic() + START_WAIT_S
    pool = await open_pool(pool_settings(settings), START_WAIT_S)
    stack.push_async_callback(pool.finish)
    pool.acquired = metrics.acquired
    while True:
        try:
            await migrate.check(pool)
            return pool
        except (SchemaTooOld, Unavailable) as error:
            if time.monotonic() >= give_up_at:
                raise
            log.warning("%s; waiting for it", error)
            await asyncio.sleep(START_LOOK_S)


async def bring_up_to_date(settings: Settings, to: int | None = None) -> int:
    """Migrates the database, makes its keyword back-end ready, and grants what the roles of the
    settings need; the schema's number."""
    pool = await open_pool(pool_settings(settings))
    try:
        number = await migrate.migrate(pool, to)
        if to is None and (backend := keyword_backend(settings)) is not None:
            await keyword.ready(pool, backend)
        if not await migrate.missing(pool):  # what an earlier schema lacks cannot be granted
            named = Roles(settings.database.database_app_role, settings.database.database_keys_role)
            tables = [*migrate.tables(), *backends.TABLES]
            await write(pool, lambda connection: grant(connection, pool.schema, tables, named))
        return number
    finally:
        await pool.finish()


def keyword_backend(settings: Settings) -> KeywordBackend | None:
    """What ranks keywords inside PostgreSQL; None where the resident postings do."""
    name = settings.banks.text_search_extension
    if name == RESIDENT:
        return None
    language = settings.retain.text_search_language
    return backends.make(
        name,
        native_language="simple" if language in ("auto", "none") else language,
        pg_search_tokenizer=settings.banks.text_search_extension_pg_search_tokenizer,
    )
