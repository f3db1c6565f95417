"""Every table with something of a bank in it says how that is erased."""

from __future__ import annotations

import pytest

from retrieval.lifecycle.erasure.catalogue import KEYWORD, TABLES
from tests.retrieval.store.servers import database

pytestmark = pytest.mark.integration

COLUMNS = ("bank", "bank_id", "memory_id", "unit_id", "document_id", "observation_id")


async def test_every_table_is_listed() -> None:
    async with database() as pool:
        rows = await pool.fetch(
            "select distinct table_name from information_schema.columns"
            " where table_schema = $1 and column_name = any($2)",
            pool.schema,
            list(COLUMNS),
        )
        found = {row["table_name"] for row in rows}
        assert {"memory_units", "segments", "operations", "webhook_deliveries"} <= found
        unknown = {name for name in found - TABLES.keys() if not name.startswith(KEYWORD)}
        assert not unknown, f"say in {TABLES.__class__} how these are erased: {unknown}"
        await pool.execute("create table strays (bank bigint, words text)")
        rows = await pool.fetch(
            "select table_name from information_schema.columns"
            " where table_schema = $1 and column_name = 'bank'",
            pool.schema,
        )
        assert "strays" in {row["table_name"] for row in rows} - TABLES.keys()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_what_is_not_looked_through_has_a_reason(name: str) -> None:
    table = TABLES[name]
    assert table.test or table.why
