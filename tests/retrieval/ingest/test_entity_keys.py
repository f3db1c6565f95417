"""Keys of names on databases of other locales, and of banks from before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput
from retrieval.ingest.entities.curation import split_entity
from retrieval.ingest.importing import import_memories
from retrieval.store import banks, entities
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.text import folding
from tests.retrieval.store.servers import database, deps, server

pytestmark = pytest.mark.integration


def fact(*names: str) -> dict[str, Any]:
    return {"text": " and ".join(names), "entities": list(names)}


@asynccontextmanager
async def in_locale_c() -> AsyncIterator[Pool]:
    """A pool on a database whose lower() knows the letters of ASCII only."""
    name = f"c_{uuid4().hex[:8]}"
    async with database() as first:
        await first.execute(
            f"create database {name} template template0 encoding 'UTF8'"
            " locale_provider libc locale 'C'"
        )
        held = await first.fetchval("select current_database()")
        dsn = server().dsn.replace(f"/{held}?", f"/{name}?")
        pool = await open_pool(PoolSettings(dsn, min_size=1, max_size=8, command_timeout_s=20))
        try:
            await migrate(pool)
            yield pool
        finally:
            await pool.close()
            await first.execute(f"drop database {name} (force)")


async def listed(pool: Pool, bank: str) -> dict[str, int]:
    found = await entities.list_entities(pool, "default", bank)
    return {item["canonical_name"]: item["mention_count"] for item in found["items"]}


async def test_case_is_folded_whatever_the_locale_of_the_database() -> None:
    async with in_locale_c() as pool:
        assert await pool.fetchval("select lower('É')") == "É"
        ingest = deps(pool)
        for name in ("Élodie", "ÉLODIE", "E\u0301lodie", "É\u00adlodie"):
            await import_memories(ingest, "default", "b", [fact(name)])
        assert await listed(pool, "b") == {"Élodie": 4}


async def test_the_names_of_a_bank_from_before_are_folded_at_its_next_write(pool: Pool) -> None:
    bank, ingest = f"bank-{uuid4().hex[:8]}", deps(pool)
    names = ["Élodie", "Zoe", "Boris", "Straße 5", "Dr. Waller"]
    await import_memories(ingest, "default", bank, [fact(name, "Xanthippe") for name in names])
    number = (await banks.head(pool, "default", bank)).bank
    # As a database of locale C left it: two entities of one name in two cases, and old aliases.
    for old, kept in (("Zoe", "ÉLODIE"), ("Boris", "éLODIE")):
        await pool.execute(
            "update entities set canonical_name = $3, name_key = $3"
            " where bank = $1 and canonical_name = $2",
            number,
            old,
            kept,
        )
    await pool.execute(
        "insert into entity_aliases (bank, name_key, entity_no)"
        " select bank, 'ÉLO', entity_no from entities"
        " where bank = $1 and canonical_name = 'Élodie'",
        number,
    )
    await pool.execute("update banks set name_folding = 0 where bank = $1", number)
    await pool.execute("update entities set plain_key = null where bank = $1", number)

    await import_memories(ingest, "default", bank, [fact("élodie")])
    assert await listed(pool, bank) == {
        "Xanthippe": 5,
        "Élodie": 4,
        "Straße 5": 1,
        "Dr. Waller": 1,
    }
    rows = await pool.fetch(
        "select canonical_name, name_key, plain_key from entities"
        " where bank = $1 and merged_into is null order by 1",
        number,
    )
    assert [tuple(row) for row in rows] == [
        ("Dr. Waller", "dr. waller", "dr waller"),
        ("Straße 5", "strasse 5", None),
        ("Xanthippe", "xanthippe", None),
        ("Élodie", "élodie", "elodie"),
    ]
    first = next(
        item
        for item in (await entities.list_entities(pool, "default", bank))["items"]
        if item["canonical_name"] == "Élodie"
    )
    assert (await entities.get(pool, "default", bank, first["id"]))["aliases"] == ["élo"]
    together = await pool.fetch(
        "select count from entity_cooccurrences where bank = $1 order by count", number
    )
    assert [row[0] for row in together] == [1, 1, 3]
    assert (
        await pool.fetchval("select name_folding from banks where bank = $1", number)
        == folding.REVISION
    )


async def test_a_split_finds_mentions_by_the_folded_name(pool: Pool) -> None:
    bank, ingest = f"bank-{uuid4().hex[:8]}", deps(pool)
    await import_memories(ingest, "default", bank, [fact("Dr. Wäller")])
    await import_memories(ingest, "default", bank, [fact("Dr Wa\u0308ller")])
    (item,) = (await entities.list_entities(pool, "default", bank))["items"]
    assert item["mention_count"] == 2
    split = await split_entity(ingest, "default", bank, item["id"], "DR WÄLLER")
    assert split["mention_count"] == 1
    with pytest.raises(InvalidInput, match="name"):
        await split_entity(ingest, "default", bank, item["id"], "\u00ad")
