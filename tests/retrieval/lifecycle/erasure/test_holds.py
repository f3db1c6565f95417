"""An erasure looks through a whole bank: nothing of that holds the event loop up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations.worker import Worker
from retrieval.ingest.retain import retain
from retrieval.lifecycle.erasure import removal, running, selection
from retrieval.lifecycle.erasure.running import Eraser, handlers
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.store import operation_views
from tests.hold import longest_hold
from tests.retrieval.ingest.test_holds import Nobody, Quick
from tests.retrieval.store.servers import database, deps

pytestmark = pytest.mark.timeout(280)

LONGEST_S = 0.5
MEMORIES = 2_000
TEXT = ("昨天我在港口看到一艘船。Ann saw the harbour. \n" * 20_000)[:600_000]


def memory(number: int) -> dict[str, Any]:
    return {
        "text": f"Ship {number} left the harbour",
        "entities": [f"Captain {number % 3_000}"],
        "tags": [f"t{number % 100}"],
        "document_id": f"d{number % 500}",
    }


@pytest.mark.integration
async def test_of_a_large_bank() -> None:
    async with database() as pool:
        ingest = deps(pool, embedder=Quick(), neighbours=Nobody())
        for start in range(0, MEMORIES, 2_000):
            rows = [memory(number) for number in range(start, start + 2_000)]
            await import_memories(ingest, "t", "b", rows)
        for place in range(3):
            await retain(ingest, "t", "b", [{"document_id": f"long {place}", "content": TEXT}])
        worker = Worker(ingest, handlers=handlers(Eraser(lost_s=0.0)))
        for words in (
            Selectors(text_contains="nobody says this"),
            Selectors(tags=["t1"]),
            Selectors(text_contains="harbour"),
        ):
            async with longest_hold() as held:
                await removal.preview(ingest, "t", "b", words, "delete")
            assert held.longest < LONGEST_S
            async with longest_hold() as held:
                queued = await running.submit(pool, "t", "b", words)
                await worker.step()
            assert held.longest < LONGEST_S
            done = await operation_views.get(pool, "t", "b", queued["operation_id"])
            assert done["status"] == "completed", done


ALPHABET = ("a", "B", " ", "\n", "e\u0301", "港", "\u200b", "ﷺ", "\u0301", "x ")


@pytest.mark.unit
def test_a_text_is_looked_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in the whole is found in pieces, wherever these are cut."""
    monkeypatch.setattr(selection, "_PIECE", 11)
    monkeypatch.setattr(selection, "_BACK", 5)
    seed = random.Random(5)
    found = 0
    for _ in range(3_000):
        text = "".join(seed.choices(ALPHABET, k=80))
        start = seed.randrange(70)
        key = selection.folded_key(text[start : start + seed.randrange(1, 9)])
        if not key:
            continue
        whole = key in selection.folded_key(text)
        found += whole
        assert selection.text_says(key, text) == whole, (key, text)
    assert found > 1_000
