"""A database of an earlier version is brought to what this code knows, with what is in it."""

import json
from uuid import uuid4

import pytest

from retrieval.store import banks
from retrieval.store.database import migrate
from retrieval.store.database.pool import Connection, PoolSettings, open_pool
from tests.retrieval.store.servers import server

pytestmark = pytest.mark.integration


async def _nothing(connection: Connection) -> None:
    pass


async def test_operations_and_chunks_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = f"t{uuid4().hex[:12]}"
    pool = await open_pool(PoolSettings(server().dsn, schema=schema, min_size=1, max_size=2))
    every = migrate.known()
    monkeypatch.setattr(migrate, "known", lambda: [m for m in every if m[0] < 20])
    monkeypatch.setattr(banks, "fill_search_keys", _nothing)  # of a later migration
    try:
        await migrate.migrate(pool)
        bank = await pool.fetchval(
            "insert into banks (tenant_id, bank_id, name) values ('t', 'b', 'b') returning bank"
        )
        items = {"items": [{"document_id": "d"}, {"document_id": "e"}, {"document_id": "d"}]}
        for status, payload, document in (
            ("pending", items, None),
            ("pending", {}, "d"),
            ("completed", items, None),
            ("failed", items, None),
            ("pending", {"target": "m:3"}, None),
        ):
            await pool.execute(
                "insert into operations (operation_id, bank, type, status, payload, document_id,"
                " created_at) values ($1, $2, 'retain', $3, $4::text::jsonb, $5,"
                " clock_timestamp())",
                uuid4(), bank, status, json.dumps(payload), document,
            )  # fmt: skip
        await pool.execute(
            "insert into documents (bank, document_id, document_no) values ($1, 'd', 0)", bank
        )
        await pool.execute(
            "insert into chunks (bank, chunk_id, document_id, chunk_index, chunk_text,"
            " content_hash) values ($1, 'b_d_0', 'd', 0, 'x', 'h')",
            bank,
        )
        await pool.execute(
            "insert into memory_units (bank, id, text, fact_type, mentioned_at, document_id,"
            " chunk_id, token_count) values ($1, $2, 'x', 0, '2024-05-01', 'd', 'b_d_0', 1)",
            bank,
            uuid4(),
        )
        monkeypatch.undo()
        await migrate.migrate(pool)
        rows = await pool.fetch("select place, status, payload from operations order by place")
        assert [row["place"] for row in rows] == [1, 2, 3, 4, 5]
        assert [bool(row["payload"].get("items")) for row in rows] == [
            True, False, False, True, False,
        ]  # fmt: skip
        lanes = await pool.fetch("select lane, place from operation_lanes order by place, lane")
        assert [tuple(row) for row in lanes] == [("d", 1), ("e", 1), ("d", 2)]
        next_place = await pool.fetchval(
            "insert into operations (operation_id, bank, type) values ($1, $2, 'x')"
            " returning place",
            uuid4(),
            bank,
        )
        assert next_place == 6
        assert (await pool.fetchval("select mentioned_at from chunks")).year == 2024
    finally:
        await pool.execute(f'drop schema "{schema}" cascade')
        await pool.close()
