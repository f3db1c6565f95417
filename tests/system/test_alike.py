"""Banks whose memories are all alike: templates, logs, near-duplicates, the same text, one memory.

What only one arm knows must reach the list: its first stands among the first ten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from retrieval.types import Filters, MinScores
from tests.support.system import Memory, System, system
from tests.system.asking import bank

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SEEN = 10
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[System]:
    async with system() as started:
        yield started


def memory(key: str, text: str, **more: Any) -> Memory:
    return {"key": key, "text": text, "entities": [], **more}


def notes(count: int) -> Iterable[Memory]:
    names = ("Ann", "Bo", "Cy", "Dee", "Eli", "Fay", "Gus")
    for i in range(count):
        yield memory(
            f"n{i}",
            f"Weekly status note {i}: the team of {names[i % 7]} discussed the open points of the"
            f" project and agreed on the next steps for the coming week.",
        )


def lines(count: int) -> Iterable[Memory]:
    for i in range(count):
        at = START + timedelta(seconds=37 * i)
        yield memory(
            f"n{i}",
            f"{at:%Y-%m-%dT%H:%M:%SZ} INFO worker-{i % 5} request {1000 + i} served in {i % 90} ms",
            occurred_start=at.isoformat(),
        )


def copies(count: int) -> Iterable[Memory]:
    for i in range(count):
        yield memory(f"n{i}", "The boiler was checked, and all values were normal." + "." * (i % 3))


def same(count: int) -> Iterable[Memory]:
    return (memory(f"n{i}", "The boiler was checked.") for i in range(count))


BANKS: dict[str, tuple[list[Memory], Memory, str]] = {
    "notes": (
        list(notes(1500)),
        memory("odd", "Quokka, zephyrine."),
        "In the weekly status note, which open points of the project did the team discuss, and"
        " which next steps did they agree on for the coming week about the quokka zephyrine?",
    ),
    "lines": (
        list(lines(1000)),
        memory("odd", "ERRATUM kumquat"),
        "Which INFO request of worker-3 was served in how many ms when the kumquat erratum came?",
    ),
    "copies": (
        list(copies(400)),
        memory("odd", "Xylograph."),
        "When the boiler was checked, were all values normal, and who has the xylograph?",
    ),
    "same": (
        list(same(400)),
        memory("odd", "Xylograph."),
        "Was the boiler checked, and where is the xylograph?",
    ),
    "one": ([], memory("odd", "Xylograph."), "Was the boiler checked, and the xylograph?"),
}


def leaders(body: dict[str, Any]) -> dict[str, str]:
    """The first of every arm, by its own score over all fact types."""
    best: dict[str, dict[str, Any]] = {}
    for part in body["trace"]["retrieval_results"]:
        for hit in part["results"][:1]:
            name = part["method_name"]
            if name not in best or hit["score"] > best[name]["score"]:
                best[name] = hit
    return {name: hit["node_id"] for name, hit in best.items()}


@pytest.fixture(params=list(BANKS))
def told(request: pytest.FixtureRequest) -> tuple[str, Sequence[Memory], str]:
    alike, odd, question = BANKS[request.param]
    return request.param, [*alike[: len(alike) // 2], odd, *alike[len(alike) // 2 :]], question


@pytest.mark.parametrize("reranker", ["fused", "rrf"])
async def test_the_first_of_every_arm_is_seen(
    run: System, told: tuple[str, Sequence[Memory], str], reranker: str
) -> None:
    name, memories, question = told
    asked = await bank(run, f"{name}-{reranker}", memories)
    body = (await asked.recall(question, reranker=reranker, trace=True)).body
    shown = [result["id"] for result in body["results"][:SEEN]]
    found = leaders(body)
    assert found["bm25"] == asked.ids["odd"]
    assert set(found.values()) <= set(shown)
    final = [result["scores"]["final"] for result in body["results"]]
    assert final == sorted(final, reverse=True)


async def test_filters_floors_and_limits_are_kept(run: System) -> None:
    alike, odd, question = BANKS["copies"]
    asked = await bank(
        run, "kept", [{**row, "tags": ["plain"]} for row in alike], [{**odd, "tags": ["odd"]}]
    )
    plain = Filters(tags=("plain",))
    assert "odd" not in await asked.keys(question, filters=plain)
    assert "odd" in (await asked.keys(question))[:SEEN]
    assert len(await asked.keys(question, limit=2)) == 2
    floors = MinScores(semantic=0.9, keyword=1000.0)
    assert "odd" not in await asked.keys(question, min_scores=floors)


async def test_two_of_a_kind_in_a_bank_of_another(run: System) -> None:
    """Two notes share the rare words: neither vanishes behind hundreds of their fellows."""
    alike, odd, question = BANKS["notes"]
    second: Memory = memory("second", "A quokka; zephyrine again, they say, and more of the same.")
    asked = await bank(run, "two", alike[:700], [odd, second])
    keys = await asked.keys(question)
    assert "odd" in keys[:SEEN]
    assert "second" in keys[:50]
