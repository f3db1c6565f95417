"""Writes over HTTP: keys, histories, ids that look like routes, limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from retrieval import zones
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration


@pytest.fixture
def url() -> str:
    return f"{B}/bank-{uuid4().hex[:8]}"


async def put(live: Live, url: str, document: str, content: str, **item: Any) -> None:
    body = {"items": [{"document_id": document, "content": content, **item}]}
    answer = await live.http.post(f"{url}/memories", json=body)
    assert answer.status_code == 200, answer.text


async def test_the_same_key_has_the_same_answer(live: Live, url: str) -> None:
    item = {"document_id": "d", "content": "Once only.", "update_mode": "append"}
    body = {"items": [item]}
    key = {"Idempotency-Key": "a key / of mine"}
    answers = await asyncio.gather(
        *(live.http.post(f"{url}/memories", json=body, headers=key) for _ in range(5))
    )
    assert {a.status_code for a in answers} == {200}
    assert all(a.json() == answers[0].json() for a in answers)
    document = (await live.http.get(f"{url}/documents/d")).json()
    assert document["original_text"] == "Once only."
    other = await live.http.post(f"{url}/memories", json={"items": [item, item]}, headers=key)
    assert other.status_code == 422
    assert "Idempotency-Key" in other.json()["detail"]
    for bad in ("", "x" * 256):
        refused = await live.http.post(
            f"{url}/memories", json=body, headers={"Idempotency-Key": bad}
        )
        assert refused.status_code in (400, 422)
    body["async"] = True  # type: ignore[assignment]
    key = {"Idempotency-Key": "another"}
    queued = [await live.http.post(f"{url}/memories", json=body, headers=key) for _ in range(2)]
    assert queued[0].json() == queued[1].json()
    assert queued[0].json()["operation_id"]


@pytest.mark.parametrize(
    "document",
    [
        "plain", "a/b", "a/chunks", "a/history", "a/reprocess", "chunks", "history",
        "a/chunks/chunks",
        "/lead", "trail/", "a//b", "a/history/chunks", "x%2Fchunks", "ü/chunks", "documents/chunks",
    ],
)  # fmt: skip
async def test_documents_with_ids_like_routes(live: Live, url: str, document: str) -> None:
    await put(live, url, document, "The kiln is hot.")
    await put(live, url, "a", "Another one. It is longer.")
    at = f"{url}/documents/{quote(document, safe='')}"
    shown = await live.http.get(at)
    assert (shown.status_code, shown.json()["id"]) == (200, document)
    parts = (await live.http.get(f"{at}/chunks")).json()
    assert [part["document_id"] for part in parts["items"]] == [document]
    told = (await live.http.get(f"{at}/history")).json()
    assert (told["document_id"], told["total"]) == (document, 1)
    patched = await live.http.patch(at, json={"tags": ["t"]})
    assert patched.status_code == 200, patched.text
    assert (await live.http.get(at)).json()["tags"] == ["t"]
    made = await live.http.post(f"{at}/reprocess")
    assert (made.status_code, made.json()["success"]) == (200, True)
    removed = await live.http.delete(at)
    assert (removed.status_code, removed.json()["document_id"]) == (200, document)
    assert (await live.http.get(at)).status_code == 404
    assert (await live.http.get(f"{url}/documents/a")).status_code == 200


@pytest.mark.parametrize("end", ["chunks", "history"])
async def test_an_address_that_could_be_a_part(live: Live, url: str, end: str) -> None:
    """Unencoded it is the part of the document that is there, else the document of that id."""
    await put(live, url, f"a/{end}", "The kiln is hot.")
    assert (await live.http.get(f"{url}/documents/a/{end}")).json()["id"] == f"a/{end}"
    await put(live, url, "a", "Another.")
    part = (await live.http.get(f"{url}/documents/a/{end}")).json()
    assert part["items"][0]["document_id"] == "a"
    missing = await live.http.get(f"{url}/documents/b/{end}")
    assert missing.status_code == 404
    assert "'b'" in missing.json()["detail"]


async def test_the_history_over_http(live: Live, url: str) -> None:
    await put(live, url, "d", "First.")
    await put(live, url, "d", "Second.", update_mode="append")
    await live.http.patch(f"{url}/documents/d", json={"tags": ["t"]})
    told = (await live.http.get(f"{url}/documents/d/history", params={"limit": 2})).json()
    assert {k: told[k] for k in ("document_id", "total", "limit", "offset")} == {
        "document_id": "d", "total": 3, "limit": 2, "offset": 0,
    }  # fmt: skip
    assert [item["kind"] for item in told["items"]] == ["retag", "append"]
    assert told["items"][1]["facts_added"] == 1
    assert set(told["items"][0]) == {
        "document_id", "kind", "created_at", "operation_id", "fact_id", "facts_added",
        "facts_removed", "observations_created", "observations_updated", "observations_removed",
    }  # fmt: skip
    for query in ({"limit": 0}, {"limit": 1001}, {"offset": -1}):
        bad = await live.http.get(f"{url}/documents/d/history", params=query)
        assert bad.status_code == 422


async def test_the_same_operation_id_in_two_banks(live: Live, url: str) -> None:
    id = str(uuid4())
    body = {"async": True, "operation_id": id, "items": [{"content": "x"}]}
    for bank in (url, url + "2", url):
        answer = await live.http.post(f"{bank}/memories", json=body)
        assert (answer.status_code, answer.json()["operation_id"]) == (200, id)


async def test_an_item_is_read_once(live: Live, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by its time: what reads items anywhere reads that. A queued item is read once where
    it is accepted and once by the worker, which has it from the database."""
    read: Counter[str] = Counter()
    written = zones.written

    def counted(value: str) -> datetime:
        read[value] += value.startswith("2031-")
        return written(value)

    monkeypatch.setattr(zones, "written", counted)
    times = [f"2031-01-{day}T10:00:00+02:00" for day in (11, 12, 13)]
    items = [{"content": f"Seen at {time}.", "timestamp": time} for time in times]
    answer = await live.http.post(f"{url}/memories", json={"items": items})
    assert answer.status_code == 200, answer.text
    assert +read == dict.fromkeys(times, 1)
    answer = await live.http.post(f"{url}/memories", json={"items": items, "async": True})
    operation = f"{url}/operations/{answer.json()['operation_id']}"
    assert read.total() == 6
    async with asyncio.timeout(30):
        while (await live.http.get(operation)).json()["status"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert +read == dict.fromkeys(times, 3)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"tags": [f"t{i}" for i in range(501)]}, "tags"),
        ({"entities": [{"text": f"E{i}"} for i in range(101)]}, "entities"),
        ({"metadata": {f"k{i}": "v" for i in range(501)}}, "metadata"),
        ({"observation_scopes": [["a"]] * 101}, "observation_scopes"),
        ({"content": "x" * 5_000_001}, "content"),
    ],
)
async def test_too_much_is_named(live: Live, url: str, item: dict[str, Any], named: str) -> None:
    body = {"items": [{"content": "a", **item}]}
    for extra in ({}, {"async": True}):
        answer = await live.http.post(f"{url}/memories", json={**body, **extra})
        assert answer.status_code == 413, answer.text
        assert f"items[0].{named}" in answer.json()["detail"]
    links = [{"to": "k", "type": "causes"}] * 2001
    answer = await live.http.post(
        f"{url}/memories/import", json={"memories": [{"text": "a", "links": links}]}
    )
    assert answer.status_code == 413
    assert "memories[0].links" in answer.json()["detail"]
    assert (await live.http.get(f"{url}/profile")).status_code == 404
