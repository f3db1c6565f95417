"""Who is told of a bank, and who did what in it: webhooks and entries of the audit log, as lines
and as rows again.

A webhook travels without its secret and without the values of its headers and parameters, and
arrives switched off: whoever it leads to would be told of another bank, too. An entry says that it
was brought here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from retrieval.lifecycle.transfer import shapes
from retrieval.lifecycle.transfer.archive import BadArchive
from retrieval.lifecycle.transfer.lines import Line, by_key
from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.registry import DEFAULT_HTTP, MOST
from retrieval.lifecycle.webhooks.vault import Sealed, Vault
from retrieval.store.database.pool import Connection
from retrieval.store.outbox import EVENTS

_ANYWHERE: Final = AddressGuard.of(("0.0.0.0/0", "::/0", ".localhost", "localhost", ".local"))
"""What may be dialled is looked at where it is dialled."""
BROUGHT: Final = {"imported": True}
"""What the metadata of an entry says that was not noted here."""


async def webhooks(connection: Connection, bank: int, vault: Vault) -> AsyncIterator[list[Line]]:
    rows = await connection.fetch(
        "select id, url, event_types, enabled, http_config, created_at, updated_at from webhooks"
        " where bank = $1 order by created_at, id",
        bank,
    )
    if rows:
        yield [
            {**row, "id": str(row["id"]), "http_config": await _emptied(vault, row["http_config"])}
            for row in rows
        ]


async def _emptied(vault: Vault, sealed: bytes) -> dict[str, Any]:
    try:
        held: dict[str, Any] = await vault.open(sealed)
    except Sealed:
        return dict(DEFAULT_HTTP)
    names = {name: dict.fromkeys(held.get(name) or {}, "") for name in ("headers", "params")}
    return {**held, **names}


async def store_webhooks(
    connection: Connection, bank: int, lines: Sequence[Line], vault: Vault
) -> None:
    """Switched off and without secrets. BadArchive for more than a bank may have."""
    for line in lines:
        given = line.get("http_config") or {}
        http = {name: given.get(name, value) for name, value in DEFAULT_HTTP.items()}
        if http["method"] not in ("GET", "POST") or not 0 < float(http["timeout_seconds"]) <= 300:
            raise ValueError("a method or a timeout")
        for name in ("headers", "params"):
            http[name] = dict.fromkeys(map(str, http[name]), "")
        events = list(line["event_types"])
        if not events or not set(events) <= set(EVENTS):
            raise ValueError("an event")
        target = _ANYWHERE.read(line["url"])
        await connection.execute(
            "insert into webhooks (bank, id, url, receiver, event_types, enabled, http_config,"
            " created_at, updated_at)"
            " select $1, w.id, $2, $3, $4, false, $5, coalesce(w.created_at, now()),"
            " coalesce(w.updated_at, now()) from jsonb_populate_record(null::webhooks, $6) w",
            bank,
            target.url,
            target.receiver,
            events,
            await vault.seal(http),
            {name: line.get(name) for name in ("id", "created_at", "updated_at")},
        )
    if await connection.fetchval("select count(*) > $2 from webhooks where bank = $1", bank, MOST):
        raise BadArchive(f"the archive has more webhooks than the {MOST} that a bank may have")


async def audit_entries(
    connection: Connection, tenant: str, bank_id: str
) -> AsyncIterator[list[Line]]:
    keys = (
        "select id, 512 + 4 * (coalesce(pg_column_size(request), 0)"
        " + coalesce(pg_column_size(response), 0)) as size from audit_logs"
        " where tenant_id = $1 and bank_id = $2 order by started_at, id"
    )
    rows = (
        "select to_jsonb(a) - '{tenant_id,bank_id}'::text[] as line from audit_logs a"
        " where tenant_id = $1 and bank_id = $2 and id = any($3) order by started_at, id"
    )
    async for part in by_key(connection, keys, rows, tenant, bank_id):
        yield part


async def store_audit_entries(
    connection: Connection, tenant: str, bank_id: str, lines: Sequence[Line]
) -> None:
    """Beside what was noted here under the same name: the log outlives banks."""
    made = []
    for line in lines:
        shapes.check("audit_logs", line)
        metadata = {**(line.get("metadata") or {}), **BROUGHT}
        made.append({**line, "tenant_id": tenant, "bank_id": bank_id, "metadata": metadata})
    await connection.execute(
        "insert into audit_logs select * from jsonb_populate_recordset(null::audit_logs, $1)"
        " on conflict do nothing",
        made,
    )


async def clone_webhooks(connection: Connection, source: int, bank: int, vault: Vault) -> None:
    async for part in webhooks(connection, source, vault):
        await store_webhooks(connection, bank, part, vault)


async def clone_audit_entries(
    connection: Connection, tenant: str, source: str, bank_id: str, timeout: float
) -> None:
    await connection.execute(
        "insert into audit_logs (tenant_id, bank_id, id, action, transport, started_at, ended_at,"
        " duration_ms, metadata, request, response)"
        " select tenant_id, $3, id, action, transport, started_at, ended_at, duration_ms,"
        " metadata || $4, request, response from audit_logs where tenant_id = $1 and bank_id = $2"
        " on conflict do nothing",
        tenant,
        source,
        bank_id,
        BROUGHT,
        timeout=timeout,
    )
