"""Webhooks through the application: what writes tell, and what a webhook may be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.registry import WebhookRegistry
from retrieval.lifecycle.webhooks.vault import Vault
from tests.serve.conftest import B, Live
from tests.serve.test_mental_models import ask, ended

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

OPEN = AddressGuard.of(["127.0.0.1"])


@pytest_asyncio.fixture(loop_scope="session")
async def held(live: Live) -> AsyncIterator[None]:
    """What is written waits until a test delivers it: the application's own deliverer, which may
    not dial loopback, would call it blocked."""
    pool = live.services.pool
    await pool.execute(
        "create or replace function hold() returns trigger language plpgsql as $$ begin"
        " new.next_attempt_at := 'infinity'; return new; end $$;"
        " create trigger hold before insert on webhook_deliveries"
        " for each row execute function hold()"
    )
    yield
    await pool.execute("drop trigger hold on webhook_deliveries; drop function hold()")


async def rows(live: Live, bank: str) -> list[dict[str, Any]]:
    """The bodies in the outbox, oldest first."""
    found = await live.services.pool.fetch(
        "select body from webhook_deliveries where bank_id = $1 order by created_at", bank
    )
    return [json.loads(bytes(row["body"])) for row in found]


async def test_what_writes_tell(live: Live, held: None) -> None:
    bank = "told"
    hooks = WebhookRegistry(live.services.pool, Vault(live.services.pool), OPEN)
    every = ["retain.completed", "document.deleted", "bank.deleted"]
    await hooks.create("default", bank, {"url": "http://127.0.0.1:1/", "event_types": every})
    items = [
        {"content": "Ann rows.", "document_id": "d/1", "tags": ["sea"]},
        {"content": "Bo rows.", "document_id": "d/2"},
    ]
    await ask(live, "POST", f"{bank}/memories", json={"items": items})
    first, second = await rows(live, bank)
    assert (first["event"], first["status"], first["bank_id"]) == (
        "retain.completed", "completed", bank,
    )  # fmt: skip
    assert first["data"] == {"document_id": "d/1", "tags": ["sea"], "memory_unit_count": 1}
    assert "operation_id" not in first
    assert second["data"]["document_id"] == "d/2"
    assert "rows" not in json.dumps([first, second])
    later = {"items": [{"content": "Cy rows.", "document_id": "d/3"}], "async": True}
    queued = await ask(live, "POST", f"{bank}/memories", json=later)
    await ended(live, bank, queued["operation_id"])
    assert (await rows(live, bank))[-1]["operation_id"] == queued["operation_id"]
    refused = {"items": [{"content": "Di rows."}, {"content": ""}, {"content": "x", "tags": [""]}]}
    await ask(live, "POST", f"{bank}/memories", 422, json=refused)
    assert len(await rows(live, bank)) == 3
    await ask(live, "DELETE", f"{bank}/documents/d%2F1")
    assert (await rows(live, bank))[-1]["data"] == {
        "document_id": "d/1", "memory_unit_count": 1,
    }  # fmt: skip
    await ask(live, "DELETE", bank)
    (last,) = await rows(live, bank)
    assert last["event"] == "bank.deleted"


async def test_a_test_and_the_list(live: Live, held: None) -> None:
    bank = "delivered"
    hooks = WebhookRegistry(live.services.pool, Vault(live.services.pool), OPEN)
    made = await hooks.create(
        "default", bank, {"url": "http://127.0.0.1:1/", "event_types": ["retain.completed"]}
    )
    await ask(live, "POST", f"{bank}/memories", json={"items": [{"content": "Ann rows."}]})
    tested = await ask(live, "POST", f"{bank}/webhooks/{made['id']}/test", 202)
    assert (tested["event_type"], tested["status"]) == ("webhook.test", "pending")
    url = f"{bank}/webhooks/{made['id']}/deliveries"
    first = await ask(live, "GET", f"{url}?limit=1")
    assert [one["id"] for one in first["items"]] == [tested["id"]]
    rest = await ask(live, "GET", url, params={"limit": 1, "cursor": first["next_cursor"]})
    assert [one["event_type"] for one in rest["items"]] == ["retain.completed"]
    await ask(live, "POST", f"{url}/{tested['id']}/retry", 409)


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 422, "url"),
        ({"url": ""}, 422, "url"),
        ({"url": "http://127.0.0.1/"}, 400, "url"),
        ({"url": "http://169.254.169.254/latest"}, 400, "url"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, 400, "url"),
        ({"url": "http://0x7f.1/"}, 400, "url"),
        ({"url": "ftp://example.org/"}, 400, "url"),
        ({"url": "http://a:b@example.org/"}, 400, "url"),
        ({"event_types": []}, 422, "event_types"),
        ({"event_types": ["retain.started"]}, 422, "event_types"),
        ({"http_config": {"method": "PUT"}}, 422, "method"),
        ({"http_config": {"timeout_seconds": 0}}, 422, "timeout_seconds"),
        ({"http_config": {"headers": {"X": "a\r\nY: b"}}}, 422, "headers"),
        ({"http_config": {"headers": {"a b": "c"}}}, 422, "headers"),
        ({"secret": "x" * 2000}, 422, "secret"),
    ],
)
async def test_what_no_webhook_is(
    live: Live, body: dict[str, Any], status: int, named: str
) -> None:
    bank = f"none-{uuid4()}"
    right = {"url": "https://example.org/"} if body and "url" not in body else {}
    answer = await live.http.post(f"{B}/{bank}/webhooks", json={**right, **body})
    assert answer.status_code == status, answer.text
    assert named in answer.text
    assert (await live.http.get(f"{B}/{bank}/webhooks")).status_code == 404


async def test_changes(live: Live) -> None:
    bank = "changed"
    made = await ask(live, "POST", f"{bank}/webhooks", 201, json={"url": "https://example.org/"})
    assert made["event_types"] == ["consolidation.completed"]
    assert made["http_config"] == {
        "method": "POST", "timeout_seconds": 30, "headers": {}, "params": {},
    }  # fmt: skip
    url = f"{bank}/webhooks/{made['id']}"
    await ask(live, "PATCH", url, 422, json={})
    await ask(live, "PATCH", url, 422, json={"url": None})
    await ask(live, "PATCH", url, 400, json={"url": "http://10.0.0.1"})
    await ask(live, "PATCH", f"{bank}/webhooks/{uuid4()}", 404, json={"enabled": False})
    await ask(live, "PATCH", f"{bank}/webhooks/x", 400, json={"enabled": False})
    changed = await ask(live, "PATCH", url, json={"http_config": {"method": "get"}, "secret": "s"})
    assert (changed["http_config"]["method"], changed["secret"]) == ("GET", None)
    listed = await ask(live, "GET", f"{bank}/webhooks?limit=0")
    assert (listed["items"], listed["total"]) == ([], 1)
    await ask(live, "POST", f"{url}/deliveries/{uuid4()}/retry", 404)
    await ask(live, "DELETE", url)
    await ask(live, "DELETE", url, 404)
