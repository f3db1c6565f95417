"""Documents of archives beside what a bank holds; archives of the peer, both ways; hostile rows."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from retrieval.errors import InvalidInput, NotFound, RateLimited
from retrieval.ingest.retain import retain
from retrieval.lifecycle.transfer import jobs
from retrieval.lifecycle.transfer.archive import BANK, BLOBS, MANIFEST, ArchiveContents, Manifest
from retrieval.lifecycle.transfer.exporting import Wanted
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.lifecycle.transfer.packing import Packer
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from tests.retrieval.lifecycle.transfer import world

pytestmark = pytest.mark.integration

DOCUMENTS = Wanted(ArchiveContents(True, False, False), knowledge_base=True, documents_only=True)


KEPT = (
    "text", "tags", "metadata", "occurred_start", "mentioned_at", "created_at", "updated_at",
    "consolidated_at", "consolidation_failed_at", "edited_at", "invalidated_at",
    "invalidation_reason", "source_ids", "position",
)  # fmt: skip


def said(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["text"] for row in rows)


async def test_documents_beside_others(pool: Pool, tmp_path: Path) -> None:
    source, target = f"s{uuid4().hex}", f"t{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "documents.zip"
        await world.exported(context, source, archive, DOCUMENTS)
        await retain(
            context, "default", target, [{"content": "Zoe swims.", "document_id": "notes/1"}]
        )
        before = await world.contents(pool, source)

        skip = await world.imported(context, target, archive, ImportRequest("merge"))
        assert skip["status"] == "completed", skip
        counted = skip["result_metadata"]
        assert counted["skipped_document_ids"] == ["notes/1"]
        documents = {row["document_id"] for row in before["documents"]}
        assert counted["documents_imported"] == len(documents) - 1
        held = await world.contents(pool, target)
        assert {row["document_id"] for row in held["documents"]} == documents
        there = {m["id"] for m in before["memory_units"] if m["document_id"] != "notes/1"}
        own = [
            m for m in before["memory_units"] if m["id"] in there and there >= {*m["source_ids"]}
        ]
        skipped = len(there) - len(own)
        assert counted["observations_skipped"] == skipped > 0
        texts = said(held["memory_units"])
        assert texts.pop("Zoe swims.") == 1
        assert texts == said(own)
        ids = {row["id"] for row in held["memory_units"]}
        assert {m["id"] for m in own} <= ids
        here = {m["id"]: m for m in held["memory_units"]}
        for memory in own:
            found = here[memory["id"]]
            for name in KEPT:
                assert found[name] == memory[name], name
        assert counted["knowledge_pages_imported"] == 3
        assert held["mental_models"][0]["content"] == "Much."
        assert not held["directives"]
        kept = {(one["from_id"], one["to_id"]) for one in before["links"]}
        gone = {m["id"] for m in before["memory_units"]} - {m["id"] for m in own}
        wanted = {pair for pair in kept if not gone & {*pair}}
        assert {(one["from_id"], one["to_id"]) for one in held["links"]} == wanted

        # The same again changes nothing; what is to be replaced is.
        again = await world.imported(context, target, archive, ImportRequest("merge"))
        assert again["result_metadata"]["documents_imported"] == 0
        assert said((await world.contents(pool, target))["memory_units"]) == said(
            held["memory_units"]
        )
        replaced = await world.imported(
            context, target, archive, ImportRequest("merge", conflict="replace")
        )
        assert replaced["status"] == "completed", replaced["error_message"]
        now = said((await world.contents(pool, target))["memory_units"])
        assert now == said(before["memory_units"])

        anew = await world.imported(
            context, target, archive, ImportRequest("merge", conflict="new-id")
        )
        assert anew["status"] == "completed", anew
        counted = anew["result_metadata"]
        assert counted["remapped_document_ids"]["notes/1"] == "notes/1-2"
        twice = said(before["memory_units"]) + said(before["memory_units"])
        assert said((await world.contents(pool, target))["memory_units"]) == twice
        await world.recalls(context, target, world.QUESTIONS[:3])


async def test_single_documents(pool: Pool, tmp_path: Path) -> None:
    source = f"s{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "two.zip"
        wanted = Wanted(
            ArchiveContents(True, False, False),
            documents=["notes/1", "letters/ünï 1"],
            observations=False,
            documents_only=True,
        )
        await world.exported(context, source, archive, wanted)
        target = f"t{uuid4().hex}"
        done = await world.imported(context, target, archive, ImportRequest("merge"))
        assert done["status"] == "completed", done
        held = await world.contents(pool, target)
        assert {d["document_id"] for d in held["documents"]} == {"notes/1", "letters/ünï 1"}
        assert not any(m["consolidated_at"] for m in held["memory_units"])
        # As a bank of its own, too.
        fresh = f"f{uuid4().hex}"
        done = await world.imported(context, target, archive, ImportRequest(target=fresh))
        assert done["status"] == "completed", done
        assert said((await world.contents(pool, fresh))["memory_units"]) == said(
            held["memory_units"]
        )
        with pytest.raises(NotFound, match="no document"):
            await jobs.submit_export(pool, "default", source, Wanted(documents=["none"]))


async def test_the_peers_archive_out_and_in(pool: Pool, tmp_path: Path) -> None:
    source, target = f"s{uuid4().hex}", f"t{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "peer.zip"
        wanted = Wanted(ArchiveContents(), observations=True)
        await world.exported(context, source, archive, wanted, format="hindsight")
        with zipfile.ZipFile(archive) as opened:
            manifest = orjson.loads(opened.read(MANIFEST))
            names = opened.namelist()
            assert (manifest["schema_version"], manifest["source_bank_id"]) == (1, source)
            assert sum(n.startswith("documents/") for n in names) == manifest["document_count"]
            observations = orjson.loads(opened.read("observations.json"))
            first = orjson.loads(opened.read("documents/000000.json"))
        assert len(observations) == manifest["observation_count"] > 2
        assert {"id", "chunks", "facts"} <= first.keys()
        done = await world.imported(context, source, archive, ImportRequest(target=target))
        assert done["status"] == "completed", done
        before, held = await world.contents(pool, source), await world.contents(pool, target)
        live = [m for m in before["memory_units"] if m["invalidated_at"] is None]
        facts = [m for m in live if m["fact_type"] != 2]
        assert said([m for m in held["memory_units"] if m["fact_type"] != 2]) == said(facts)
        texts = {m["id"]: m["text"] for m in held["memory_units"]}
        for row in observations:
            (found,) = [m for m in held["memory_units"] if m["text"] == row["text"]]
            assert len(found["source_ids"]) == len(row["sources"])
            assert all(id in texts for id in found["source_ids"])
        assert {m["consolidated_at"] for m in facts} == {
            m["consolidated_at"] for m in held["memory_units"] if m["fact_type"] != 2
        }
        assert len(held["mental_models"]) == 2
        assert held["directives"][0]["content"] == "Answer in one line."
        assert [n["name"] for n in held["knowledge_nodes"]] == ["Zeit", "Uhr", "Clock"]


def peer(*documents: Any, observations: Any = None, **manifest: Any) -> io.BytesIO:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for i, document in enumerate(documents):
            archive.writestr(f"documents/{i:06d}.json", orjson.dumps(document))
        if observations is not None:
            archive.writestr("observations.json", orjson.dumps(observations))
        archive.writestr(
            MANIFEST, orjson.dumps({"schema_version": 1, "source_bank_id": "p", **manifest})
        )
    held.seek(0)
    return held


async def test_the_peers_own_archives(pool: Pool) -> None:
    bank = f"p{uuid4().hex}"
    documents = [
        {
            "id": "d1",
            "original_text": "Ann moved. It rained.",
            "tags": ["a"],
            "created_at": "2026-06-01T09:00:00Z",
            "chunks": [{"chunk_index": 0, "chunk_text": "Ann moved. It rained."}],
            "facts": [
                {"text": "It rained.", "fact_type": "opinion", "mentioned_at": "2026-06-01"},
                {
                    "text": "Ann moved to Rome.",
                    "fact_type": "world",
                    "chunk_index": 0,
                    "entities": ["Ann", "Rome"],
                    "causal_relations": [
                        {"relation_type": "caused_by", "target_fact_index": 0},
                        {"relation_type": "supersedes", "target_fact_index": 0},
                    ],
                },
            ],
        },
        {"id": "d2", "facts": []},
    ]
    observations = [
        {"text": "Rain moves people.", "sources": [{"document_id": "d1", "fact_index": 0}]},
        {"text": "Nothing.", "sources": [{"document_id": "d9", "fact_index": 0}]},
    ]
    async with world.context(pool) as context:
        made = await jobs.submit_import(
            pool,
            "default",
            bank,
            peer(*documents, observations=observations),
            ImportRequest("merge"),
        )
        done = await world.finished(context, bank, made)
        assert done["status"] == "completed", done
        counted = done["result_metadata"]
        names = ("documents_imported", "facts_imported", "observations_imported",
                 "observations_skipped")  # fmt: skip
        assert [counted[name] for name in names] == [2, 2, 1, 1]
        held = await world.contents(pool, bank)
        assert [m["text"] for m in held["memory_units"]] == [
            "It rained.", "Ann moved to Rome.", "Rain moves people.",
        ]  # fmt: skip
        assert len(held["links"]) == 1
        assert held["documents"][0]["created_at"].isoformat() == "2026-06-01T09:00:00+00:00"
        for wrong, reason in (
            ({"id": "d", "facts": [{"fact_type": "world"}]}, "KeyError"),
            ({"id": "d", "facts": [{"text": " ", "fact_type": "world"}]}, "must not be blank"),
            ({"facts": []}, "KeyError"),
            ([], "TypeError|list indices"),
            ({"id": "d", "facts": [{"text": "x", "fact_type": "world", "mentioned_at": "?"}]},
             "ISO 8601"),
        ):  # fmt: skip
            made = await jobs.submit_import(
                pool, "default", bank, peer(wrong), ImportRequest("merge")
            )
            done = await world.finished(context, bank, made)
            assert done["status"] == "failed"
            assert "documents/000000.json" in done["error_message"]
            del reason
        with pytest.raises(InvalidInput, match="manifest says 3"):
            await jobs.submit_import(
                pool, "default", bank, peer(*documents, document_count=3), ImportRequest("merge")
            )


async def forged(pool: Pool, archive: Path, change: Callable[[str, list[Any]], list[Any]]) -> bytes:
    """The archive with other rows, right in all its checksums."""
    unpacker = Unpacker(archive)
    manifest = unpacker.manifest
    assert manifest is not None
    packer = Packer(datetime.now(UTC))
    packer.member(BANK, unpacker.whole(BANK, 1 << 20), 1)
    for part in manifest.parts:
        if part.name.endswith(".ndjson"):
            packer.add(change(part.kind, list(unpacker.lines(part))))
            packer.part(part.kind)
        elif part.name.startswith(BLOBS):
            with packer.blob(part.name) as write:
                write(unpacker.array(part, 0, part.bytes))
        elif part.name != BANK:
            data = unpacker.array(part, 0, part.bytes)
            packer.array(part.kind, data, part.rows, **part.details)
    unpacker.close()
    made = Manifest(
        manifest.bank_id, manifest.exported_at, manifest.bank_version, "", manifest.include, False,
        tuple(packer.parts), manifest.counts, manifest.vectors,
    )  # fmt: skip
    packer.close(MANIFEST, made.wire())
    return packer.take()


def _set(kind: str, **values: Any) -> Callable[[str, list[Any]], list[Any]]:
    def change(part: str, rows: list[Any]) -> list[Any]:
        return [{**rows[0], **values}, *rows[1:]] if part == kind else rows

    return change


HOSTILE = {
    "a time": _set("memories", mentioned_at="yesterday"),
    "a type": _set("memories", fact_type="wish"),
    "no text": _set("memories", text=None),
    "a blank text": _set("memories", text=" "),
    "NUL": _set("documents", document_id="a\0b"),
    "an id": _set("memories", id="1; drop table banks"),
    "an entity": _set("memories", entities=[{"id": str(uuid4()), "mention": "x"}]),
    "a link": _set("memories", links=[{"to": str(uuid4()), "type": "causes", "weight": 1}]),
    "a weight": _set("memories", links=[{"to": str(uuid4()), "type": "causes", "weight": 7}]),
    "tags": _set("memories", tags=[1]),
    "a number": _set("memories", token_count=2**40),
    "a column": _set("memories", bank=1, ordinal=5, position="x"),
    "twice": lambda part, rows: [*rows, rows[-1]] if part == "memories" else rows,
    "a dead one first": _set("memories", invalidated={"at": None, "reason": None}),
    "a list": _set("entities", metadata=[1], aliases="x", mention_count="many"),
    "a chunk": _set("chunks", chunk_index=-(2**40)),
    "a trigger": _set("mental-models", citations=["x"]),
    "a parent": _set("knowledge", parent_id="kf-none"),
    "an operation": _set("history/operations", status="pending"),
}


async def test_rows_that_cannot_be(pool: Pool, tmp_path: Path) -> None:
    source = f"s{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        before = await world.contents(pool, source)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        for name, change in HOSTILE.items():
            target = f"h{uuid4().hex}"
            data = io.BytesIO(await forged(pool, archive, change))
            asked = ImportRequest(target=target, include=ArchiveContents(history=True))
            made = await jobs.submit_import(pool, "default", source, data, asked)
            done = await world.finished(context, source, made)
            assert done["status"] == "failed", name
            assert "harbour" not in done["error_message"], name
            with pytest.raises(NotFound):
                await banks.head(pool, "default", target)
        assert await world.contents(pool, source) == before
        data = io.BytesIO(await forged(pool, archive, lambda part, rows: rows))
        made = await jobs.submit_import(
            pool, "default", source, data, ImportRequest(target=f"h{uuid4().hex}")
        )
        done = await world.finished(context, source, made)
        assert done["status"] == "completed", done["error_message"]


async def test_what_is_said_before_anything_is_queued(pool: Pool, tmp_path: Path) -> None:
    source, other = f"s{uuid4().hex}", f"o{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        content = await asyncio.to_thread(archive.read_bytes)

        async def ask(bank: str, **asked: Any) -> Any:
            given = ImportRequest(**asked)
            return await jobs.submit_import(pool, "default", bank, io.BytesIO(content), given)

        with pytest.raises(InvalidInput, match="there is a bank"):
            await ask(source)  # the archive's own bank is there
        with pytest.raises(InvalidInput, match="there is a bank"):
            await ask(source, target=source)
        with pytest.raises(NotFound):
            await ask(other, target=f"{other}2")
        with pytest.raises(InvalidInput, match="a merge goes"):
            await ask(source, mode="merge", target=other)
        with pytest.raises(InvalidInput, match="all false"):
            await ask(other, target=other, include=ArchiveContents(False, False, False))
        with pytest.raises(InvalidInput, match="cloned into itself"):
            await jobs.submit_clone(pool, "default", source, source, ArchiveContents())
        with pytest.raises(NotFound):
            await jobs.submit_clone(pool, "default", other, source, ArchiveContents())
        for _ in range(5):
            await jobs.submit_export(pool, "default", source, Wanted())
        with pytest.raises(RateLimited, match="4 wait"):
            await jobs.submit_export(pool, "default", source, Wanted())
        with pytest.raises(RateLimited):
            await ask(other, target=other)
        while await world.worker(context).step():
            pass
