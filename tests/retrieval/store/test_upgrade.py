"""A database of an older version under this one."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from retrieval.settings import RecallSettings
from retrieval.store import banks
from retrieval.store.database import migrate
from retrieval.store.database.pool import Connection, Pool, PoolSettings, open_pool, write
from tests.retrieval.store.servers import server

pytestmark = pytest.mark.integration

OLD = 2
"""Number of the last migration before checksums were kept."""


@pytest.fixture
async def old() -> AsyncIterator[Pool]:
    """A schema as version 0.1 left it, with banks, memories and settings in it."""
    schema = f"old_{uuid4().hex[:8]}"
    pool = await open_pool(PoolSettings(server().dsn, schema=schema, min_size=1, max_size=2))

    async def make(connection: Connection) -> None:
        await connection.execute(f'create schema "{schema}"')
        await connection.execute(
            "create table schema_migrations (number int primary key, name text not null,"
            " applied_at timestamptz not null default now())"
        )
        for number, name, sql in migrate.known():
            if number <= OLD:
                await connection.execute(sql)
                await connection.execute(
                    "insert into schema_migrations (number, name) values ($1, $2)", number, name
                )
        await connection.execute(
            "insert into banks (tenant_id, bank_id, name, config) values"
            " ('default', 'ÉCOLE', 'École Normale', $1), ('other', 'x', 'x', '{}')",
            {"recall_budget_adaptive_low": 1e308, "recall_budget_fixed_low": 70},
        )
        await connection.execute(
            "insert into documents (bank, document_id, document_no, original_text)"
            " select bank, 'd', 0, 'äöü' from banks where bank_id = 'ÉCOLE';"
            "insert into memory_units (bank, id, ordinal, text, fact_type, token_count)"
            " select bank, gen_random_uuid(), 0, 'hello', 0, 1 from banks where bank_id = 'ÉCOLE'"
        )

    try:
        await write(pool, make)
        yield pool
    finally:
        await pool.execute(f'drop schema "{schema}" cascade')
        await pool.finish()


async def test_an_old_schema_is_brought_up(old: Pool) -> None:
    assert await migrate.migrate(old) == migrate.known()[-1][0]
    rows = await old.fetch("select number, sha256 from schema_migrations")
    assert {row["number"]: row["sha256"] for row in rows} == {
        number: migrate.checksum(sql) for number, _, sql in migrate.known()
    }
    found = await banks.list_banks(old, "default", q="école n")
    assert [bank["bank_id"] for bank in found["banks"]] == ["ÉCOLE"]
    assert await old.fetchval("select stored_bytes > 2300 from banks where bank_id = 'ÉCOLE'")
    head = await banks.head(old, "default", "ÉCOLE")
    assert RecallSettings().with_overrides(head.config).recall_budget_adaptive_low == 0.025
    assert await migrate.migrate(old) == migrate.known()[-1][0]


async def test_a_migration_that_was_edited_is_refused(old: Pool) -> None:
    await migrate.migrate(old)
    await old.execute("update schema_migrations set sha256 = 'other' where number = 1")
    with pytest.raises(migrate.SchemaChanged, match="0001_initial"):
        await migrate.migrate(old)


async def test_a_newer_schema_is_refused_and_stays(old: Pool) -> None:
    await old.execute("insert into schema_migrations (number, name) values (9999, 'later')")
    with pytest.raises(migrate.SchemaTooNew, match="9999"):
        await migrate.migrate(old)
    columns = await old.fetchval(
        "select count(*) from pg_attribute where attrelid = 'schema_migrations'::regclass"
        " and attname = 'sha256'"
    )
    assert columns == 0  # nothing was changed
