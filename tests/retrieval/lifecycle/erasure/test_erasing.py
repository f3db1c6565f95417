"""Erasures on a real database: nothing of a person is anywhere, and what is not hers stays."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from retrieval.errors import InvalidInput, NotFound, Unavailable
from retrieval.ingest import curation
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations.worker import Worker
from retrieval.ingest.retain import retain
from retrieval.lifecycle.erasure import proof, removal
from retrieval.lifecycle.erasure.ledger import Ledger, entries, replay
from retrieval.lifecycle.erasure.removal import Erased
from retrieval.lifecycle.erasure.replicas import Sweeper, acknowledged
from retrieval.lifecycle.erasure.running import (
    PURGE,
    Eraser,
    erase_tenant,
    handlers,
    invalidated,
    submit,
)
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.lifecycle.erasure.settling import settle
from retrieval.maintenance.upkeep import Upkeep, UpkeepSettings
from retrieval.store import banks, documents, memories, operation_views, tenants
from tests.retrieval.lifecycle.erasure.world import BANK, DOCUMENT, NAME, TENANT, World, world
from tests.retrieval.store.servers import Replica

pytestmark = pytest.mark.integration

UNLINKED = {"knowledge_nodes", "document_attachments", "attachment_parts"}
"""Where the name stands with nothing that leads to her."""


@pytest.fixture
async def person() -> AsyncIterator[World]:
    async with world() as found:
        yield found


async def test_the_name_stands_everywhere_before(person: World) -> None:
    assert {
        "memory_units", "chunks", "documents", "entities", "unit_entities", "tags",
        "observation_history", "mental_models", "mental_model_history", "llm_requests",
        "extraction_ledger", "operations", "audit_logs", "webhook_deliveries",
    } <= (await person.saying()).keys()  # fmt: skip


async def test_by_words_nothing_is_left(person: World) -> None:
    done = await person.erase(Selectors(text_contains="xanthíppe"), signing_key="k")
    assert done["status"] == "completed", done
    assert await person.saying() == {}
    assert await person.keys() == {"c"}
    report = done["result_metadata"]
    assert (report["remaining"], report["remaining_in"]) == (0, {})
    assert report["counts"]["memories"] == 4  # a, b, o and the chunk
    assert report["counts"]["observations"] == 2  # p and q
    assert report["documents_shortened"] == ["mixed"]
    assert report["vacuumed"]
    assert done["task_payload"] == {}
    unsigned = {k: v for k, v in report.items() if k not in ("digest", "signature")}
    packed = orjson.dumps(unsigned, option=orjson.OPT_SORT_KEYS)
    assert report["digest"] == hashlib.sha256(packed).hexdigest()
    assert report["signature"] == hmac.new(b"k", packed, hashlib.sha256).hexdigest()
    # What is not hers is there, and as it was.
    text = (await documents.get(person.pool, TENANT, BANK, "mixed"))["original_text"]
    assert text
    assert DOCUMENT.endswith(text)
    with pytest.raises(NotFound):
        await documents.get(person.pool, TENANT, BANK, "own")
    found = await person.pool.fetch("select canonical_name, mention_count from entities")
    assert [tuple(row) for row in found] == [("Bo", 1)]
    assert await person.pool.fetchval("select count(*) from entity_cooccurrences") == 0
    head = await banks.head(person.pool, TENANT, BANK)
    replica = await Replica.of(person.pool, head)
    assert len(replica.ids()) == head.next_ordinal
    models = await person.pool.fetch("select id, content, pending_refresh from mental_models")
    assert {tuple(row) for row in models} == {("m", "", True), ("n", "Bo sails.", False)}


SELECTED: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({"entity_ids": ["xanthippe"]}, {"a", "b", "o", "p", "q"}),
    ({"metadata": {"who": NAME}}, {"a", "o", "p", "q"}),
    ({"document_ids": ["own"]}, {"a", "o", "p", "q"}),
    ({"memory_ids": ["b"]}, {"b"}),
    ({"tags": ["trade"], "text_contains": NAME}, set()),
    ({"tags": ["trade", "x"], "tags_match": "any"}, {"c", "p"}),
    ({"tags": ["trade", "x"], "tags_match": "all"}, set()),
    ({"tags": ["trade"], "tags_match": "exact"}, {"c", "p"}),
    ({"document_ids": ["own"], "text_contains": "thyme"}, {"a", "o", "p", "q"}),
    ({"document_ids": ["nobody's"]}, set()),
    ({"tags": [f"user:{NAME}"]}, {"a", "o", "p", "q"}),
)


async def test_selectors_and_dry_runs(person: World) -> None:
    entity = await person.pool.fetchval("select id from entities where name_key = 'xanthippe'")
    before = await person.keys()
    for given, gone in SELECTED:
        ids = {"xanthippe": str(entity), **person.ids}
        found: dict[str, Any] = {
            name: [ids[one] for one in value] if name in ("entity_ids", "memory_ids") else value
            for name, value in given.items()
        }
        wanted = Selectors(**found)
        seen = await removal.preview(person.deps, TENANT, BANK, wanted, "delete")
        named = {*seen["memories"], *seen["observations"]}
        assert named == {person.ids[key] for key in gone}, given
        assert await person.keys() == before
    done = await person.erase(wanted)
    assert before - await person.keys() == gone
    assert done["result_metadata"]["counts"] == seen["counts"]


async def test_the_entity_goes_where_it_was_meant(person: World) -> None:
    id = await person.pool.fetchval("select id from entities where name_key = 'xanthippe'")
    await person.erase(Selectors(entity_ids=[str(id)]))
    left = set(await person.saying())
    assert left == {
        "chunks",
        "documents",
        "memory_units",
        "operations",
        *UNLINKED,
    }  # nobody linked it to her


async def test_supported_observations_stay_without_the_source(person: World) -> None:
    done = await person.erase(Selectors(memory_ids=[person.ids["a"]]), "keep_supported")
    assert done["status"] == "completed", done
    assert await person.keys() == {"b", "c", "p"}
    assert done["result_metadata"]["kept_observations"] == [person.ids["p"]]
    kept = await memories.get(person.pool, TENANT, BANK, person.ids["p"])
    assert kept["text"] == "Honey is loved"
    sources = await person.pool.fetchval("select source_ids from memory_units where key = 'p'")
    assert [str(id) for id in sources] == [person.ids["c"]]
    assert await person.pool.fetchval("select count(*) from observation_history") == 0


async def test_what_is_left_is_found(person: World) -> None:
    """The second scan sees what it should: a row of every kind, put back behind an erasure."""
    kept: list[Erased] = []

    async def also(_: Any, erased: Erased) -> None:
        kept.append(erased)

    segments = await person.pool.fetch("select * from segments where kind = 'columns'")
    wanted = Selectors(memory_ids=[person.ids["a"]])
    await removal.remove(person.deps, TENANT, BANK, wanted, "delete", also)
    await settle(person.deps, TENANT, BANK)
    head = await banks.head(person.pool, TENANT, BANK)
    assert await proof.remaining(person.pool, head, kept[0]) == {}
    a, bank = UUID(person.ids["a"]), person.bank
    for table, sql, values in (
        ("observation_history", "(bank, observation_id, content) values ($1, $2, '{}')", (bank, a)),
        ("mental_model_citations", "(bank, model_id, memory_id) values ($1, 'm', $2)", (bank, a)),
        ("tombstones", "(bank, ordinal, version) values ($1, 1, 1)", (bank,)),
        ("tags", "(bank, tag_no, tag, version) values ($1, 99, 'x', 1)", (bank,)),
        ("documents", "(bank, document_id, document_no) values ($1, 'own', 99)", (bank,)),
    ):
        async with person.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"insert into {table} {sql}", *values)
            await transaction.commit()
        if table == "tags":
            await person.pool.execute("delete from tombstones")
        found = await proof.remaining(person.pool, head, kept[0])
        expected = {table, "mental_models"} if table == "mental_model_citations" else {table}
        assert found.keys() == expected
        await person.pool.execute(f"delete from {table} where bank = $1", bank) if table not in (
            "documents",
        ) else None
    await person.pool.execute("delete from documents where document_id = 'own'")
    row = segments[-1]
    await person.pool.execute(
        "insert into segments values ($1, 'columns', $2, $3, $4, $5)",
        bank, 5_000, row["count"], row["version"], row["payload"],
    )  # fmt: skip
    assert (await proof.remaining(person.pool, head, kept[0]))["segments"] > 1


async def test_it_goes_on_where_it_died(person: World, monkeypatch: pytest.MonkeyPatch) -> None:
    queued = await submit(person.pool, TENANT, BANK, Selectors(text_contains=NAME))
    worker = Worker(person.deps, handlers=handlers(Eraser(lost_s=5.0)))

    async def dies(*_: Any, **__: Any) -> int:
        raise OSError("killed")

    monkeypatch.setattr("retrieval.lifecycle.erasure.running.settle", dies)
    assert await worker.step()
    state = await operation_views.get(
        person.pool, TENANT, BANK, queued["operation_id"], include_payload=True
    )
    assert state["status"] == "pending"
    assert NAME.lower() not in orjson.dumps(state["task_payload"]).decode().lower()
    monkeypatch.undo()
    await person.pool.execute("update operations set next_retry_at = now()")
    assert await worker.step()
    state = await operation_views.get(person.pool, TENANT, BANK, queued["operation_id"])
    assert (state["status"], state["result_metadata"]["remaining"]) == ("completed", 0)
    assert await person.saying() == {}


async def test_invalidated_memories_are_purged(person: World) -> None:
    await curation.patch_memory(
        person.deps, TENANT, BANK, person.ids["b"], {"state": "invalidated"}
    )
    worker = Worker(person.deps, handlers=handlers(Eraser(lost_s=5.0)))
    for days, left in ((1.0, True), (0.0, False)):
        wanted = invalidated(days)
        await submit(person.pool, TENANT, BANK, wanted, kind=PURGE)
        assert await worker.step()
        assert ("b" in await person.keys()) == left


async def test_a_replica_lets_go_before_it_is_done(person: World) -> None:
    class Held:
        def __init__(self) -> None:
            self.banks = {(person.bank, 0): 0, (10**6, 0): 0}

        def generations(self) -> dict[tuple[int, int], int]:
            return self.banks

        def evict(self, bank: int, part: int = 0) -> bool:
            return self.banks.pop((bank, part), None) is not None

    held = Held()
    sweeper = Sweeper(person.pool, [held], 0.05)
    assert await sweeper.sweep() == 1  # of a bank that is not there
    assert held.banks == {(person.bank, 0): 0}
    await person.pool.execute(
        "insert into replicas values ($1, now() - interval '3 seconds')", uuid4()
    )
    sweeper.start()
    done = await person.erase(Selectors(document_ids=["own"]))
    assert held.banks == {}
    assert done["result_metadata"]["replicas"] == {"acknowledged": 1, "gone": 1}
    await sweeper.close()
    assert (await acknowledged(person.pool, lost_s=0.5)).swept == 0


async def test_deletions_reach_the_same_end(person: World) -> None:
    """Each present deletion, and upkeep once its time is over; small banks too."""
    await curation.delete_document(person.deps, TENANT, BANK, "own")
    for key in ("b",):
        await curation.delete_memory(person.deps, TENANT, BANK, person.ids[key])
    unit = await person.pool.fetchval(
        "select id from memory_units where document_id = 'mixed' and text like $1", f"{NAME}%"
    )
    await curation.delete_memory(person.deps, TENANT, BANK, str(unit))
    late = Upkeep(person.deps, UpkeepSettings(erase_after_s=3600.0))
    await late.round()
    assert "mental_models" in await person.saying()
    soon = Upkeep(person.deps, UpkeepSettings(erase_after_s=0.0))
    await soon.round()
    left = await person.saying()
    # Kept for other reasons: to be tried again, and what another document was before.
    assert left.keys() <= {"operations", "mental_model_history", *UNLINKED}, left
    head = await banks.head(person.pool, TENANT, BANK)
    replica = await Replica.of(person.pool, head)
    assert len(replica.ids()) == head.next_ordinal
    assert await person.pool.fetchval("select erase_since from banks") is None


async def test_clearing_and_the_end_of_a_bank(person: World) -> None:
    await curation.clear(person.deps, TENANT, BANK)
    await Upkeep(person.deps, UpkeepSettings(erase_after_s=0.0)).round()
    left = await person.saying()
    assert left.keys() <= {"mental_model_history", "operations", "knowledge_nodes"}
    await banks.delete(person.pool, TENANT, BANK)
    assert await person.saying() == {}
    for table in ("memory_units", "segments", "mental_models", "operations", "webhook_deliveries"):
        assert await person.pool.fetchval(f"select count(*) from {table}") == 0


async def test_a_chunk_with_other_memories_loses_its_words(person: World) -> None:
    chunk = await person.pool.fetchval(
        "select chunk_id from chunks where document_id = 'mixed' and chunk_text like $1",
        f"%{NAME}%",
    )
    await import_memories(
        person.deps, TENANT, BANK, [{"key": "x", "text": "Bees buzz", "document_id": "mixed"}]
    )
    await person.pool.execute("update memory_units set chunk_id = $1 where key = 'x'", chunk)
    unit = await person.pool.fetchval(
        "select id from memory_units where document_id = 'mixed' and key is null order by text desc"
        " limit 1"
    )
    done = await person.erase(Selectors(memory_ids=[str(unit)]))
    assert done["result_metadata"]["documents_emptied"] == ["mixed"]
    assert (
        await person.pool.fetchval("select chunk_text from chunks where chunk_id = $1", chunk) == ""
    )
    # What is sent again is read again.
    await retain(person.deps, TENANT, BANK, [{"content": DOCUMENT, "document_id": "mixed"}])
    found = await documents.get(person.pool, TENANT, BANK, "mixed")
    assert found["original_text"] == DOCUMENT


# The ledger


async def test_a_restore_is_erased_again(tmp_path: Path) -> None:
    path = tmp_path / "erasures"
    async with world(note=Ledger(path)) as person:
        saved = {
            table: await person.pool.fetch(f"select * from {table} where bank = $1", person.bank)
            for table in ("documents", "memory_units")
        }
        await person.erase(Selectors(document_ids=["own"]))
        (entry,) = entries(path)
        assert (entry.tenant, entry.bank_id, entry.documents) == (TENANT, BANK, ["own"])
        assert UUID(person.ids["a"]) in entry.memories
        assert NAME.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
        # As a restored backup would bring it back, without an ordinal since segments are gone.
        for table, rows in saved.items():
            for row in rows:
                if row["document_id"] == "own":
                    values = {**dict(row), **({"ordinal": None} if "ordinal" in row else {})}
                    places = ", ".join(f"${i}" for i in range(1, len(values) + 1))
                    await person.pool.execute(
                        f"insert into {table} ({', '.join(values)}) values ({places})",
                        *values.values(),
                    )
        assert "a" in await person.keys()
        path.write_bytes(path.read_bytes() + b'{"version": 1, "tenant": "t')
        done = await replay(person.pool, path)
        assert (done.entries, done.memories, done.documents) == (1, 1, 1)
        assert "a" not in await person.keys()
        assert (await replay(person.pool, path)).memories == 0
        # A younger document of that name is another one.
        await retain(person.deps, TENANT, BANK, [{"content": "New.", "document_id": "own"}])
        assert (await replay(person.pool, path)).documents == 0


async def test_every_deletion_is_in_the_ledger_or_not_done(tmp_path: Path) -> None:
    path = tmp_path / "erasures"
    async with world(note=Ledger(path)) as person:
        await curation.delete_memory(person.deps, TENANT, BANK, person.ids["b"])
        await curation.delete_document(person.deps, TENANT, BANK, "own")
        await curation.clear(person.deps, TENANT, BANK, "observation")
        await curation.clear(person.deps, TENANT, BANK)
        await banks.delete(person.pool, TENANT, BANK, note=person.deps.note)
        found = list(entries(path))
        assert [one.whole for one in found] == [False] * 4 + [True]
        assert found[1].documents == ["own"]
        assert (await replay(person.pool, path)).banks == ()
        await import_memories(person.deps, TENANT, BANK, [{"key": "z", "text": "new"}])
        assert (await replay(person.pool, path)).banks == ()
    async with world(note=Ledger(tmp_path / "none" / "erasures")) as person:
        with pytest.raises(Unavailable, match="ledger"):
            await curation.delete_memory(person.deps, TENANT, BANK, person.ids["b"])
        assert "b" in await person.keys()


async def test_the_end_of_a_tenant(person: World) -> None:
    key = await tenants.create_key(person.pool, TENANT)
    await banks.ensure(person.pool, "u", BANK)
    done = await erase_tenant(person.pool, TENANT)
    assert done == {"banks": 1, "keys": 1}
    assert await tenants.access(person.pool, key) is None
    assert await person.saying() == {}
    assert await person.pool.fetchval("select count(*) from banks") == 1
    for table in ("audit_logs", "webhook_deliveries", "llm_usage"):
        rows = await person.pool.fetchval(
            f"select count(*) from {table} where tenant_id = $1", TENANT
        )
        assert rows == 0


async def test_ids_that_are_none(person: World) -> None:
    with pytest.raises(InvalidInput, match="memory_ids"):
        await removal.preview(person.deps, TENANT, BANK, Selectors(memory_ids=["x"]), "delete")
    with pytest.raises(NotFound):
        await submit(person.pool, TENANT, "nobody's", Selectors(memory_ids=[str(uuid4())]))
