"""A bank out of an archive is the bank that went in: rows, order, answers and why."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from retrieval.store.database.pool import Pool
from retrieval.transfer.archive import Include
from retrieval.transfer.exporting import Wanted
from retrieval.transfer.jobs import Asked
from tests.retrieval.transfer import world

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("vectors", [True, False])
async def test_out_and_in_again(pool: Pool, tmp_path: Path, vectors: bool) -> None:
    source, target = f"s{uuid4().hex}", f"t{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source)
        before = await world.contents(pool, source)
        asked = await world.recalls(context, source, world.QUESTIONS)
        archive = tmp_path / "bank.zip"
        wanted = Wanted(Include(history=True), vectors=vectors)
        await world.exported(context, source, archive, wanted)
        done = await world.imported(
            context, source, archive, Asked(target=target, include=Include(history=True))
        )
        assert done["status"] == "completed", done
        after = await world.contents(pool, target)
        for table in before:
            assert after[table] == before[table], table
        again = await world.recalls(context, target, world.QUESTIONS)
        for one, other in zip(asked, again, strict=True):
            assert one == other
