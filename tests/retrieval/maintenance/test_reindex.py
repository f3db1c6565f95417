"""A bank changes its language, or the program its analyser, while it is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.bank.resident import ResidentBank
from retrieval.errors import Conflict, NotFound
from retrieval.ingest import curation
from retrieval.ingest.importing import import_memories
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Analyser
from retrieval.keyword.analysers import analyser
from retrieval.maintenance.reindex import reindex
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.segments import table as segments
from tests.retrieval.store.servers import deps

pytestmark = pytest.mark.integration

GERMAN = analyser("german", "bigram")
TEXTS = [f"Die Häuser der Nummer{i}" for i in range(20)]


@pytest.fixture
def bank() -> str:
    return f"x-{uuid4().hex[:8]}"


@pytest.fixture
async def residency(pool: Pool) -> AsyncIterator[Residency]:
    opened = Residency(pool, ResidencySettings())
    yield opened
    await opened.close()


async def fill(pool: Pool, bank: str, texts: Sequence[str] = TEXTS, **changes: Any) -> None:
    items = [{"text": text, "key": text} for text in texts]
    for start in range(0, len(items), 5):
        await import_memories(deps(pool, **changes), "default", bank, items[start : start + 5])


async def run(pool: Pool, bank: str, language: str | None = "german", batch: int = 6) -> list[int]:
    changes = {"text_search_language": language}
    steps = reindex(pool, RetainSettings(), "default", bank, changes=changes, batch=batch)
    return [step.done async for step in steps]


def found(held: ResidentBank, analyser: Analyser, query: str) -> list[int]:
    matches = bm25.scores(held.postings, analyser.query(query), held.live)
    return [int(ordinal) for ordinal in matches.ordinals]


async def opened(pool: Pool, residency: Residency, bank: str) -> ResidentBank:
    return await residency.open(await banks.head(pool, "default", bank))


async def test_a_language_is_changed_in_one_step(
    pool: Pool, bank: str, residency: Residency
) -> None:
    await fill(pool, bank)
    with pytest.raises(Conflict, match=f"fourfold reindex {bank} --language german"):
        await banks.patch_config(
            pool, "default", bank, {"text_search_language": "german"},
            RecallSettings(), RetainSettings(),
        )  # fmt: skip
    before = await banks.head(pool, "default", bank)
    assert found(await opened(pool, residency, bank), GERMAN, "Haus") == []
    assert await run(pool, bank) == [6, 12, 18, 20]
    head = await banks.head(pool, "default", bank)
    assert head.config == {"text_search_language": "german"}
    assert (head.analyser, head.version) == (GERMAN.version, before.version + 1)
    assert found(await opened(pool, residency, bank), GERMAN, "Haus") == list(range(20))
    kinds = await pool.fetch("select distinct kind from segments where bank = $1", head.bank)
    assert {k for (k,) in kinds if k.startswith("postings")} == {f"postings:{GERMAN.version}"}
    assert await run(pool, bank) == []


async def test_writes_go_on(pool: Pool, bank: str, residency: Residency) -> None:
    await fill(pool, bank)
    changes = {"text_search_language": "german"}
    seen = 0
    steps = reindex(pool, RetainSettings(), "default", bank, changes=changes, batch=6)
    async for _ in steps:
        seen += 1
        if seen == 1:
            await fill(pool, bank, ["Ein Haus am See", TEXTS[2]])
        if seen == 2:
            number = (await banks.head(pool, "default", bank)).bank
            id = await pool.fetchval(
                "select id from memory_units where bank = $1 and text = $2", number, TEXTS[4]
            )
            await curation.delete_memory(deps(pool), "default", bank, str(id))
            await segments.compact(pool, "default", bank, force=True)
    held = await opened(pool, residency, bank)
    assert held.size == 20
    assert found(held, GERMAN, "Haus") == list(range(20))
    assert found(held, GERMAN, "See") == [18]


async def test_stopped_and_run_again_it_keeps_what_is_there(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    changes = {"text_search_language": "german"}
    steps = reindex(pool, RetainSettings(), "default", bank, changes=changes, batch=6)
    assert (await anext(steps)).done == 6
    await steps.aclose()
    head = await banks.head(pool, "default", bank)
    waiting = await pool.fetch("select status from operations where bank = $1", head.bank)
    assert [row[0] for row in waiting] == ["pending"]
    assert await run(pool, bank) == [12, 18, 20]
    waiting = await pool.fetch("select status from operations where bank = $1", head.bank)
    assert [row[0] for row in waiting] == ["completed"]
    with pytest.raises(NotFound):
        await run(pool, f"{bank}-none")


class Later(Analyser):
    """What a later release of the program might have."""

    def _fingerprint(self) -> str:
        return "later"


LATER = Later()


def later(settings: RetainSettings) -> Analyser:
    return LATER


async def test_writers_with_another_analyser(pool: Pool, bank: str, residency: Residency) -> None:
    """Both releases write; memories of the one that the bank does not serve are filled in."""
    await fill(pool, bank)
    old = (await banks.head(pool, "default", bank)).analyser
    await fill(pool, bank, ["a house of the later release"], analyser=later)
    await fill(pool, bank, ["a house of the former release"])
    head = await banks.head(pool, "default", bank)
    assert head.analyser == old
    held = await opened(pool, residency, bank)
    assert found(held, analyser("english", "bigram"), "house") == [21]
    assert await run(pool, bank, None) != []  # the gap
    now = await banks.head(pool, "default", bank)
    assert (now.analyser, now.generation) == (old, head.generation + 1)
    held = await opened(pool, residency, bank)
    assert found(held, analyser("english", "bigram"), "house") == [20, 21]
    async for _ in reindex(pool, RetainSettings(), "default", bank, analysers=later):
        pass
    held = await opened(pool, residency, bank)
    assert held.head.analyser == "later"
    assert found(held, LATER, "house") == [20, 21]


async def test_a_write_prepared_before_the_switch(
    pool: Pool, bank: str, residency: Residency
) -> None:
    """Its postings were made by the former analyser: they are made anew under the lock."""
    await fill(pool, bank)
    ingest = deps(pool)

    class Slow(type(ingest.embedder)):  # type: ignore[misc]
        async def embed_passages(self, texts: Sequence[str], **kwargs: Any) -> Any:
            if "Häuser zuletzt" in texts[0]:
                await run(pool, bank)
            return await super().embed_passages(texts, **kwargs)

    slow = replace(ingest, embedder=Slow())
    await import_memories(slow, "default", bank, [{"text": "Häuser zuletzt"}])
    held = await opened(pool, residency, bank)
    assert found(held, GERMAN, "Haus") == list(range(21))


async def test_a_replica_never_holds_postings_of_another_analyser(
    pool: Pool, bank: str, residency: Residency
) -> None:
    """Loads race with switches to and fro: what a head names is what was loaded."""
    await fill(pool, bank)
    stop = asyncio.Event()
    checked = 0

    async def read() -> None:
        nonlocal checked
        while not stop.is_set():
            held = await opened(pool, residency, bank)
            german = held.head.analyser == GERMAN.version
            query = "Haus" if german else "Häuser"
            own = GERMAN if german else analyser("english", "bigram")
            assert len(found(held, own, query)) == held.size >= 20
            assert (held.head.config.get("text_search_language") == "german") is german
            checked += 1
            if checked % 3 == 0:
                residency.evict(held.head.bank)
            await asyncio.sleep(0)

    async def change() -> None:
        for i in range(8):
            await run(pool, bank, "english" if i % 2 else "german")
            await fill(pool, bank, [f"Häuser, spät {i}"])
        stop.set()

    await asyncio.wait_for(asyncio.gather(read(), read(), read(), change()), 60)
    assert checked > 20
