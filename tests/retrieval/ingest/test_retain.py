"""Retaining documents: chunks become memories, unchanged chunks keep theirs."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.ingest.context import WriteContext
from retrieval.ingest.curation import patch_document
from retrieval.ingest.operations import worker
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.store import (
    banks,
    chunks,
    documents,
    memories,
    operation_views,
    operations,
    tags,
)
from retrieval.store.database.pool import Pool
from tests.retrieval.store.servers import HashEmbedder, Replica, deps

pytestmark = pytest.mark.integration

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
SMALL = RetainSettings(retain_chunk_size=40)


@pytest.fixture
def ingest(pool: Pool) -> WriteContext:
    return deps(pool, settings=SMALL, clock=lambda: NOW)


@pytest.fixture
def bank() -> str:
    return f"bank-{uuid4().hex[:8]}"


async def units(pool: Pool, bank: str) -> list[dict[str, Any]]:
    """The live memories in the order of their documents."""
    found = (await memories.list_memories(pool, "default", bank))["items"]
    order = {
        str(row["id"]): (row["document_id"], row["position"])
        for row in await pool.fetch("select id, document_id, position from memory_units")
    }
    return sorted(found, key=lambda item: order[item["id"]])


async def test_content_becomes_chunks_and_memories(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    usage = await retain(
        ingest,
        "default",
        bank,
        [
            {
                "content": "Ann went to the market. Bo stayed at home and read a book.",
                "document_id": "day/1",
                "timestamp": "2024-05-01T10:00:00",
                "context": "diary",
                "tags": "x",
                "metadata": {"a": 1, "b": None},
                "entities": [{"text": "Ann"}],
            },
            {"content": "No id here"},
        ],
        document_tags=["all", "x"],
    )
    assert usage == {
        "input_tokens": 0,
        "output_tokens": 0,
        "total_tokens": 0,
        "cached_tokens": 0,
        "thoughts_tokens": 0,
    }
    found = [u for u in await units(pool, bank) if u["document_id"] == "day/1"]
    assert [u["text"] for u in found] == [
        "Ann went to the market.",
        "Bo stayed at home and read a book.",
    ]
    assert {u["mentioned_at"] for u in found} == {"2024-05-01T10:00:00+00:00"}
    assert {(u["context"], u["entities"], tuple(u["tags"])) for u in found} == {
        ("diary", "Ann", ("x", "all"))
    }
    assert found[0]["metadata"] == {"a": "1"}
    assert found[0]["chunk_id"] == f"{bank}_day/1_0"
    (other,) = [u for u in await units(pool, bank) if u["document_id"] != "day/1"]
    assert other["mentioned_at"] == NOW.isoformat()
    document = await documents.get(pool, "default", bank, "day/1")
    assert document["original_text"].startswith("Ann went")
    assert document["memory_unit_count"] == 2
    assert document["nodes_by_fact_type"] == {"world": 2}
    pieces = await chunks.of_document(pool, "default", bank, "day/1")
    assert [c["chunk_index"] for c in pieces["items"]] == [0, 1]
    piece = await chunks.get(pool, "default", f"{bank}_day/1_1")
    assert piece["chunk_text"] == "Bo stayed at home and read a book."
    with pytest.raises(NotFound):
        await chunks.get(pool, "other", f"{bank}_day/1_1")
    assert (await tags.list_tags(pool, "default", bank))["items"] == [
        {"tag": "all", "count": 3},
        {"tag": "x", "count": 3},
    ]
    assert (await memories.list_memories(pool, "default", bank))["total"] == 3
    assert (await documents.list_documents(pool, "default", bank))["total"] == 2


async def test_unchanged_chunks_keep_their_memories(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    text = "The first sentence is this one here. The second is another one here. The third ends."
    item = {"document_id": "d", "content": text}
    await retain(ingest, "default", bank, [item])
    before = await units(pool, bank)
    changed = text.replace("another one", "a new one")
    await retain(ingest, "default", bank, [{**item, "content": changed}])
    after = await units(pool, bank)
    kept = {u["id"] for u in before} & {u["id"] for u in after}
    assert len(before) == len(after) == 3
    assert len(kept) == 2
    assert after[1]["text"] == "The second is a new one here."
    assert (await documents.get(pool, "default", bank, "d"))["original_text"] == changed


async def test_same_content_again_only_relabels(pool: Pool, bank: str) -> None:
    embedder = HashEmbedder()
    ingest = deps(pool, embedder=embedder, settings=SMALL)
    item = {"document_id": "d", "content": "One thing happened. Then another thing happened too."}
    await retain(ingest, "default", bank, [{**item, "tags": ["old"]}])
    before = await Replica.of(pool, await banks.head(pool, "default", bank))
    embedded = len(embedder.seen)
    await retain(ingest, "default", bank, [{**item, "tags": ["new"], "metadata": {"k": "v"}}])
    assert len(embedder.seen) == embedded
    after = await Replica.of(pool, await banks.head(pool, "default", bank))
    assert after.ids() == before.ids()
    assert (after.vectors[after.live] == before.vectors[before.live]).all()
    found = await units(pool, bank)
    assert {tuple(u["tags"]) for u in found} == {("new",)}
    assert {tuple(u["metadata"].items()) for u in found} == {(("k", "v"),)}
    await retain(ingest, "default", bank, [{**item, "tags": ["new"], "metadata": {"k": "v"}}])
    again = await Replica.of(pool, await banks.head(pool, "default", bank))
    assert again.head.next_ordinal == after.head.next_ordinal


async def test_another_time_for_the_same_content(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    item = {"document_id": "d", "content": "It happened."}
    await retain(ingest, "default", bank, [{**item, "timestamp": "2020-01-01"}])
    await retain(ingest, "default", bank, [item])  # no time given: nothing to change
    (unit,) = await units(pool, bank)
    assert unit["mentioned_at"] == "2020-01-01T00:00:00+00:00"
    await retain(ingest, "default", bank, [{**item, "timestamp": "2021-01-01"}])
    (unit,) = await units(pool, bank)
    assert unit["mentioned_at"] == "2021-01-01T00:00:00+00:00"
    await retain(ingest, "default", bank, [{**item, "timestamp": "UNSET"}])
    (unit,) = await units(pool, bank)
    assert unit["mentioned_at"] is None


async def test_append_goes_behind_what_is_stored(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await retain(
        ingest, "default", bank, [{"document_id": "d", "content": "Line one is stored here."}]
    )
    (first,) = await units(pool, bank)
    await retain(
        ingest,
        "default",
        bank,
        [{"document_id": "d", "content": "Line two comes behind it.", "update_mode": "append"}],
    )
    found = await units(pool, bank)
    assert [u["text"] for u in found] == ["Line one is stored here.", "Line two comes behind it."]
    assert found[0]["id"] == first["id"]
    turns = [{"role": "a", "t": "hi"}, {"role": "b", "t": "ho"}]
    import json

    await retain(ingest, "default", bank, [{"document_id": "j", "content": json.dumps(turns[:1])}])
    await retain(
        ingest,
        "default",
        bank,
        [{"document_id": "j", "content": json.dumps(turns[1:]), "update_mode": "append"}],
    )
    text = (await documents.get(pool, "default", bank, "j"))["original_text"]
    assert json.loads(text) == turns


async def test_appends_at_the_same_time_lose_nothing(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await retain(ingest, "default", bank, [{"document_id": "d", "content": "start"}])
    await asyncio.gather(
        *(
            retain(
                ingest,
                "default",
                bank,
                [{"document_id": "d", "content": f"part {i}", "update_mode": "append"}],
            )
            for i in range(4)
        )
    )
    text = (await documents.get(pool, "default", bank, "d"))["original_text"]
    assert sorted(text.split("\n")) == ["part 0", "part 1", "part 2", "part 3", "start"]


async def test_items_of_one_document_are_one_document(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await retain(
        ingest,
        "default",
        bank,
        [
            {"document_id": "d", "content": "Morning", "context": "early"},
            {"document_id": "d", "content": "Evening", "context": "late"},
        ],
    )
    found = await units(pool, bank)
    assert [(u["text"], u["context"]) for u in found] == [("Morning", "early"), ("Evening", "late")]
    assert (await documents.list_documents(pool, "default", bank))["total"] == 1


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({}, "items[0].content"),
        ({"content": "\x00 "}, "items[0].content"),
        ({"content": [{"type": "image", "source": {}}]}, "items[0].content[0].source.media_type"),
        ({"content": "a", "timestamp": "soon"}, "items[0].timestamp"),
        ({"content": "a", "update_mode": "append"}, "items[0].document_id"),
        ({"content": "a", "update_mode": "merge"}, "items[0].update_mode"),
        ({"content": "a", "observation_scopes": "all"}, "items[0].observation_scopes"),
        ({"content": "a", "strategy": "fast"}, "strategy"),
        ({"content": "a", "entities": [{"type": "X"}]}, "items[0].entities[0]"),
    ],
)
async def test_bad_items_change_nothing(
    pool: Pool, ingest: WriteContext, bank: str, item: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await retain(ingest, "default", bank, [{"content": "fine"}, item][::-1])
    assert caught.value.field == field
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)


async def test_blocks_of_text_and_tags_in_a_string(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    await retain(ingest, "default", bank, [{"content": blocks, "tags": '["a", "b"]'}])
    (unit,) = await units(pool, bank)
    assert (unit["text"], unit["tags"]) == ("one\ntwo", ["a", "b"])


async def test_an_empty_call_makes_the_bank(pool: Pool, ingest: WriteContext, bank: str) -> None:
    await retain(ingest, "default", bank, [])
    assert (await banks.head(pool, "default", bank)).next_ordinal == 0


async def test_texts_need_not_be_kept(pool: Pool, bank: str) -> None:
    ingest = deps(pool, settings=RetainSettings(store_document_text=False))
    await retain(ingest, "default", bank, [{"document_id": "d", "content": "secret"}])
    assert (await documents.get(pool, "default", bank, "d"))["original_text"] is None
    assert (await chunks.get(pool, "default", f"{bank}_d_0"))["chunk_text"] == ""
    with pytest.raises(InvalidInput, match="append"):
        await retain(
            ingest,
            "default",
            bank,
            [{"document_id": "d", "content": "more", "update_mode": "append"}],
        )


# Anew


async def test_reprocessing_makes_a_documents_memories_anew(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    items: list[dict[str, Any]] = [
        {"content": "Ann sings. Bo plays the old viola in the hall.", "timestamp": "2024-05-01",
         "tags": ["a"], "context": "one", "entities": [{"text": "Bo"}]},
        {"content": "Cy dances.", "timestamp": "2024-06-01", "tags": ["b"]},
    ]  # fmt: skip
    for item in items:
        item["document_id"] = "d/1"
    await retain(ingest, "default", bank, [*items, {"content": "Other.", "document_id": "d2"}])
    before = await units(pool, bank)
    other = next(unit for unit in before if unit["document_id"] == "d2")

    async def anew(deps: WriteContext) -> list[dict[str, Any]]:
        answer = await worker.submit_reprocess(pool, "default", bank, "d/1")
        assert (answer["success"], answer["items_count"]) == (True, 1)
        await worker.Worker(deps).step()
        done = await operation_views.get(pool, "default", bank, answer["operation_id"])
        assert (done["status"], done["task_type"]) == ("completed", "reprocess"), done
        return await units(pool, bank)

    def said(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        names = ("text", "context", "tags", "mentioned_at", "chunk_id", "document_id")
        return [tuple(unit[name] for name in names) for unit in found]

    after = await anew(ingest)
    assert said(after) == said(before)
    assert other in after
    assert not {u["id"] for u in after} & {u["id"] for u in before if u["document_id"] == "d/1"}
    text = (await documents.get(pool, "default", bank, "d/1"))["original_text"]
    assert text == "\n".join(item["content"] for item in items)

    whole = await anew(deps(pool, settings=RetainSettings(), clock=lambda: NOW))
    assert [unit["text"] for unit in whole if unit["document_id"] == "d/1"] == [
        item["content"] for item in items
    ]
    assert (await memories.list_memories(pool, "default", bank))["total"] == 3


async def test_what_cannot_be_reprocessed(pool: Pool, ingest: WriteContext, bank: str) -> None:
    with pytest.raises(NotFound, match="no bank"):
        await worker.submit_reprocess(pool, "default", bank, "d")
    textless = RetainSettings(store_document_text=False)
    await retain(
        deps(pool, settings=textless), "default", bank, [{"content": "x", "document_id": "d"}]
    )
    with pytest.raises(NotFound, match="no document"):
        await worker.submit_reprocess(pool, "default", bank, "e")
    with pytest.raises(InvalidInput, match="not kept"):
        await worker.submit_reprocess(pool, "default", bank, "d")
    assert (await operation_views.list_operations(pool, "default", bank))["total"] == 0


async def test_a_document_that_changes_while_it_is_reprocessed(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await retain(ingest, "default", bank, [{"content": "x", "document_id": "d", "tags": ["a"]}])

    class Slow(HashEmbedder):
        async def embed_passages(self, *args: Any, **kwargs: Any) -> Any:
            await patch_document(ingest, "default", bank, "d", ["b"])
            return await super().embed_passages(*args, **kwargs)

    await worker.submit_reprocess(pool, "default", bank, "d")
    await worker.Worker(deps(pool, embedder=Slow())).step()
    (operation,) = (await operation_views.list_operations(pool, "default", bank))["operations"]
    assert (operation["status"], operation["retry_count"]) == ("pending", 1)
    assert [unit["tags"] for unit in await units(pool, bank)] == [["b"]]


# In the background


async def test_a_worker_does_what_was_submitted(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    id = str(uuid4())
    answer = await worker.submit(
        ingest, "default", bank, [{"content": "later"}], operation_id=id, document_tags=["t"]
    )
    assert answer == {"operation_id": id, "items_count": 1}
    again = await worker.submit(ingest, "default", bank, [{"content": "later"}], operation_id=id)
    assert again["operation_id"] == id
    for tenant, other in (("default", bank + "2"), ("another", bank)):  # ids are a bank's own
        theirs = await worker.submit(ingest, tenant, other, [{"content": "x"}], operation_id=id)
        assert theirs["operation_id"] == id
    assert (await operation_views.get(pool, "default", bank, id))["status"] == "pending"
    background = worker.Worker(ingest, poll_s=0.05)
    while await background.step():
        pass
    done = await operation_views.get(pool, "default", bank, id)
    assert (done["status"], done["error_message"]) == ("completed", None)
    (unit,) = await units(pool, bank)
    assert (unit["text"], unit["tags"]) == ("later", ["t"])


async def test_a_worker_that_died_leaves_its_work_to_others(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    answer = await worker.submit(ingest, "default", bank, [{"content": "once"}])
    lost = await operations.claim(pool, lease_s=0.0)  # claimed, never renewed
    assert lost is not None
    assert str(lost.operation_id) == answer["operation_id"]
    await worker.Worker(ingest).step()
    assert len(await units(pool, bank)) == 1

    async def finish(connection: Any, result: Any) -> None:
        await operations.finish(connection, lost)

    with pytest.raises(Conflict):  # it wakes up and must not do it a second time
        await retain(
            ingest, "default", bank, lost.payload["items"], also=finish, document_tags=["late"]
        )
    (unit,) = await units(pool, bank)
    assert unit["tags"] == []


async def test_failed_work_is_tried_again_or_told(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    answer = await worker.submit(ingest, "default", bank, [{"content": "x", "strategy": "none"}])
    await worker.Worker(ingest).step()
    told = await operation_views.get(pool, "default", bank, answer["operation_id"])
    assert told["status"] == "failed"
    assert "strategy" in told["error_message"]

    class Broken(HashEmbedder):
        async def embed_passages(self, *_: Any, **__: Any) -> Any:
            raise OSError("no such host")

    answer = await worker.submit(ingest, "default", bank, [{"content": "y"}])
    await worker.Worker(deps(pool, embedder=Broken())).step()
    told = await operation_views.get(pool, "default", bank, answer["operation_id"])
    assert (told["status"], told["retry_count"]) == ("pending", 1)
    assert told["next_retry_at"] is not None
    assert "no such host" in told["error_message"]
    cancelled = await operation_views.cancel(pool, "default", bank, answer["operation_id"])
    assert cancelled["success"]
    with pytest.raises(Conflict):
        await operation_views.cancel(pool, "default", bank, answer["operation_id"])
    await operation_views.retry(pool, "default", bank, answer["operation_id"])
    await worker.Worker(ingest).step()
    listed = await operation_views.list_operations(pool, "default", bank, status="completed")
    assert [o["id"] for o in listed["operations"]] == [answer["operation_id"]]
    await operation_views.delete(pool, "default", bank, answer["operation_id"])
    gone = await operation_views.get(pool, "default", bank, answer["operation_id"])
    assert gone["status"] == "not_found"


async def test_tenants_take_turns(pool: Pool, ingest: WriteContext) -> None:
    busy, calm = f"t1-{uuid4().hex[:6]}", f"t2-{uuid4().hex[:6]}"
    for i in range(3):
        await worker.submit(ingest, busy, "b", [{"content": f"busy {i}"}])
    await worker.submit(ingest, calm, "b", [{"content": "calm"}])
    claims = [await operations.claim(pool) for _ in range(2)]
    assert [claim and claim.tenant for claim in claims] == [busy, calm]
    for claim in claims:
        assert claim is not None
        await operations.release(pool, claim)
    background = worker.Worker(ingest)
    while await background.step():
        pass


async def test_two_items_of_one_document_cannot_wait(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    with pytest.raises(InvalidInput, match="document_id"):
        await worker.submit(
            ingest,
            "default",
            bank,
            [{"content": "a", "document_id": "d"}, {"content": "b", "document_id": "d"}],
        )
    with pytest.raises(InvalidInput, match="UUID"):
        await worker.submit(ingest, "default", bank, [{"content": "a"}], operation_id="7")
