"""What the sample bank is there to show: its questions find what they should."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from retrieval.types import Include, RecallQuery
from tests.support.system import System, system

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SAMPLE = Path(__file__).parents[2] / "serve" / "local" / "sample.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[System]:
    async with system() as started:
        memories = [orjson.loads(line) for line in SAMPLE.read_bytes().splitlines()]
        await started.import_bank("sample", memories)
        yield started


@pytest.mark.parametrize(
    ("question", "now", "first", "last", "at_least"),
    [
        ("What happened last spring?", "2024-09-01", "2024-03-01", "2024-05-31", 5),
        ("Was ist letzten Frühling passiert?", "2024-09-01", "2024-03-01", "2024-05-31", 5),
        ("What happened in September 2024?", "2025-01-01", "2024-09-01", "2024-09-30", 6),
    ],
)
async def test_all_that_happened_comes_first(
    run: System, question: str, now: str, first: str, last: str, at_least: int
) -> None:
    query = RecallQuery(
        tenant=run.tenant,
        bank_id="sample",
        text=question,
        now=datetime.fromisoformat(now).replace(tzinfo=UTC),
        include=Include(entities=None),
        limit=at_least,
    )
    results = (await run.engine().recall(query)).body["results"]
    assert len(results) == at_least
    for result in results:
        start = result["occurred_start"] or result["mentioned_at"]
        end = result.get("occurred_end") or start
        assert str(start)[:10] <= last, result["text"]
        assert str(end)[:10] >= first, result["text"]
