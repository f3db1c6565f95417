"""A store of LangGraph, read out of its table."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import orjson
import pytest

from serve.cli.sources import READERS
from serve.cli.sources.records import LeftOut, Memory, ReadOptions

pytestmark = pytest.mark.integration

TABLE = """
create schema langgraph_test;
create table langgraph_test.store (
    prefix text not null, key text not null, value jsonb not null,
    created_at timestamptz default current_timestamp,
    updated_at timestamptz default current_timestamp,
    expires_at timestamptz, ttl_minutes int, primary key (prefix, key)
)"""


async def test_the_table_of_a_store(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(TABLE)
        await connection.executemany(
            "insert into langgraph_test.store (prefix, key, value, created_at, expires_at)"
            " values ($1, $2, $3, '2024-01-01', $4::text::timestamptz)",
            [
                ("u.facts", f"k{i}", orjson.dumps({"content": f"Ann\n'{i}' \\ rows"}).decode(),
                 "2020-01-01" if i == 7 else None)
                for i in range(2500)
            ],
        )  # fmt: skip
        where = f"{dsn}{'&' if '?' in dsn else '?'}options=-csearch_path%3Dlanggraph_test"
        found = list(READERS["langgraph"](Path("x"), ReadOptions(dsn=where)))
        texts = {one.fields["text"] for one in found if isinstance(one, Memory)}
        assert texts == {f"Ann\n'{i}' \\ rows" for i in range(2500) if i != 7}
        first = next(one for one in found if isinstance(one, Memory))
        assert first.fields["key"] == "langgraph:u/facts/k0"
        assert first.fields["mentioned_at"].startswith("2024-01-01T00:00:00")
        assert [one.why for one in found if isinstance(one, LeftOut)] == ["expired"]
        next(iter(READERS["langgraph"](Path("x"), ReadOptions(dsn=where))))  # and left off
        await connection.execute("drop schema langgraph_test cascade")
        with pytest.raises(ValueError, match='relation "store" does not exist'):
            list(READERS["langmem"](Path("x"), ReadOptions(dsn=where)))
        assert await connection.fetchval("select 1") == 1
    finally:
        await connection.execute("drop schema if exists langgraph_test cascade")
        await connection.close()
