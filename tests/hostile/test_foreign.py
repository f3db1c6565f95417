"""Another tenant's ids on every route: nothing of his is told, and nothing of his changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from retrieval.store import tenants
from serve import app, composition
from serve.composition import Stages
from tests.hostile.test_routes import OPERATIONS, RIGHT
from tests.serve.conftest import B, migrated, settings_for
from tests.serve.test_bad_input import MAKES_BANKS, Operation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SECRET = "swordfish"
OWNED = "victims-bank"


class Two:
    """An application that needs keys, the victim's client and the stranger's."""

    def __init__(self, victim: httpx.AsyncClient, stranger: httpx.AsyncClient) -> None:
        self.victim, self.stranger = victim, stranger
        self.ids: dict[str, str] = {}

    async def state(self) -> list[Any]:
        """What the victim sees of his bank."""
        paths = ("memories/list", "documents", "entities", "operations", "tags", "config", "stats",
                 "webhooks", "aliases")  # fmt: skip
        return [(await self.victim.get(f"{B}/{OWNED}/{path}")).json() for path in paths]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def two(dsn: str) -> AsyncIterator[Two]:
    settings = settings_for(dsn, worker={"worker_enabled": False}, limits={"require_api_key": True})
    async with AsyncExitStack() as stack:
        pool = await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        transport = httpx.ASGITransport(app.create(settings, services))
        clients = []
        for tenant in ("victim", "stranger"):
            key = await tenants.create_key(pool, tenant)
            clients.append(
                await stack.enter_async_context(
                    httpx.AsyncClient(
                        transport=transport,
                        base_url="http://test",
                        headers={"authorization": f"Bearer {key}"},
                        timeout=60,
                    )
                )
            )
        found = Two(*clients)
        item = {
            "content": f"Ann keeps the {SECRET}.", "document_id": f"d-{SECRET}",
            "entities": [{"text": SECRET}], "tags": [SECRET],
        }  # fmt: skip
        answer = await found.victim.post(f"{B}/{OWNED}/memories", json={"items": [item]})
        assert answer.status_code == 200, answer.text
        queued = {"async": True, "items": [{**item, "document_id": f"e-{SECRET}"}]}
        answer = await found.victim.post(f"{B}/{OWNED}/memories", json=queued)
        found.ids = {
            "operation_id": answer.json()["operation_id"],
            "memory_id": (await found.victim.get(f"{B}/{OWNED}/memories/list")).json()["items"][0][
                "id"
            ],
            "entity_id": (await found.victim.get(f"{B}/{OWNED}/entities")).json()["items"][0]["id"],
            "document_id": f"d-{SECRET}",
            "chunk_id": f"{OWNED}_d-{SECRET}_0",
            # A model and a page need a language model to be made: names that nobody has.
            "mental_model_id": f"m-{SECRET}",
            "page_id": f"p-{SECRET}",
            "key": f"exports/{SECRET}.zip",
            "log_id": str(uuid4()),
            "attachment_id": "5ec7e75ec7e7",
            "alias": f"alias-{SECRET}",
        }
        for name, path, body in (
            ("directive_id", "directives", {"name": SECRET, "content": f"Say {SECRET}."}),
            ("node_id", "knowledge-base/folders", {"name": SECRET}),
            ("webhook_id", "webhooks", {"url": f"https://{SECRET}.example/", "enabled": False}),
        ):
            answer = await found.victim.post(f"{B}/{OWNED}/{path}", json=body)
            assert answer.status_code < 300, answer.text
            found.ids[name] = answer.json()["id"]
        hook = f"{B}/{OWNED}/webhooks/{found.ids['webhook_id']}"
        answer = await found.victim.post(f"{hook}/test")
        found.ids["delivery_id"] = answer.json()["id"]
        alias = {"alias": found.ids["alias"]}
        answer = await found.victim.post(f"{B}/{OWNED}/aliases", json=alias)
        assert answer.status_code == 201, answer.text
        answer = await found.stranger.post(
            f"{B}/own/memories", json={"items": [{"content": "Bo rows.", "document_id": "own"}]}
        )
        assert answer.status_code == 200, answer.text
        yield found


def body_of(operation: Operation, ids: Mapping[str, str]) -> dict[str, Any]:
    if operation.id not in RIGHT:
        return {}
    body: dict[str, Any] = dict(RIGHT[operation.id])
    if operation.id == "merge_entities":
        body["others"] = [ids["entity_id"]]
    if operation.id == "split_entity":
        body["memory_ids"] = [ids["memory_id"]]
    if operation.id == "recall_memories":
        body = {"query": SECRET, "include": {"chunks": {}, "source_facts": {}}}
    return {"json": body}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("bank", [OWNED, "own"])
@pytest.mark.parametrize("operation", [pytest.param(one, id=one.id) for one in OPERATIONS])
async def test_ids_of_another_tenant(two: Two, operation: Operation, bank: str) -> None:
    """His bank's name is free to the stranger; his ids lead nowhere in the stranger's own bank."""
    if "{" not in operation.path or (operation.id == "delete_bank" and bank != OWNED):
        pytest.skip("names nobody's ids")
    if bank == OWNED and MAKES_BANKS.get(operation.id):
        pytest.skip("makes a bank of the stranger's own by that name")
    before = await two.state()
    url = operation.path.format(bank_id=bank, **two.ids)
    answer = await two.stranger.request(operation.method, url, **body_of(operation, two.ids))
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    if answer.status_code < 400:
        told = json.dumps(answer.json()).replace(two.ids["operation_id"], "")
        assert SECRET not in told
        assert two.ids["memory_id"] not in told
        assert two.ids["entity_id"] not in told
        places = [p for p in ("memory_id", "entity_id", "document_id") if p in operation.path]
        assert not places, f"{answer.status_code}: {answer.text[:200]}"
    assert await two.state() == before
