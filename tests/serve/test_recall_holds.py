"""No recall holds the event loop, however it is asked; too much is refused at once."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tests.hold import longest_hold
from tests.serve.conftest import B, Live

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

BANK = "holds"
URL = f"{B}/{BANK}/memories/recall"
LONGEST = 0.05


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(live: Live) -> str:
    for start in range(0, 4000, 500):
        await live.import_memories(
            BANK,
            *(
                {
                    "key": str(i),
                    "text": f"Log line {i} of the harbour pump {i % 17}",
                    "metadata": {"a": f"v{i}", "n": i, "at": f"2024-01-01T00:00:{i % 60:02}Z"},
                    "tags": [f"t{i % 9}"],
                    "entities": [f"Pump {i % 17}"],
                }
                for i in range(start, start + 500)
            ),
        )
    for question in ("harbour pump", "log line 7"):  # the bank is loaded, the models are warm
        await live.recall(BANK, question)
    return BANK


LEAF = {"tags": ["t1", "t2"], "match": "any"}
WORST: list[dict[str, Any]] = [
    {"metadata_filter": {"a": {"in": [f"v{i}" for i in range(2000)]}}},
    {"metadata_filter": {"n": {"in": list(range(2000))}}},
    {
        "metadata_filter": {
            "at": {"in": [f"2024-01-01T00:00:{i % 60:02}+01:00" for i in range(2000)]}
        }
    },
    {"metadata_filter": {f"k{i}": {"in": [None, *range(30)]} for i in range(64)}},
    {"metadata_filter": {f"k{i}": {"exists": False, "eq": None} for i in range(64)}},
    {"metadata_filter": {"at": {"gte": "2023-12-31T23:00:00-01:00", "lt": "2025"}}},
    {"tag_groups": [LEAF] * 256},
    {"tag_groups": [{"or": [LEAF] * 255}]},
    {"tags": [f"t{i}" for i in range(1000)]},
    {"exclude_ids": [f"00000000-0000-0000-0000-{i:012}" for i in range(10_000)]},
    {"query": "\ufdfa" * 160},
    {"query": "wörd ж " * 70},
]


@pytest.mark.parametrize("asked", WORST, ids=lambda asked: str(asked)[:60])
async def test_the_worst_that_is_allowed(live: Live, filled: str, asked: dict[str, Any]) -> None:
    async with longest_hold() as held:
        answer = await live.http.post(URL, json={"query": "harbour pump", "limit": 5} | asked)
    assert answer.status_code in (200, 400), answer.text
    assert held.longest < LONGEST


REFUSED: list[tuple[str, Any]] = [
    ("query", "harbour " * 50_000),
    ("metadata_filter", {"a": {"in": ["x"] * 20_000}}),
    ("metadata_filter", {f"k{i}": 1 for i in range(1_000)}),
    ("tag_groups", [{"or": [{"tags": ["a"]}] * 10_000}]),
    ("tags", ["a"] * 20_000),
    ("tags", [[["a"] * 10]] * 2_000),
    ("exclude_ids", [1] * 20_000),
    ("types", ["world"] * 20_000),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: str(value)[:40])
async def test_more_is_refused_by_name(live: Live, filled: str, field: str, value: Any) -> None:
    answer = await live.http.post(URL, json={"query": "harbour", field: value})
    assert answer.status_code == 422
    assert field in str(answer.json()["detail"])
    assert len(answer.content) < 3_000
