"""The audit log through the application: what is noted of whom, and what is not."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import Unavailable
from retrieval.lifecycle.audit.recorder import noting
from retrieval.store.audit import AuditEntry
from retrieval.store.database.pool import read, write
from tests.serve.conftest import B, Live
from tests.serve.test_mental_models import ask, ended

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def logs(live: Live, bank: str, count: int, **params: Any) -> list[dict[str, Any]]:
    """The entries, once there are as many."""
    async with asyncio.timeout(30):
        while True:
            found = await ask(live, "GET", f"{bank}/audit-logs", params=params)
            if found["total"] >= count:
                items: list[dict[str, Any]] = found["items"]
                return items
            await asyncio.sleep(0.05)


async def switched_on(live: Live, bank: str) -> None:
    await ask(live, "PUT", bank, json={})
    await ask(live, "PATCH", f"{bank}/config", json={"updates": {"audit_log_enabled": True}})
    assert live.services.recorder is not None
    live.services.recorder._banks.clear()


async def test_what_is_noted(live: Live) -> None:
    bank = "watched"
    await switched_on(live, bank)
    items = [{"content": "Zenobia hides saffron.", "document_id": "z"}]
    headers = {"x-request-id": "r-1", "authorization": "Bearer key"}
    answer = await live.http.post(f"{B}/{bank}/memories", json={"items": items}, headers=headers)
    assert answer.status_code == 200
    (entry,) = await logs(live, bank, 1, action="retain")  # at once: it is a change
    assert (entry["transport"], entry["bank_id"], entry["metadata"]["status"]) == (
        "http", bank, 200,
    )  # fmt: skip
    assert entry["metadata"]["request_id"] == "r-1"
    assert len(entry["metadata"]["key_id"]) == 16
    assert entry["duration_ms"] >= 0
    whole = await ask(live, "GET", f"{bank}/audit-logs/{entry['id']}")
    assert whole["request"]["items"][0]["content"]["chars"] == 22
    assert whole["response"]["success"] is True
    assert "affron" not in json.dumps(whole)
    await live.recall(bank, "saffron")
    (read,) = await logs(live, bank, 1, action="recall")
    asked = (await ask(live, "GET", f"{bank}/audit-logs/{read['id']}"))["request"]
    assert asked["query"]["chars"] == 7
    await ask(live, "GET", f"{bank}/documents/nobody", 404)
    (missed,) = await logs(live, bank, 1, action="get_document")
    assert missed["metadata"]["status"] == 404
    stats = await ask(live, "GET", f"{bank}/audit-logs/stats?period=1d")
    assert (stats["trunc"], len(stats["buckets"])) == ("day", 2)
    assert stats["buckets"][-1]["actions"]["retain"] == 1
    only = await ask(live, "GET", f"{bank}/audit-logs/stats?action=recall")
    assert sum(bucket["total"] for bucket in only["buckets"]) == 1
    page = await ask(live, "GET", f"{bank}/audit-logs?limit=1&offset=1")
    assert (len(page["items"]), page["limit"], page["offset"]) == (1, 1, 1)
    none = await ask(live, "GET", f"{bank}/audit-logs?end_date=2020-01-01")
    assert none["total"] == 0
    answer = await live.http.get(f"{B}/{bank}/audit-logs")
    assert "x-audit-log" not in answer.headers


async def test_an_erasure_empties_what_was_kept(live: Live) -> None:
    bank = "emptied"
    await switched_on(live, bank)
    await ask(live, "POST", f"{bank}/memories", json={"items": [{"content": "Zenobia."}]})
    body = {"text_contains": "zenobia", "dry_run": False}
    queued = await ask(live, "POST", f"{bank}/erase", 202, json=body)
    assert (await ended(live, bank, queued["operation_id"]))["status"] == "completed"
    (entry,) = await logs(live, bank, 1, action="retain")
    whole = await ask(live, "GET", f"{bank}/audit-logs/{entry['id']}")
    assert (whole["request"], whole["response"]) == (None, None)
    assert whole["action"] == "retain"


async def test_off_is_not_nothing(live: Live) -> None:
    bank = "unwatched"
    await live.import_memories(bank, {"key": "k", "text": "It stays."})
    answer = await live.http.get(f"{B}/{bank}/audit-logs")
    assert (answer.headers["x-audit-log"], answer.json()["items"]) == ("off", [])
    await ask(live, "GET", f"{bank}/audit-logs/{uuid4()}", 404)
    await ask(live, "GET", f"{bank}/audit-logs/x", 400)
    for query in ("limit=0", "limit=501", "transport=smoke"):
        await ask(live, "GET", f"{bank}/audit-logs?{query}", 422)
    for query in ("start_date=soon", "end_date=x"):
        await ask(live, "GET", f"{bank}/audit-logs?{query}", 400)
    await ask(live, "GET", f"{bank}/audit-logs/stats?period=2d", 400)
    await ask(live, "GET", "nobody-at-all/audit-logs", 404)


async def test_a_change_is_never_without_its_entry(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the commit and the answer; or the change comes to nothing."""
    bank = "certain"
    await switched_on(live, bank)
    recorder = live.services.recorder
    assert recorder is not None

    async def gone(_: Any) -> None:
        raise Unavailable("the process", "is gone")

    monkeypatch.setattr(recorder, "changed", gone)
    body = {"items": [{"content": "Zenobia sows.", "document_id": "z"}]}
    await ask(live, "POST", f"{bank}/memories", json=body)
    await ask(live, "POST", f"{bank}/memories", json={**body, "async": True})
    await ask(live, "DELETE", f"{bank}/documents/z")
    found = await logs(live, bank, 3)
    assert [one["action"] for one in found[:3]] == ["delete_document", "retain", "retain"]
    assert [one["ended_at"] for one in found[:3]] == [None] * 3
    whole = await ask(live, "GET", f"{bank}/audit-logs/{found[2]['id']}")
    assert whole["request"]["items"][0]["content"]["chars"] == 13

    class _Undone(Exception):
        pass

    entry = AuditEntry("default", bank, "retain", "http", datetime.now(UTC))

    async def fails(connection: Any) -> None:
        raise _Undone

    with noting(entry), pytest.raises(_Undone):
        await write(live.services.pool, fails)
    await ask(live, "GET", f"{bank}/audit-logs/{entry.id}", 404)


async def test_a_bank_that_is_being_built_has_a_log(live: Live) -> None:
    bank = uuid4().hex
    await switched_on(live, bank)

    async def state(connection: Any, word: str) -> None:
        await connection.execute("update banks set state = $2 where bank_id = $1", bank, word)

    await write(live.services.pool, lambda c: state(c, "importing"))
    assert live.services.recorder is not None
    live.services.recorder._banks.clear()
    assert (await live.http.get(f"{B}/{bank}/operations")).status_code == 200
    refused = await live.http.post(f"{B}/{bank}/memories/recall", json={"query": "x"})
    assert refused.status_code == 503
    assert (await live.http.delete(f"{B}/{bank}")).status_code == 200
    rows = await read(
        live.services.pool,
        lambda c: c.fetch("select action from audit_logs where bank_id = $1", bank),
    )
    assert "delete_bank" in {row["action"] for row in rows}
