"""Explanations and looks where the bank is elsewhere: split into ranges, behind handles, behind the
proxy. They say what they say where everything is in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from serve import app, composition
from serve.composition import Stages
from serve.local import sample
from serve.opening.banks import open_ranges
from tests.serve.conftest import B, Live, settings_for
from tests.serve.server import ROOT, Server

AT = "2025-11-01T12:00:00Z"
SPLIT_ROWS = 60
"""Rows of a range: the sample bank is three of them."""
QUESTIONS = (
    sample.QUESTION,
    "What was repaired in October 2024?",
    "Who plays the violin, and since when?",
)
LOOKS = (
    "overview", "timeline?buckets=40", "timeline?field=created_at&types=world&tags=mill", "stats",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def split(live: Live, dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    """A second application on the database of `live`, for which every bank is in ranges."""
    settings = settings_for(
        dsn, banks={"bank_shard_rows": SPLIT_ROWS}, worker={"worker_enabled": False}
    )
    async with AsyncExitStack() as stack:
        ranges = await open_ranges(settings, stack)
        services = await composition.open_services(settings, Stages(ranges=ranges), stack)
        transport = httpx.ASGITransport(app.create(settings, services))
        yield await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        )


async def explained(http: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(
        f"{B}/{sample.BANK}/memories/recall/explain",
        json={"query": query, "query_timestamp": AT, **body},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def alike(one: Any, other: Any) -> bool:
    """The same, but for the last digits of what was summed in another order."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-4, abs=1e-5)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


SAID = ("answer", "bank", "time", "tokens", "formula", "reading", "cut", "left", "paths", "ranked",
        "fused", "arms", "memories", "why")  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("query", QUESTIONS)
async def test_a_split_bank_is_explained_as_a_whole_one(
    live: Live, split: httpx.AsyncClient, query: str
) -> None:
    whole = await explained(live.http, query, budget="low", max_tokens=300)
    far = [m["id"] for m in whole["memories"]][-2:]
    cut = [whole["memories"][left["m"]]["id"] for left in whole["left"]][:2]
    asked = {"budget": "low", "max_tokens": 300, "why": far + cut, "check": True}
    one, other = await explained(live.http, query, **asked), await explained(split, query, **asked)
    assert one["ranked"]
    for name in SAID:
        assert alike(one[name], other[name]), name


@pytest.mark.integration
async def test_looks_at_a_split_bank(live: Live, split: httpx.AsyncClient) -> None:
    found = await explained(live.http, sample.QUESTION)
    paths = [*LOOKS, *(f"memories/{m['id']}/links" for m in found["memories"][:3])]
    for path in paths:
        url = f"{B}/{sample.BANK}/{path}"
        one, other = await live.http.get(url), await split.get(url)
        assert one.status_code == other.status_code == 200, other.text
        assert alike(one.json(), other.json()), path


@pytest.mark.serve
@pytest.mark.timeout(400)
def test_over_handles_ranges_and_the_proxy(tmp_path: Path) -> None:
    """The real server with every stage in a process of its own, and the bank split over two."""
    server = Server(
        tmp_path / "data", ROOT / "configs/stages.yaml", FOURFOLD_BANK_SHARD_ROWS=str(SPLIT_ROWS)
    )
    try:
        server.start(300)
        server.wait_answer(120)
        with httpx.Client(base_url=server.url, timeout=60) as http:
            url = f"{B}/{sample.BANK}"
            body: dict[str, Any] = {
                "query": sample.QUESTION, "query_timestamp": AT, "max_tokens": 120
            }  # fmt: skip
            recalled = http.post(f"{url}/memories/recall", json=body).json()
            said = http.post(f"{url}/memories/recall/explain", json=body)
            assert said.status_code == 200, said.text
            found = said.json()
            assert found["answer"] == recalled
            assert recalled["results"]
            for row in found["ranked"]:
                assert sum(row["steps"].values()) == pytest.approx(row["final"], abs=1e-9)
            by_name = {span["name"]: span for span in found["spans"]}
            root = next(span for span in found["spans"] if span["parent"] is None)
            for span in found["spans"]:
                parent = by_name.get(span["parent"] or "", root)
                assert span["start"] >= parent["start"] - 1e-3
                assert span["start"] + span["seconds"] <= (
                    parent["start"] + parent["seconds"] + 1e-3
                )
            # What did not fit comes in with the change that is said to let it in.
            cut = next(left for left in found["left"] if left["at"] == "tokens")
            id = found["memories"][cut["m"]]["id"]
            asked = {**body, "why": [id], "check": True}
            (why,) = http.post(f"{url}/memories/recall/explain", json=asked).json()["why"]
            need = why["would_need"][0]
            assert (why["stopped_at"], need["then"], need["checked"]) == ("tokens", "served", True)
            more = http.post(f"{url}/memories/recall", json={**body, **need["change"]}).json()
            assert [r["id"] for r in more["results"]].index(id) + 1 == need["rank"]
            stats = http.get(f"{url}/stats").json()
            overview = http.get(f"{url}/overview").json()
            assert stats["total_nodes"] == overview["memories"] == len(list(sample.memories()))
            buckets = http.get(f"{url}/timeline").json()["buckets"]
            kinds = ("world", "experience", "observation")
            assert sum(bucket[k] for bucket in buckets for k in kinds) == overview["memories"]
            assert http.get(f"{url}/memories/{id}/links").json()["links"]
            # The page comes through the proxy with its headers; a rebound name does not get it.
            page = http.get("/inspector/")
            assert page.status_code == 200
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert http.get("/inspector/app.js").headers["content-type"].startswith("text/java")
            for path in ("/inspector/", f"{url}/overview", "/v1/default/banks"):
                refused = http.get(path, headers={"host": "rebound.example.org"})
                assert refused.status_code == 403
                assert "ALLOWED_HOSTS" in refused.text
            foreign = {"origin": "https://evil.example.org"}
            refused = http.post(f"{url}/consolidate", headers=foreign)
            assert refused.status_code == 403
            with http.stream("GET", f"{url}/operations/events") as events:
                assert events.status_code == 200
                assert events.headers["content-type"].startswith("text/event-stream")
    finally:
        server.kill()
