"""Webhooks and the audit log in archives and clones: who is told, and who did what."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from retrieval.errors import InvalidInput
from retrieval.lifecycle.transfer import jobs, watchers
from retrieval.lifecycle.transfer.archive import ArchiveContents, BadArchive
from retrieval.lifecycle.transfer.exporting import Wanted
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.registry import MOST, WebhookRegistry
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from tests.retrieval.lifecycle.transfer import world

pytestmark = pytest.mark.integration

HOOK = {
    "url": "http://127.0.0.1:9/told?room=1",
    "secret": "s3cret-of-the-hook",
    "event_types": ["retain.completed", "bank.deleted"],
    "http_config": {"method": "GET", "timeout_seconds": 7, "headers": {"x-token": "h1dden"},
                    "params": {"key": "p4ram"}},
}  # fmt: skip
ENTRY = {
    "action": "recall", "transport": "http", "duration_ms": 5,
    "metadata": {"key_id": "k", "status": 200}, "request": {"query": {"length": 4}},
}  # fmt: skip


def registry(pool: Pool) -> WebhookRegistry:
    return WebhookRegistry(pool, Vault(pool), AddressGuard.of(["127.0.0.1"]))


async def watched(pool: Pool, bank: str) -> dict[str, Any]:
    """A bank with a webhook and an entry; the webhook."""
    made = await registry(pool).create("default", bank, HOOK)

    async def note(connection: Connection) -> None:
        await connection.execute(
            "insert into audit_logs (tenant_id, bank_id, id, action, transport, started_at,"
            " duration_ms, metadata, request) values ('default', $1, $2, $3, $4, now(), $5, $6,"
            " $7)",
            bank, uuid4(), *ENTRY.values(),
        )  # fmt: skip

    await write(pool, note)
    return made


async def entries(pool: Pool, bank: str) -> list[dict[str, Any]]:
    rows = await read(
        pool,
        lambda c: c.fetch(
            "select id, started_at, action, transport, duration_ms, metadata, request"
            " from audit_logs where tenant_id = 'default' and bank_id = $1 order by id",
            bank,
        ),
    )
    return [dict(row) for row in rows]


async def arrived(pool: Pool, source: str, target: str, made: dict[str, Any]) -> None:
    """The target has what the source has, as far as it travels."""
    listed = (await registry(pool).listed("default", target))["items"]
    emptied = {**made["http_config"], "headers": {"x-token": ""}, "params": {"key": ""}}
    (found,) = listed
    assert found == {
        **made, "bank_id": target, "enabled": False, "http_config": emptied,
    }  # fmt: skip
    row = (await world.rows(pool, target, "webhooks"))[0]
    assert (row["secret"], row["receiver"]) == (None, "127.0.0.1:9")
    told = [{**one, "metadata": {**one["metadata"], "imported": True}}
            for one in await entries(pool, source)]  # fmt: skip
    assert await entries(pool, target) == told


async def test_out_and_in_again(pool: Pool, tmp_path: Path) -> None:
    source, target, archive = uuid4().hex, uuid4().hex, tmp_path / "a.zip"
    async with world.context(pool) as context:
        made = await watched(pool, source)
        await world.exported(context, source, archive)
        with zipfile.ZipFile(archive) as members:
            whole = b"".join(members.read(name) for name in members.namelist())
        for secret in (b"s3cret", b"h1dden", b"p4ram"):
            assert secret not in whole
        asked = ImportRequest(target=target, include=ArchiveContents(history=True))
        done = await world.imported(context, target, archive, asked)
        assert done["status"] == "completed", done
        counts = done["result_metadata"]
        assert (counts["webhooks_imported"], counts["history_rows_imported"]) == (1, 1)
        await arrived(pool, source, target, made)
        # The log outlives a bank, and takes the same entries once.
        await write(pool, lambda c: c.execute("delete from banks where bank_id = $1", target))
        assert (await world.imported(context, target, archive, asked))["status"] == "completed"
        assert len(await entries(pool, target)) == 1


async def test_a_clone_calls_nobody(pool: Pool) -> None:
    source, target = uuid4().hex, uuid4().hex
    async with world.context(pool) as context:
        made = await watched(pool, source)
        include = ArchiveContents(history=True)
        asked = await jobs.submit_clone(pool, "default", source, target, include)
        done = await world.finished(context, source, asked)
        assert done["status"] == "completed", done
        assert done["result_metadata"]["webhooks_imported"] == 1
        await arrived(pool, source, target, made)


async def test_without_settings_or_history(pool: Pool, tmp_path: Path) -> None:
    source, archive = uuid4().hex, tmp_path / "a.zip"
    async with world.context(pool) as context:
        await watched(pool, source)
        await world.exported(context, source, archive, Wanted(ArchiveContents(bank_config=False)))
        with zipfile.ZipFile(archive) as members:
            parts = {one["name"] for one in orjson.loads(members.read("manifest.json"))["parts"]}
        assert not any(name.startswith(("webhooks", "history")) for name in parts)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "ftp://example.com"},
        {"url": 5},
        {"event_types": []},
        {"event_types": ["everything"]},
        {"http_config": {"method": "DELETE"}},
        {"http_config": {"timeout_seconds": "long"}},
        {"http_config": {"headers": 5}},
    ],
)
async def test_what_is_no_webhook(pool: Pool, change: dict[str, Any]) -> None:
    name = uuid4().hex

    async def work(connection: Connection) -> None:
        bank = (await banks.ensure(connection, "default", name)).bank
        line = {**HOOK, "id": str(uuid4()), **change}
        await watchers.store_webhooks(connection, bank, [line], Vault(pool))

    with pytest.raises((InvalidInput, ValueError, TypeError, KeyError)):
        await write(pool, work)


async def test_more_than_a_bank_may_have(pool: Pool) -> None:
    name = uuid4().hex

    async def work(connection: Connection) -> None:
        bank = (await banks.ensure(connection, "default", name)).bank
        lines = [{**HOOK, "id": str(uuid4())} for _ in range(MOST + 1)]
        await watchers.store_webhooks(connection, bank, lines, Vault(pool))

    with pytest.raises(BadArchive, match="more webhooks"):
        await write(pool, work)
