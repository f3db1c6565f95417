"""Erasures through the application, and from the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.conftest import B, Live
from tests.serve.test_mental_models import ask, ended

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def test_an_erasure_from_end_to_end(live: Live) -> None:
    bank = "forgetful"
    items = [
        {"content": "Zenobia grows saffron.", "document_id": "z", "tags": ["user:z"]},
        {"content": "Bo grows barley.", "document_id": "b"},
    ]
    await ask(live, "POST", f"{bank}/memories", json={"items": items})
    assert (await live.recall(bank, "saffron"))["results"][0]["text"] == "Zenobia grows saffron."
    body: dict[str, Any] = {"text_contains": "ZENOBIA", "dry_run": True}
    seen = await ask(live, "POST", f"{bank}/erase", json=body)
    assert (seen["dry_run"], seen["counts"]["memories"], seen["documents"]) == (True, 1, ["z"])
    assert len(seen["memories"]) == 1
    assert (await ask(live, "GET", f"{bank}/memories/list"))["total"] == 2
    queued = await ask(live, "POST", f"{bank}/erase", 202, json={**body, "dry_run": False})
    assert queued["status"] == "pending"
    done = await ended(live, bank, queued["operation_id"])
    assert done["status"] == "completed", done
    report = done["result_metadata"]
    assert (report["remaining"], report["counts"]["memories"]) == (0, 1)
    assert report["replicas"]["acknowledged"] >= 1
    assert len(report["digest"]) == 64
    found = (await live.recall(bank, "Zenobia saffron"))["results"]
    assert [one["text"] for one in found] == ["Bo grows barley."]
    await ask(live, "GET", f"{bank}/documents/z", 404)


async def test_what_was_invalidated_is_purged(live: Live) -> None:
    bank = "purged"
    done = await live.import_memories(bank, {"key": "k", "text": "The kiln is hot."})
    id = done["ids"]["k"]
    await ask(live, "PATCH", f"{bank}/memories/{id}", json={"state": "invalidated"})
    queued = await ask(live, "POST", f"{bank}/purge-invalidated", 202, json={"older_than_days": 0})
    ended_ = await ended(live, bank, queued["operation_id"])
    assert ended_["result_metadata"]["counts"]["memories"] == 1
    await ask(live, "GET", f"{bank}/memories/{id}", 404)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dry_run": True},
        {"document_ids": ["d"]},
        {"dry_run": True, "document_ids": []},
        {"dry_run": True, "tags_match": "all"},
        {"dry_run": True, "text_contains": "  "},
        {"dry_run": True, "memory_ids": ["x"]},
        {"dry_run": True, "metadata": {"a": {"eq": "b"}}},
        {"dry_run": True, "tags": ["t"], "observations": "keep"},
    ],
)
async def test_what_selects_nothing(live: Live, body: dict[str, Any]) -> None:
    bank = "selected"
    await live.import_memories(bank, {"key": "k", "text": "It stays."})
    answer = await live.http.post(f"{B}/{bank}/erase", json=body)
    assert answer.status_code == 422, answer.text
    assert (await ask(live, "GET", f"{bank}/memories/list"))["total"] == 1
