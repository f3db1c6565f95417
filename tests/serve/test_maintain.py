"""The commands that make vectors and keyword indexes anew, on a real database with real weights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from retrieval.ingest.importing import import_memories
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from serve.cli.doctor import findings
from serve.cli.main import app
from tests.retrieval.store.servers import database, deps, server

pytestmark = pytest.mark.integration

T = TypeVar("T")


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"cli_{uuid4().hex[:8]}"
    monkeypatch.setenv("FOURFOLD_DATABASE_URL", server().dsn)
    monkeypatch.setenv("FOURFOLD_DATABASE_SCHEMA", name)
    monkeypatch.setenv("FOURFOLD_DB_POOL_MAX_SIZE", "4")
    on(name, lambda pool: fill(pool, "b"))
    yield name
    on(name, lambda pool: pool.execute(f'drop schema "{name}" cascade'))


def on(schema: str, work: Callable[[Pool], Awaitable[T]]) -> T:
    async def run() -> T:
        async with database(schema) as pool:
            return await work(pool)

    return asyncio.run(run())


async def fill(pool: Pool, bank: str) -> None:
    items = [{"text": f"Die Häuser der Stadt, Teil {i}"} for i in range(7)]
    await import_memories(deps(pool), "default", bank, items)


def fourfold(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, " ".join(result.output.split())


def test_reembed(schema: str) -> None:
    code, said = fourfold("reembed", "b")
    assert (code, said.endswith("b: done")) == (0, True)
    head = on(schema, lambda pool: banks.head(pool, "default", "b"))
    assert head.vector_set.endswith(":384")
    code, said = fourfold("reembed", "--all")
    assert (code, said.endswith("b: nothing to do")) == (0, True)


def test_reindex(schema: str) -> None:
    assert fourfold("reindex", "b")[1].endswith("b: nothing to do")
    code, said = fourfold("reindex", "b", "--language", "german")
    assert (code, said.endswith("b: done")) == (0, True)
    head = on(schema, lambda pool: banks.head(pool, "default", "b"))
    assert head.config["text_search_language"] == "german"
    assert head.analyser.startswith("german-")


def test_a_keyword_back_end(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOURFOLD_TEXT_SEARCH_EXTENSION", "native")
    before = [f for f in findings(None, Path(".")) if f[1] == "keyword"]
    assert ("wrong", "keyword") in {f[:2] for f in before}
    assert "fourfold reindex --keyword native" in before[-1][2]
    code, said = fourfold("reindex", "--keyword", "native")
    assert (code, "native is ready" in said) == (0, True)
    assert {f[0] for f in findings(None, Path(".")) if f[1] == "keyword"} == {"ok"}
    assert fourfold("reindex", "--keyword", "bm25")[0] == 0
    table = on(schema, lambda pool: pool.fetchval("select to_regclass('keyword_native')"))
    assert table is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("reembed",), "name a bank"),
        (("reembed", "b", "--all"), "name a bank"),
        (("reembed", "none"), "there is no bank 'none'"),
        (("reindex", "b", "--language", "klingon"), "klingon"),
        (("reindex", "b", "--segmenter", "knife"), "'bigram' or 'jieba'"),
        (("reindex", "b", "--keyword", "native"), "cannot be combined with other options"),
        (("reindex", "--keyword", "solr"), "unknown text search extension"),
        (("reindex", "--keyword", "vchord"), "not installed on the server"),
    ],
)
def test_a_sentence_says_what_is_wrong(
    schema: str, arguments: tuple[str, ...], reason: str
) -> None:
    code, said = fourfold(*arguments)
    assert code == 1
    assert reason in said
