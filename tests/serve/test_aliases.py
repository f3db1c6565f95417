"""Aliases, series and graphs through the application."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from retrieval.store import aliases, timeseries
from tests.serve.conftest import B, Live
from tests.serve.test_mental_models import ask

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


def fresh(live: Live) -> None:
    """As if CACHE_S had passed."""
    aliases._known.get(live.services.pool, {}).clear()


async def test_every_route_takes_an_alias(live: Live) -> None:
    bank = "named"
    done = await live.import_memories(bank, {"key": "k", "text": "The kiln is hot."})
    found = await ask(live, "POST", f"{bank}/aliases", 201, json={"alias": "old/näme"})
    assert found == {"bank_id": bank, "aliases": [{"alias": "old/näme", "primary": False}]}
    for path in ("memories/list", "stats", "documents", "operations", "config", "aliases", "graph"):
        mine = await ask(live, "GET", f"old%2Fnäme/{path}")
        assert mine == await ask(live, "GET", f"{bank}/{path}"), path
    assert (await live.recall("old%2Fnäme", "kiln"))["results"][0]["text"] == "The kiln is hot."
    more = await live.import_memories("old%2Fnäme", {"key": "l", "text": "Bo rows."})
    assert (await ask(live, "GET", f"{bank}/memories/{more['ids']['l']}"))["text"] == "Bo rows."
    await ask(live, "DELETE", f"old%2Fnäme/memories/{done['ids']['k']}")
    assert (await ask(live, "GET", f"{bank}/memories/list"))["total"] == 1
    await ask(live, "PUT", "old%2Fnäme", json={"name": "N"})
    listed = (await live.http.get(B, params={"q": "OLD/N"})).json()["banks"]
    assert [(one["bank_id"], one["matched_aliases"]) for one in listed] == [(bank, ["old/näme"])]


async def test_what_is_shown_and_what_ends(live: Live) -> None:
    bank = "shown"
    await ask(live, "PUT", bank, json={})
    await ask(live, "POST", f"{bank}/aliases", 201, json={"alias": "shown-a", "primary": True})
    found = await ask(
        live, "POST", f"{bank}/aliases", 201, json={"alias": "shown-b", "primary": True}
    )
    assert [(one["alias"], one["primary"]) for one in found["aliases"]] == [
        ("shown-b", True), ("shown-a", False),
    ]  # fmt: skip
    found = await ask(live, "PATCH", f"{bank}/aliases/shown-b", json={"primary": False})
    assert not any(one["primary"] for one in found["aliases"])
    await ask(live, "PATCH", f"{bank}/aliases/shown-c", 404, json={"primary": True})
    await ask(live, "DELETE", f"{bank}/aliases/shown-c", 404)
    # A bank that is really called so wins.
    await live.services.pool.execute(
        "insert into banks (tenant_id, bank_id, name) values ('default', 'shown-a', 'real')"
    )
    fresh(live)
    assert (await ask(live, "GET", "shown-a/profile"))["name"] == "real"
    fresh(live)
    await ask(live, "DELETE", bank)
    fresh(live)
    await ask(live, "GET", "shown-b/stats", 404)


@pytest.mark.parametrize(
    ("alias", "status"),
    [
        ("taken", 409), ("refused", 400), ("_x", 400), ("", 422), (" ", 400), ("a\nb", 400),
        ("ä" * 97, 400), (".", 400), ("x" * 600, 422), (None, 422), (7, 422),
    ],
)  # fmt: skip
async def test_what_no_alias_is(live: Live, alias: Any, status: int) -> None:
    bank = "refused"
    await ask(live, "PUT", bank, json={})
    await ask(live, "PUT", "taken", json={})
    await ask(live, "POST", f"{bank}/aliases", status, json={"alias": alias})
    assert (await ask(live, "GET", f"{bank}/aliases"))["aliases"] == []
    await ask(live, "POST", "not-there/aliases", 404, json={"alias": "x"})


@pytest.mark.parametrize("period", sorted(timeseries.PERIODS))
async def test_series_are_padded(live: Live, period: str) -> None:
    bank = f"series-{period}"
    now = datetime.now(UTC)
    await live.import_memories(
        bank,
        {"key": "a", "text": "one", "mentioned_at": (now - timedelta(days=2)).isoformat()},
        {"key": "b", "text": "two", "mentioned_at": None},
        {"key": "c", "text": "three", "type": "observation"},
    )
    found = await ask(live, "GET", f"{bank}/stats/memories-timeseries", params={"period": period})
    trunc, step, count = timeseries.PERIODS[period]
    assert (found["trunc"], found["time_field"]) == (trunc, "created_at")
    times = [datetime.fromisoformat(bucket["time"]) for bucket in found["buckets"]]
    assert len(times) == count
    assert all(b - a == step for a, b in pairwise(times))
    sums = {k: sum(b[k] for b in found["buckets"]) for k in ("world", "experience", "observation")}
    assert sums == {"world": 2, "experience": 0, "observation": 1}
    params = {"period": period, "time_field": "mentioned_at"}
    found = await ask(live, "GET", f"{bank}/stats/memories-timeseries", params=params)
    days = timeseries.PERIODS[period][1] * count > timedelta(days=3)
    assert sum(bucket["world"] for bucket in found["buckets"]) == (2 if days else 1)
    odd = {"period": period, "time_field": "wish"}
    found = await ask(live, "GET", f"{bank}/stats/memories-timeseries", params=odd)
    assert found["time_field"] == "created_at"
    await ask(live, "GET", f"{bank}/stats/memories-timeseries?period=2d", 400)


async def test_the_graph(live: Live) -> None:
    bank = "drawn"
    done = await live.import_memories(
        bank,
        {"key": "a", "text": "Ann fires the kiln at dawn", "entities": ["Ann"], "tags": ["x"]},
        {"key": "b", "text": "Ann fires the kiln at dusk", "entities": ["Ann", "Bo"],
         "links": [{"to": "a", "type": "caused_by", "weight": 0.5}], "tags": ["x", "y"]},
        {"key": "c", "text": "Rain falls", "context": "weather"},
        {"key": "o", "text": "Ann loves fire", "type": "observation", "sources": ["a"]},
    )  # fmt: skip
    ids = done["ids"]
    found = await ask(live, "GET", f"{bank}/graph")
    assert (found["total_units"], found["limit"], len(found["nodes"])) == (4, 1000, 4)
    nodes = {node["data"]["id"]: node["data"] for node in found["nodes"]}
    assert nodes[ids["b"]]["entities"] == "Ann, Bo"
    assert nodes[ids["c"]]["entities"] == "None"
    assert nodes[ids["o"]]["entities"] == "Ann"
    edges = [edge["data"] for edge in found["edges"]]
    kinds = {(edge["linkType"], frozenset((edge["source"], edge["target"]))) for edge in edges}
    pair = frozenset((ids["a"], ids["b"]))
    assert {("entity", pair), ("semantic", pair), ("caused_by", pair)} <= kinds
    assert ("entity", frozenset((ids["o"], ids["b"]))) in kinds  # of its source
    assert len({edge["id"] for edge in edges}) == len(edges)
    rows = {row["id"]: row for row in found["table_rows"]}
    assert (rows[ids["c"]]["context"], rows[ids["a"]]["context"]) == ("weather", "N/A")
    only = await ask(live, "GET", f"{bank}/graph", params={"tags": ["y"]})
    assert [node["data"]["id"] for node in only["nodes"]] == [ids["b"]]
    assert only["edges"] == []
    only = await ask(live, "GET", f"{bank}/graph?q=RAIN&limit=1")
    assert only["total_units"] == 1
    only = await ask(live, "GET", f"{bank}/graph?type=observation&chunk_id=none")
    assert only["nodes"] == []
    await ask(live, "GET", f"{bank}/graph?type=wish", 400)
    await ask(live, "GET", f"{bank}/graph?limit=5001", 422)
    await ask(live, "PUT", "blank", json={})
    assert (await ask(live, "GET", "blank/graph"))["nodes"] == []
