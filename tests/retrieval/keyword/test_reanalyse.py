"""A bank changes its analyser while it is used."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

import retrieval.store
from retrieval.errors import NotFound
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Analyser, Document
from retrieval.keyword.backends.backend import Connection
from retrieval.keyword.postings import Postings, decode, encode
from retrieval.keyword.reanalyse import reanalyse
from tests.retrieval.keyword.server import Server, embedded

pytestmark = pytest.mark.integration

ENGLISH, GERMAN = Analyser("english"), Analyser("german")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    install = embedded()
    if install is None:
        pytest.skip("no embedded PostgreSQL here")
    with Server(install) as running:
        yield running


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    name = f"bank{uuid.uuid4().hex[:8]}"
    host = str(server.folder)
    admin = await asyncpg.connect(host=host, user="postgres", database="postgres")
    await admin.execute(f"create database {name}")
    await admin.close()
    connection = await asyncpg.connect(host=host, user="postgres", database=name)
    assert retrieval.store.__file__ is not None
    for script in sorted((Path(retrieval.store.__file__).parent / "migrations").glob("*.sql")):
        await connection.execute(script.read_text())
    await connection.execute(
        "insert into banks (tenant_id, bank_id, name, analyser) values ('default', 'b', 'b', $1)",
        ENGLISH.version,
    )
    yield connection
    await connection.close()


async def write(connection: Connection, texts: list[str], analyser: Analyser) -> None:
    """What a writer does, as far as the keyword arm is concerned."""
    async with connection.transaction():
        first = await connection.fetchval(
            "select next_ordinal from banks where bank = 1 for update"
        )
        for i, text in enumerate(texts):
            await connection.execute(
                "insert into memory_units (bank, id, ordinal, text, fact_type, token_count)"
                " values (1, $1, $2, $3, 0, 1)",
                uuid.uuid4(),
                first + i,
                text,
            )
        await connection.execute(
            "insert into segments values (1, $1, $2, $3, 1, $4)",
            f"postings:{analyser.version}",
            first,
            len(texts),
            encode(analyser, [Document(text) for text in texts]),
        )
        await connection.execute(
            "update banks set next_ordinal = next_ordinal + $1, version = version + 1"
            " where bank = 1",
            len(texts),
        )


async def found(connection: Connection, analyser: Analyser, query: str) -> list[int]:
    rows = await connection.fetch(
        "select first_ordinal, payload from segments where bank = 1 and kind = $1"
        " order by first_ordinal",
        f"postings:{analyser.version}",
    )
    postings = Postings.empty()
    for row in rows:
        assert row["first_ordinal"] == postings.end
        postings = postings.append(decode(row["payload"]), row["first_ordinal"])
    matches = bm25.scores(postings, analyser.query(query))
    return [int(ordinal) for ordinal in matches.ordinals]


async def test_new_postings_replace_the_old_ones(connection: Connection) -> None:
    texts = [f"Die Häuser der Nummer{i}" for i in range(23)]
    await write(connection, texts[:20], ENGLISH)
    await write(connection, texts[20:], ENGLISH)
    await connection.execute(
        "update memory_units set ordinal = null, invalidated_at = now() where ordinal = 4"
    )
    assert await found(connection, ENGLISH, "Haus") == []
    seen = []
    async for progress in reanalyse(connection, 1, GERMAN, batch=10):
        seen.append((progress.done, progress.total))
        if len(seen) == 1:
            assert len(await found(connection, ENGLISH, "Häuser")) == 23  # still served
            await write(connection, ["Ein Haus am See"], ENGLISH)
    assert seen == [(10, 23), (20, 24), (24, 24)]
    assert await found(connection, GERMAN, "Haus") == [i for i in range(24) if i != 4]
    kinds = await connection.fetch("select distinct kind from segments")
    assert [row["kind"] for row in kinds] == [f"postings:{GERMAN.version}"]
    bank = await connection.fetchrow("select analyser, version from banks")
    assert (bank["analyser"], bank["version"]) == (GERMAN.version, 4)
    assert [step async for step in reanalyse(connection, 1, GERMAN)] == []


async def test_it_begins_anew_after_a_stop_or_new_ordinals(connection: Connection) -> None:
    await write(connection, [f"Häuser{i} Häuser" for i in range(30)], ENGLISH)
    stopped = reanalyse(connection, 1, GERMAN, batch=10)
    await anext(stopped)
    await stopped.aclose()
    seen = []
    async for progress in reanalyse(connection, 1, GERMAN, batch=10):
        seen.append(progress.done)
        if len(seen) == 2:
            await connection.execute("update banks set generation = generation + 1")
    assert seen == [10, 20, 10, 20, 30]
    assert await found(connection, GERMAN, "Haus") == list(range(30))


async def test_an_empty_and_a_missing_bank(connection: Connection) -> None:
    assert [step.done async for step in reanalyse(connection, 1, GERMAN)] == [0]
    assert await connection.fetchval("select analyser from banks") == GERMAN.version
    with pytest.raises(NotFound):
        await anext(reanalyse(connection, 99, GERMAN))
