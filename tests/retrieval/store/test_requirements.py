"""Databases of all kinds: each is used, or refused with a sentence before anything is changed."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from retrieval.store import banks
from retrieval.store.database import migrate, requirements
from retrieval.store.database.pool import PoolSettings, open_pool
from retrieval.store.database.requirements import Unsuitable, version_finding
from tests.retrieval.store.servers import server


@pytest.mark.unit
@pytest.mark.parametrize(
    ("number", "said", "wrong"),
    [
        (150000, "PostgreSQL 15.0 on x86_64", None),
        (150018, "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64", None),
        (160004, "PostgreSQL 16.4 on aarch64", None),
        (170002, "PostgreSQL 17.2", None),
        (180000, "PostgreSQL 18.0", None),
        (180099, "PostgreSQL 18.99 (Ubuntu 18.99)", None),
        (140020, "PostgreSQL 14.20", "it is PostgreSQL 14.20: use 15 to 18"),
        (120001, "PostgreSQL 12.1", "it is PostgreSQL 12.1: use 15 to 18"),
        (90624, "PostgreSQL 9.6.24", "it is PostgreSQL 9.6: use 15 to 18"),
        (190000, "PostgreSQL 19beta1", "it is PostgreSQL 19.0: use 15 to 18"),
        (200003, "PostgreSQL 20.3", "it is PostgreSQL 20.3: use 15 to 18"),
        (130000, "CockroachDB CCL v23.1", "it is not PostgreSQL but CockroachDB"),
        (80002, "PostgreSQL 8.0.2 on i686, Redshift 1.0", "it is PostgreSQL 8.0: use 15 to 18"),
    ],
)
def test_versions(number: int, said: str, wrong: str | None) -> None:
    assert version_finding(number, said) == wrong


@pytest.mark.unit
def test_every_table_of_ours_is_known() -> None:
    assert {"banks", "tenants", "memory_units", "doors", "operations"} <= set(migrate.tables())


# Real databases

integration = pytest.mark.integration


async def admin(*statements: str, database: str = "fourfold") -> None:
    connection = await asyncpg.connect(_dsn(database))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _dsn(database: str, role: str = "fourfold") -> str:
    dsn = server().dsn.replace("/fourfold?", f"/{database}?")
    return dsn.replace("//fourfold@", f"//{role}@")


@asynccontextmanager
async def made(options: str = "") -> AsyncIterator[str]:
    """The name of a new database."""
    name = f"d{uuid4().hex[:10]}"
    await admin(f"create database {name} template template0 {options}")
    try:
        yield name
    finally:
        await admin(f"drop database {name} with (force)")


async def migrated(database: str, role: str = "fourfold", schema: str = "public") -> int:
    pool = await open_pool(
        PoolSettings(_dsn(database, role), schema=schema, min_size=1, max_size=2)
    )
    try:
        number = await migrate.migrate(pool)
        assert await migrate.migrate(pool) == number
        await banks.ensure(pool, "default", "Straße İstanbul")
        found = await banks.list_banks(pool, "default", q="STRASSE")
        assert found["total"] == 1
        return number
    finally:
        await pool.finish()


async def untouched(database: str, but: int = 0) -> bool:
    connection = await asyncpg.connect(_dsn(database))
    try:
        count: int = await connection.fetchval(
            "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname !~ '^(pg_|information_schema)'"
        )
        return count == but
    finally:
        await connection.close()


async def refused(database: str, said: str, role: str = "fourfold", schema: str = "public") -> None:
    with pytest.raises(Unsuitable, match=said) as told:
        await migrated(database, role, schema)
    assert "\n" not in str(told.value)


@integration
@pytest.mark.parametrize(
    "options",
    [
        "encoding 'UTF8' lc_collate 'C' lc_ctype 'C'",
        "encoding 'UTF8' lc_collate 'POSIX' lc_ctype 'POSIX'",
        "encoding 'UTF8' locale 'C.UTF-8'",
        "encoding 'UTF8' locale_provider builtin builtin_locale 'C' locale 'C'",
        "encoding 'UTF8' locale_provider icu icu_locale 'tr-TR' locale 'C'",
        "encoding 'UTF8' locale_provider icu icu_locale 'und-u-ks-level2' locale 'C'",
    ],
)
async def test_every_collation_serves(options: str) -> None:
    try:
        async with made(options) as database:
            assert await migrated(database) == migrate.known()[-1][0]
    except (asyncpg.FeatureNotSupportedError, asyncpg.WrongObjectTypeError) as error:
        pytest.skip(f"this server was built without it: {error}")


@integration
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP", "WIN1252", "KOI8R"])
async def test_other_encodings_are_refused(encoding: str) -> None:
    async with made(f"encoding '{encoding}' locale 'C' locale_provider libc") as database:
        await refused(database, f"{encoding}.*UTF8")
        assert await untouched(database)


@integration
async def test_a_database_of_another_program_is_left_alone() -> None:
    async with made() as database:
        await admin("create table banks (id int); create table orders (id int)", database=database)
        await refused(database, "another program.*banks.*DATABASE_SCHEMA")
        assert await untouched(database, but=2)
        assert await migrated(database, schema="ours")


@integration
async def test_a_record_of_migrations_of_another_program() -> None:
    async with made() as database:
        await admin("create table schema_migrations (version text)", database=database)
        await refused(database, "schema_migrations of another program")
        assert await untouched(database, but=1)
        assert await migrated(database, schema="ours")  # found beside it, not instead of ours


@integration
async def test_a_read_only_database() -> None:
    async with made() as database:
        await admin(f"alter database {database} set default_transaction_read_only = on")
        await refused(database, "read only")
        assert await untouched(database)


@integration
async def test_extensions_in_another_schema() -> None:
    async with made() as database:
        await admin(
            "create schema extensions; create extension pg_trgm schema extensions",
            database=database,
        )
        await refused(database, "pg_trgm is in the schema 'extensions'.*alter extension")


@integration
async def test_roles_with_too_few_rights() -> None:
    role = f"r{uuid4().hex[:8]}"
    await admin(f"create role {role} login")
    try:
        async with made() as database:
            await refused(database, f"{role}' may not create tables.*grant", role)
            await refused(database, "no schema 'own'.*may not create it", role, "own")
            await admin(f"grant usage, create on schema public to {role}", database=database)
            await refused(database, "may not create the extension pg_trgm.*administrator", role)
            assert await untouched(database)
            extensions = "; ".join(
                f"create extension {name} with schema public" for name in requirements.EXTENSIONS
            )
            await admin(extensions, database=database)
            assert await migrated(database, role)
            # another role's tables
            other = f"o{uuid4().hex[:8]}"
            await admin(
                f"create role {other} login; grant usage, create on schema public to {other}",
                database=database,
            )
            await refused(database, f"belong to role '{role}'", other)
            await admin(f"drop owned by {other}; drop role {other}", database=database)
        async with made() as database:  # trusted extensions need no administrator
            await admin(f"alter database {database} owner to {role}")
            assert await migrated(database, role)
            assert await migrated(database, role, "own")
    finally:
        await admin(f"drop owned by {role}; drop role {role}")


@integration
async def test_a_pooler_that_drops_what_is_set_at_connect() -> None:
    pool = await open_pool(PoolSettings(server().dsn, min_size=1, max_size=1))
    try:
        pool.schema = "elsewhere"  # what the settings say and the session does not have
        with pytest.raises(Unsuitable, match=r"search_path.*DB_STATEMENT_CACHE_SIZE"):
            await migrate.migrate(pool)
    finally:
        await pool.finish()


@integration
async def test_lax_durability_is_noted() -> None:
    connection = await asyncpg.connect(server().dsn)
    try:
        found = await requirements.examine(connection, "public", [])
    finally:
        await connection.close()
    notes = [f.sentence for f in found if f.state == "note"]
    assert any(re.search("fsync is off", note) for note in notes)  # it is, for tests
