"""A bank out of an archive is the bank that went in: rows, order, answers and why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest

from retrieval.errors import Conflict, NotFound, Unavailable
from retrieval.ingest.curation import delete_document
from retrieval.ingest.importing import import_memories
from retrieval.lifecycle.transfer import jobs, restoring
from retrieval.lifecycle.transfer.archive import ArchiveContents
from retrieval.lifecycle.transfer.exporting import Outlet, Wanted, export
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.settings.transfer import TransferSettings
from retrieval.store import banks, building, operation_views, operations, planner
from retrieval.store.database.pool import Pool, read
from retrieval.store.operations import Claim
from tests.retrieval.lifecycle.transfer import world

pytestmark = pytest.mark.integration


def names() -> tuple[str, str]:
    return f"s{uuid4().hex}", f"t{uuid4().hex}"


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


async def same(context: Any, source: str, target: str, before: Any, asked: Any) -> None:
    after = await world.contents(context.pool, target)
    for table in before:
        assert after[table] == before[table], table
    again = await world.recalls(context, target, world.QUESTIONS)
    for one, other in zip(asked, again, strict=True):
        assert one == other


@pytest.mark.parametrize("vectors", [True, False])
async def test_out_and_in_again(pool: Pool, tmp_path: Path, vectors: bool) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, merged=vectors)
        before = await world.contents(pool, source)
        asked = await world.recalls(context, source, world.QUESTIONS)
        archive = tmp_path / "bank.zip"
        include = ArchiveContents(history=True)
        await world.exported(context, source, archive, Wanted(include, vectors=vectors))
        done = await world.imported(
            context, source, archive, ImportRequest(target=target, include=include)
        )
        assert done["status"] == "completed", done
        await same(context, source, target, before, asked)

        counted = done["result_metadata"]
        assert counted["documents_imported"] == len(before["documents"])
        assert counted["invalidated_memories_imported"] == 1
        assert counted["mental_models_imported"] == 2
        assert counted["mental_model_history_imported"] == 4
        assert counted["knowledge_pages_imported"] == 3
        assert counted["attachments_imported"] == 2
        assert counted["directives_imported"] == counted["history_rows_imported"] == 1
        profiles = [await banks.profile(pool, "default", bank) for bank in (source, target)]
        assert {**profiles[0], "bank_id": ""} == {**profiles[1], "bank_id": ""}
        heads = [await banks.head(pool, "default", bank) for bank in (source, target)]
        assert heads[0].config == heads[1].config == {"recall_budget_fixed_low": 77}
        chunk = (await world.rows(pool, target, "chunks"))[0]
        assert chunk["chunk_id"].startswith(f"{target}_letters/")

        # It is written like any other.
        await import_memories(context, "default", target, [{"key": "new", "text": "Dora is back."}])
        (found,) = await world.recalls(context, target, ["Is Dora back?"])
        assert found[1][0]["text"] == "Dora is back."
        await delete_document(context, "default", target, "letters/ünï 1")


async def test_a_bank_without_its_memories_and_the_other_way_round(
    pool: Pool, tmp_path: Path
) -> None:
    source, _ = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        for include in (ArchiveContents(True, False, False), ArchiveContents(False, True, False)):
            target = f"t{uuid4().hex}"
            asked = ImportRequest(target=target, include=include)
            done = await world.imported(context, source, archive, asked)
            assert done["status"] == "completed", done
            held = await world.contents(pool, target)
            assert bool(held["memory_units"]) == bool(held["entities"]) == include.data
            assert bool(held["mental_models"]) == bool(held["directives"]) == include.bank_config
            head = await banks.head(pool, "default", target)
            assert bool(head.config) == include.bank_config
            assert bool(head.vector_set) == include.data
            await world.recalls(context, target, world.QUESTIONS[:2])


async def test_another_model_makes_vectors_of_its_own(pool: Pool, tmp_path: Path) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        other = world.hashed(context, "another")
        done = await world.imported(other, source, archive, ImportRequest(target=target))
        assert done["status"] == "completed", done
        assert (await banks.head(pool, "default", target)).vector_set == "another:64"


async def test_an_export_is_of_one_moment(pool: Pool, tmp_path: Path) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        before = await world.contents(pool, source)
        archive = tmp_path / "bank.zip"
        stages: list[str] = []

        async def begin() -> Outlet:
            await asyncio.to_thread(archive.write_bytes, b"")

            async def take(data: bytes) -> None:
                # Between any two parts somebody writes.
                stages.append("part")
                key = f"late{len(stages)}"
                item = {"key": key, "text": f"Late {key}.", "document_id": "late"}
                await import_memories(context, "default", source, [item])
                await asyncio.to_thread(append, archive, data)

            return take

        await export(pool, "default", source, Wanted(vectors=True), begin)
        assert len(stages) > 5
        await world.imported(context, source, archive, ImportRequest(target=target))
        after = await world.contents(pool, target)
        for table in before:
            assert after[table] == before[table], table
        late = [m for m in (await world.contents(pool, source))["memory_units"]
                if (m["key"] or "").startswith("late")]  # fmt: skip
        assert len(late) == len(stages)


class _Killed(BaseException):
    """The process is gone, as far as this operation is concerned."""


@pytest.mark.parametrize("after", [0, 1, 3, 6, 9])
async def test_who_dies_in_the_middle_is_gone_on_from(
    pool: Pool, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        before = await world.contents(pool, source)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        asked = ImportRequest(target=target, include=ArchiveContents(history=True))
        with archive.open("rb") as file:
            made = await jobs.submit_import(pool, "default", source, file, asked)
        with pytest.raises(Unavailable, match="still being imported"):
            await banks.head(pool, "default", target)
        with pytest.raises(Unavailable):
            await banks.profile(pool, "default", target)
        assert target not in str(await banks.list_banks(pool, "default", limit=1000))

        monkeypatch.setattr(restoring, "BATCH_ROWS", 20)
        commits = 0
        reached = building.reached

        async def counted(*args: Any) -> None:
            nonlocal commits
            await reached(*args)
            commits += 1
            if commits > after:
                raise _Killed

        monkeypatch.setattr(building, "reached", counted)
        claimed = await operations.claim(pool, 0.05, types=jobs.TYPES)
        assert isinstance(claimed, Claim)
        with pytest.raises(_Killed):
            await jobs.handlers(TransferSettings())[jobs.IMPORT](context, claimed)
        monkeypatch.setattr(building, "reached", reached)
        with pytest.raises(Unavailable):
            await banks.head(pool, "default", target)
        ended = "select leased_until < now() from operations where operation_id = $1"
        while not await pool.fetchval(ended, claimed.operation_id):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        done = await world.finished(context, source, made)
        assert done["status"] == "completed", done
        found = await world.contents(pool, target)
        for table in before:
            assert found[table] == before[table], table


async def test_what_is_cancelled_or_fails_leaves_nothing(pool: Pool, tmp_path: Path) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        with archive.open("rb") as file:
            made = await jobs.submit_import(
                pool, "default", source, file, ImportRequest(target=target)
            )
        id = made["operation_id"]
        await operation_views.cancel(pool, "default", source, id)
        with pytest.raises(NotFound):
            await banks.head(pool, "default", target)
        assert (await world.finished(context, source, made))["status"] == "cancelled"
        # Its name is free, and it can be tried again.
        await operation_views.retry(pool, "default", source, id)
        assert (await world.finished(context, source, made))["status"] == "completed"
        with pytest.raises(Conflict):
            await operation_views.cancel(pool, "default", source, id)

        # A bank that is itself the target of what fails tells why, and is not there.
        data = bytearray(await asyncio.to_thread(archive.read_bytes))
        with ZipFile(archive) as members:
            info = members.getinfo("memories-00000.ndjson")
        data[info.header_offset + 200] ^= 0xFF
        broken = tmp_path / "broken.zip"
        await asyncio.to_thread(broken.write_bytes, bytes(data))
        own = f"o{uuid4().hex}"
        done = await world.imported(context, own, broken, ImportRequest(target=own))
        assert done["status"] == "failed"
        assert "memories-00000.ndjson" in done["error_message"]
        with pytest.raises(NotFound):
            await banks.head(pool, "default", own)
        await building.sweep(pool)
        left = await read(
            pool,
            lambda c: c.fetchval(
                "select count(*) from memory_units join banks b using (bank)"
                " where b.state <> 'open'"
            ),
        )
        assert left == 0
        assert (await operation_views.get(pool, "default", own, done["operation_id"]))[
            "status"
        ] == "failed"
        done = await world.imported(context, own, archive, ImportRequest(target=own))
        assert done["status"] == "completed"


@pytest.mark.parametrize(
    "include", [ArchiveContents(history=True), ArchiveContents(False, True, False)]
)
async def test_a_clone_is_the_bank(pool: Pool, include: ArchiveContents) -> None:
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 80)
        before = await world.contents(pool, source)
        asked = await world.recalls(context, source, world.QUESTIONS)
        embedder: Any = context.embedder
        seen = len(embedder.seen)
        made = await jobs.submit_clone(pool, "default", source, target, include)
        done = await world.finished(context, source, made)
        assert done["status"] == "completed", done
        assert len(embedder.seen) == seen
        if include.data:
            await same(context, source, target, before, asked)
            assert done["result_metadata"]["facts_imported"] > 0
            assert (await world.rows(pool, target, "chunks"))[0]["chunk_id"].startswith(target)
            for bank in (source, target):
                await import_memories(context, "default", bank, [{"text": f"Only {bank}."}])
            (found,) = await world.recalls(context, target, ["Only what?"])
            assert not any(source in each["text"] for each in found[1])
        else:
            held = await world.contents(pool, target)
            assert held["directives"] == before["directives"]
            assert not held["memory_units"]


async def test_the_planner_knows_a_bank_before_it_is_opened(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without statistics a bank counts as one without rows, and each lookup went through all."""
    monkeypatch.setattr(planner, "KNOWN_FROM", 60)
    source, target = names()
    async with world.context(pool) as context:
        await world.fill(context, source, 80)
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        done = await world.imported(context, target, archive, ImportRequest(target=target))
        assert done["status"] == "completed", done
    number = await pool.fetchval("select bank from banks where bank_id = $1", target)
    known = await pool.fetch(
        "select tablename from pg_stats where schemaname = current_schema() and attname = 'bank'"
        " and $1::text = any(most_common_vals::text::text[])",
        str(number),
    )
    assert {"memory_units", "unit_entities"} <= {row["tablename"] for row in known}
