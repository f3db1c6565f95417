"""Documents over their life: what stays, what goes, whose turn it is, what their history says."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput, NotFound, Overloaded, TooMuch
from retrieval.ingest import curation
from retrieval.ingest.context import WriteContext
from retrieval.ingest.extract.by_model import ModelExtractor
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations import worker
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.store import answers, banks, chunks, documents, history, memories
from retrieval.store.answers import Answered, Key, KeyReused
from retrieval.store.database.pool import Pool
from retrieval.store.turns import Busy, Line, Turns
from tests.retrieval.llm.scripted import Scripted
from tests.retrieval.store.servers import HashEmbedder, Replica, deps

pytestmark = pytest.mark.integration

SMALL = RetainSettings(retain_chunk_size=60)


@pytest.fixture
def ingest(pool: Pool) -> WriteContext:
    return deps(pool, settings=SMALL)


@pytest.fixture
def bank() -> str:
    return f"bank-{uuid4().hex[:8]}"


async def put(ingest: WriteContext, bank: str, content: str, **item: Any) -> None:
    await retain(ingest, "default", bank, [{"document_id": "d", "content": content, **item}])


async def units(pool: Pool, bank: str) -> list[dict[str, Any]]:
    """Every memory of the bank's documents, in reading order, invalidated ones included."""
    head = await banks.head(pool, "default", bank)
    rows = await pool.fetch(
        "select * from memory_units where bank = $1 order by document_id, position", head.bank
    )
    return [dict(row) for row in rows]


async def work(ingest: WriteContext) -> None:
    """Does all that is queued."""
    while await worker.Worker(ingest).step():
        pass


def lines(*numbers: int) -> str:
    return "".join(f"Line number {n} says something of its own.\n" for n in numbers)


# Anchored chunks


async def test_a_line_on_top_of_a_document_is_one_new_memory(pool: Pool, bank: str) -> None:
    embedder = HashEmbedder()
    ingest = deps(pool, settings=SMALL, embedder=embedder)
    await put(ingest, bank, lines(*range(20)))
    before = await units(pool, bank)
    assert len(before) == 20
    seen = len(embedder.seen)
    await put(ingest, bank, lines(99) + lines(*range(20)))
    after = await units(pool, bank)
    assert len(embedder.seen) == seen + 1
    assert [u["id"] for u in after[1:]] == [u["id"] for u in before]
    assert [u["chunk_id"] for u in after] == [f"{bank}_d_{i}" for i in range(21)]
    positions = [u["position"] for u in after]
    assert positions == sorted(set(positions))
    shown = (await chunks.of_document(pool, "default", bank, "d"))["items"]
    assert [c["chunk_index"] for c in shown] == list(range(21))
    assert "".join(c["chunk_text"] for c in shown) == lines(99) + lines(*range(20))
    for unit in after:
        found = await chunks.get(pool, "default", unit["chunk_id"])
        assert found["chunk_text"].strip() == unit["text"]


async def test_state_and_edits_stay_with_chunks_that_move(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await put(ingest, bank, lines(*range(6)))
    first = await units(pool, bank)
    await curation.patch_memory(
        ingest, "default", bank, str(first[2]["id"]), {"text": "Edited by hand."}
    )
    await curation.patch_memory(
        ingest, "default", bank, str(first[4]["id"]), {"state": "invalidated", "reason": "wrong"}
    )
    await put(ingest, bank, lines(7, 8) + lines(0, 2, 9, 3, 4, 5))
    after = await units(pool, bank)
    kept = {u["id"]: u for u in after if u["id"] in {u["id"] for u in first}}
    assert len(kept) == 5
    assert kept[first[2]["id"]]["text"] == "Edited by hand."
    assert kept[first[4]["id"]]["invalidation_reason"] == "wrong"
    assert kept[first[4]["id"]]["ordinal"] is None
    assert kept[first[4]["id"]]["chunk_id"] == f"{bank}_d_6"
    assert first[1]["id"] not in kept


async def test_there_is_always_room_between_memories(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await put(ingest, bank, lines(0, 1))
    first = await units(pool, bank)
    numbers = [0, 1]
    for n in range(2, 20):  # always at the same place: the room halves each time
        numbers.insert(1, n)
        await put(ingest, bank, lines(*numbers))
    after = await units(pool, bank)
    assert [u["text"] for u in after] == lines(*numbers).strip().split("\n")
    assert [after[0]["id"], after[-1]["id"]] == [u["id"] for u in first]
    held = await Replica.of(pool, await banks.head(pool, "default", bank))
    by_id = dict(zip(held.ids(), held.column("position")[held.live].tolist(), strict=True))
    assert [by_id[str(u["id"])] for u in after] == [u["position"] for u in after]


async def test_an_append_reads_only_what_is_new(pool: Pool, bank: str) -> None:
    embedder = HashEmbedder()
    ingest = deps(pool, settings=SMALL, embedder=embedder)
    await put(ingest, bank, lines(*range(10)).rstrip())
    ids = [u["id"] for u in await units(pool, bank)]
    for n in range(3):
        seen = len(embedder.seen)
        await put(ingest, bank, f"Appended sentence {n}.", update_mode="append")
        assert len(embedder.seen) == seen + 1
    assert [u["id"] for u in await units(pool, bank)][:10] == ids


async def test_a_chunk_without_facts_is_not_read_again(pool: Pool, bank: str) -> None:
    llm = Scripted({"facts": []}, {"facts": []})
    ingest = deps(pool, extractor=ModelExtractor(llm))
    for _ in range(2):
        await put(ingest, bank, "Nothing to see.", timestamp="2024-05-01")
    assert len(llm.asked) == 1
    await put(ingest, bank, "Nothing to see.", timestamp="2024-06-01")
    assert len(llm.asked) == 2


async def test_an_edited_time_is_no_reason_to_read_again(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await put(ingest, bank, "It happened.", timestamp="2024-05-01")
    (unit,) = await units(pool, bank)
    await curation.patch_memory(
        ingest, "default", bank, str(unit["id"]), {"mentioned_at": "2020-01-01"}
    )
    await put(ingest, bank, "It happened.", timestamp="2024-05-01")
    (after,) = await units(pool, bank)
    assert (after["id"], after["mentioned_at"].year) == (unit["id"], 2020)


# What a replacement leaves


async def test_a_replaced_document_keeps_nothing_of_before(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    for n in range(10):
        await import_memories(
            ingest,
            "default",
            bank,
            [{"text": f"imported {n}", "document_id": "d"}, {"text": "other", "document_id": "e"}],
        )
        await put(ingest, bank, f"Version {n} of the text.")
        found = await units(pool, bank)
        assert [u["text"] for u in found if u["document_id"] == "d"] == [
            f"Version {n} of the text."
        ]
    assert len([u for u in found if u["document_id"] == "e"]) == 10


async def test_an_append_and_a_reprocessing_keep_what_was_imported(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    await put(ingest, bank, "The text.")
    await import_memories(ingest, "default", bank, [{"text": "imported", "document_id": "d"}])
    await put(ingest, bank, "More of it.", update_mode="append")
    await worker.submit_reprocess(pool, "default", bank, "d")
    await work(ingest)
    texts = {u["text"] for u in await units(pool, bank)}
    assert texts == {"The text.\nMore of it.", "imported"}


async def test_nothing_is_appended_to_a_text_that_was_not_kept(pool: Pool, bank: str) -> None:
    await put(deps(pool, settings=RetainSettings(store_document_text=False)), bank, "secret")
    with pytest.raises(InvalidInput, match="not kept"):
        await put(deps(pool), bank, "more", update_mode="append")
    assert [u["text"] for u in await units(pool, bank)] == ["secret"]


# Turns


class Slow(HashEmbedder):
    """Takes its time, and remembers whether two were at it at once."""

    def __init__(self, wait_s: float = 0.02) -> None:
        super().__init__()
        self.wait_s = wait_s
        self.inside = self.most = 0

    async def embed_passages(self, *args: Any, **kwargs: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(self.wait_s)
        self.inside -= 1
        return await super().embed_passages(*args, **kwargs)


async def test_writers_of_one_document_take_turns(pool: Pool, bank: str) -> None:
    embedder = Slow()
    # Two processes: nothing in memory is shared.
    sides = [deps(pool, settings=SMALL, embedder=embedder, documents=Turns()) for _ in range(2)]
    parts = [f"Part {i} of the whole." for i in range(48)]

    async def writer(n: int) -> None:
        for part in parts[n::4]:
            await put(sides[n % 2], bank, part, update_mode="append")

    await asyncio.gather(*map(writer, range(4)))
    text = (await documents.get(pool, "default", bank, "d"))["original_text"]
    assert sorted(text.split("\n")) == sorted(parts)
    assert embedder.most == 1
    assert await pool.fetchval("select count(*) from document_turns") == 0
    assert len(await units(pool, bank)) == 48


async def test_whoever_waits_too_long_is_told(pool: Pool, bank: str) -> None:
    embedder = Slow(1.0)
    ingest = deps(pool, embedder=embedder)
    other = deps(pool, documents=Turns())
    first = asyncio.create_task(put(ingest, bank, "slow"))
    while not embedder.inside:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for side in (replace(ingest, embedder=HashEmbedder()), other):
        begin = time.monotonic()
        with pytest.raises(Busy, match="others are writing document 'd'"):
            await retain(
                side,
                "default",
                bank,
                [{"document_id": "d", "content": "quick"}],
                deadline=time.monotonic() + 0.1,
            )
        assert time.monotonic() - begin < 0.6
        # Other documents, and other banks, wait for nobody.
        await retain(side, "default", bank, [{"document_id": "e", "content": "free"}])
        await put(side, bank + "2", "free")
    await first


async def test_a_line_is_bounded_and_in_order() -> None:
    line, came = Line(2), list[str]()

    async def one(name: str, *documents: str, deadline: float | None = None) -> None:
        async with line.of("t", "b", documents, deadline):
            came.append(name)
            await go.wait()

    go = asyncio.Event()
    first = asyncio.create_task(one("first", "d", "e"))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(one(name, "d")) for name in ("second", "third")]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="2 requests of this tenant wait"):
        await one("fourth", "e")
    others = [asyncio.create_task(one("other", *documents)) for documents in ((), ("f",))]
    while len(came) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert came == ["first", "other", "other"]
    go.set()
    await asyncio.gather(first, *waiting, *others)
    assert came[3:] == ["second", "third"]
    go.clear()
    holding = asyncio.create_task(one("holding", "d"))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="'d'"):
        await one("late", "d", deadline=time.monotonic() + 0.01)
    go.set()
    await holding


async def test_many_documents_at_once_do_not_block_each_other(pool: Pool, bank: str) -> None:
    sides = [deps(pool, documents=Turns()) for _ in range(2)]

    async def writer(n: int) -> None:
        names = [f"d{(n + i) % 4}" for i in range(3)]
        items = [
            {"document_id": name, "content": f"{n} wrote {name}", "update_mode": "append"}
            for name in names
        ]
        await retain(sides[n % 2], "default", bank, items)

    await asyncio.wait_for(asyncio.gather(*map(writer, range(12))), 60)
    assert len(await units(pool, bank)) == 36


async def test_a_turn_of_a_dead_process_runs_out(pool: Pool, bank: str) -> None:
    dead = Turns(lease_s=0.3)
    gone = asyncio.create_task(asyncio.Event().wait())
    async with dead.of(pool, "default", bank, ["d"]):
        await pool.execute("update document_turns set holder = $1", uuid4())  # never renewed
        gone.cancel()
        begin = time.monotonic()
        await put(deps(pool), bank, "mine now")
        assert time.monotonic() - begin < 5
    with suppress(asyncio.CancelledError):
        await gone


async def test_no_connection_is_held_while_a_text_is_read(pool: Pool, bank: str) -> None:
    embedder = Slow(0.5)
    ingest = deps(pool, embedder=embedder)
    tasks = [asyncio.create_task(put(ingest, f"{bank}{i}", "slow")) for i in range(20)]
    async with asyncio.timeout(10):
        while embedder.inside < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert pool.get_size() - pool.get_idle_size() == 0
    await asyncio.gather(*tasks)


async def test_a_document_deleted_meanwhile_is_not_resurrected(pool: Pool, bank: str) -> None:
    ingest = deps(pool)
    await put(ingest, bank, "Old words.")

    class Deleting(HashEmbedder):
        done = False

        async def embed_passages(self, *args: Any, **kwargs: Any) -> Any:
            if not self.done:
                self.done = True
                await curation.delete_document(ingest, "default", bank, "d")
            return await super().embed_passages(*args, **kwargs)

    await put(deps(pool, embedder=Deleting()), bank, "New words.", update_mode="append")
    assert [u["text"] for u in await units(pool, bank)] == ["New words."]
    text = (await documents.get(pool, "default", bank, "d"))["original_text"]
    assert text == "New words."


# Keys


async def test_a_key_makes_a_retain_happen_once(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    key = Key("k1", b"\1" * 32)
    item = {"document_id": "d", "content": "Once.", "update_mode": "append"}
    results = await asyncio.gather(
        *(retain(ingest, "default", bank, [item], key=key) for _ in range(6))
    )
    assert all(result == results[0] for result in results)
    assert (await documents.get(pool, "default", bank, "d"))["original_text"] == "Once."
    with pytest.raises(KeyReused, match="another body"):
        await retain(ingest, "default", bank, [item], key=Key("k1", b"\2" * 32))
    await retain(ingest, "default", bank + "2", [item], key=Key("k1", b"\2" * 32))
    await pool.execute("update answers set created_at = now() - interval '25 hours'")
    await retain(ingest, "default", bank, [item], key=Key("k1", b"\2" * 32))
    assert (await documents.get(pool, "default", bank, "d"))["original_text"] == "Once.\nOnce."
    submitted = [
        await worker.submit(ingest, "default", bank, [{"content": "x"}], key=Key("k2", b"\3" * 32))
        for _ in range(2)
    ]
    assert submitted[0] == submitted[1]


async def test_a_key_of_a_write_that_failed_is_free(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    key = Key("k", b"\1" * 32)
    with pytest.raises(InvalidInput):
        await retain(ingest, "default", bank, [{"content": "a", "strategy": "none"}], key=key)
    await retain(ingest, "default", bank, [{"content": "a"}], key=key)
    head = await banks.head(pool, "default", bank)
    async with pool.acquire() as connection:
        with pytest.raises(Answered):
            await answers.keep(connection, head.bank, key, {})
    await pool.execute("update answers set created_at = now() - interval '25 hours'")
    await answers.let_go(pool)
    assert await answers.find(pool, "default", bank, key) is None


# History


async def test_the_history_of_a_document(pool: Pool, ingest: WriteContext, bank: str) -> None:
    await put(ingest, bank, lines(0, 1, 2))
    (first, second, third) = await units(pool, bank)
    await import_memories(
        ingest,
        "default",
        bank,
        [{"key": "o", "text": "observed", "type": "observation", "sources": [str(first["id"])]}],
    )
    observed = next(u for u in await units(pool, bank) if u["key"] == "o")
    await put(ingest, bank, lines(3), update_mode="append")
    await curation.patch_document(ingest, "default", bank, "d", ["t"])
    ids = [str(unit["id"]) for unit in (first, second, third)]
    await curation.patch_memory(ingest, "default", bank, ids[0], {"text": "edited"})
    await curation.patch_memory(ingest, "default", bank, ids[1], {"state": "invalidated"})
    await curation.patch_memory(ingest, "default", bank, ids[1], {"state": "valid"})
    await curation.delete_derived(ingest, "default", bank, ids[1])
    await curation.delete_memory(ingest, "default", bank, ids[2])
    operation = await worker.submit_reprocess(pool, "default", bank, "d")
    await work(ingest)
    await put(ingest, bank, lines(0, 9))
    told = await history.of_document(pool, "default", bank, "d")
    items = told["items"][::-1]
    assert [(i["kind"], i["facts_added"], i["facts_removed"]) for i in items] == [
        ("retain", 3, 0),
        ("append", 1, 0),
        ("retag", 0, 0),
        ("fact_edited", 0, 0),
        ("fact_invalidated", 0, 0),
        ("fact_restored", 0, 0),
        ("observations_cleared", 0, 0),
        ("fact_deleted", 0, 1),
        ("reprocess", 3, 3),  # what the deleted memory was made of is gone, too
        ("retain", 1, 2),
    ]
    assert (told["document_id"], told["total"], told["limit"], told["offset"]) == ("d", 10, 100, 0)
    assert [i["fact_id"] for i in items[3:8]] == [ids[0], ids[1], ids[1], ids[1], ids[2]]
    assert items[8]["operation_id"] == operation["operation_id"]
    assert items[0]["operation_id"] is None
    removed = [i["observations_removed"] for i in items]
    assert removed[2] == {"count": 1, "ids": [str(observed["id"])]}
    assert sum(r["count"] for r in removed) == 1
    page = await history.of_document(pool, "default", bank, "d", limit=2, offset=1)
    assert [i["kind"] for i in page["items"]] == ["reprocess", "fact_deleted"]
    await curation.delete_document(ingest, "default", bank, "d")
    with pytest.raises(NotFound):
        await history.of_document(pool, "default", bank, "d")


async def test_a_history_is_bounded(
    pool: Pool, ingest: WriteContext, bank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 5)
    for n in range(8):
        await put(ingest, bank, f"Version {n}.")
        await retain(ingest, "default", bank, [{"document_id": "e", "content": "Same."}])
    for document in ("d", "e"):
        assert (await history.of_document(pool, "default", bank, document, limit=5))["total"] == 5


# Limits


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"content": "x" * 5_000_001}, "items[0].content"),
        ({"tags": [f"t{i}" for i in range(501)]}, "items[0].tags"),
        ({"tags": [f"{i:0500}" for i in range(100)]}, "items[0].tags"),
        ({"metadata": {f"k{i}": "x" * 15_000 for i in range(10)}}, "items[0].metadata"),
        ({"entities": [f"E{i}" for i in range(101)]}, "items[0].entities"),
        ({"observation_scopes": [["a"]] * 101}, "items[0].observation_scopes"),
        ({"observation_scopes": [["a" * 500, str(i)] for i in range(100)]},
         "items[0].observation_scopes"),
        ({"context": "x" * 20_001}, "items[0].context"),
        ({"content": "some words. " * 100_000, "metadata": {"k": "x" * 19_000}}, "items"),
    ],
)  # fmt: skip
async def test_more_than_may_be_stored(
    pool: Pool, ingest: WriteContext, bank: str, item: dict[str, Any], field: str
) -> None:
    with pytest.raises(TooMuch) as caught:
        await retain(ingest, "default", bank, [{"content": "a", **item}])
    assert caught.value.field == field
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)


async def test_a_document_does_not_grow_for_ever(
    pool: Pool, ingest: WriteContext, bank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retrieval.ingest.documents import planning

    monkeypatch.setattr(planning, "DOCUMENT_LIMIT", 100)
    await put(ingest, bank, lines(1, 2).strip())
    with pytest.raises(TooMuch, match="begin another document"):
        await put(ingest, bank, lines(3), update_mode="append")
    monkeypatch.setattr(planning, "CHUNKS_LIMIT", 2)
    with pytest.raises(TooMuch, match="chunks"):
        await put(deps(pool, settings=RetainSettings(retain_chunk_size=4)), bank, "a b " * 24)
    monkeypatch.setattr(planning, "TAGS_LIMIT", 3)
    with pytest.raises(TooMuch, match="4 tags"):
        await put(ingest, bank, lines(3), document_id="other", tags=["a", "b", "c", "d"])
    assert (await memories.list_memories(pool, "default", bank))["total"] == 2
