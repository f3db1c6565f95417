"""The database that the settings name, and what ranks keywords inside it.

Apart from the composition root, which brings torch: commands that only ask the database start at
once.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from retrieval.keyword import backends
from retrieval.keyword.backends import KeywordBackend
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.settings import Settings
from serve.settings.model import RESIDENT


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
    pool = await open_pool(pool_settings(settings))
    stack.push_async_callback(pool.finish)
    return pool


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
