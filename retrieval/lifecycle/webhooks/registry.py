"""The webhooks of banks, and what became of what they were told.

Every function names the bank by (tenant, bank_id); NotFound where there is no such webhook in it.
Secrets go in and never come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import as_uuid, iso, listing, page
from retrieval.store.outbox import OutboxEvent, body

MOST = 20
"""Webhooks of a bank."""
DELIVERIES_PAGE_MAX = 200
TEST = "webhook.test"
"""The event of a test; no webhook has to ask for it."""
DEFAULT_HTTP: Mapping[str, Any] = {
    "method": "POST", "timeout_seconds": 30, "headers": {}, "params": {},
}  # fmt: skip

_KEPT = (
    "id, event_id, webhook_id, url, event_type, status, attempts, next_attempt_at, last_error,"
    " last_response_status, last_response_body, last_attempt_at, created_at, updated_at"
)


@dataclass(frozen=True, slots=True)
class OfAll:
    """The webhook of the server's settings, which all banks have; without a url there is none."""

    url: str | None = None
    secret: str | None = None
    event_types: Sequence[str] = ("consolidation.completed",)


@dataclass(frozen=True, slots=True)
class WebhookRegistry:
    """Makes, changes and lists webhooks. `pool` must be open; all calls from one event loop."""

    pool: Pool
    vault: Vault
    guard: AddressGuard = field(default_factory=AddressGuard)

    async def keep(self, of_all: OfAll) -> None:
        """Stores what the settings say of all banks. InvalidInput where the address is closed."""
        target = None if of_all.url is None else self.guard.read(of_all.url, "webhook_url")
        secret = None if of_all.secret is None else await self.vault.seal(of_all.secret)

        async def work(connection: Connection) -> None:
            if target is None:
                await connection.execute("delete from webhook_of_all")
                return
            await connection.execute(
                "insert into webhook_of_all (url, receiver, event_types, secret)"
                " values ($1, $2, $3, $4) on conflict (one) do update set url = excluded.url,"
                " receiver = excluded.receiver, event_types = excluded.event_types,"
                " secret = excluded.secret",
                target.url,
                target.receiver,
                list(of_all.event_types),
                secret,
            )

        await write(self.pool, work)

    async def create(self, tenant: str, bank_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A new webhook; the bank is made if there is none. `fields`: url, event_types, and maybe
        secret, enabled, http_config. Conflict where the bank has MOST."""
        target = self.guard.read(fields["url"])
        secret = fields.get("secret") or None
        sealed = None if secret is None else await self.vault.seal(secret)
        http = await self.vault.seal({**DEFAULT_HTTP, **fields.get("http_config", {})})

        async def work(connection: Connection) -> Mapping[str, Any]:
            await banks.ensure(connection, tenant, bank_id)
            bank = (await banks.lock(connection, tenant, bank_id)).bank
            if await connection.fetchval(
                "select count(*) >= $2 from webhooks where bank = $1", bank, MOST
            ):
                raise Conflict(f"a bank has at most {MOST} webhooks")
            row: Mapping[str, Any] = await connection.fetchrow(
                "insert into webhooks"
                " (bank, id, url, receiver, event_types, enabled, secret, http_config)"
                " values ($1, $2, $3, $4, $5, $6, $7, $8) returning *",
                bank,
                uuid4(),
                target.url,
                target.receiver,
                list(fields["event_types"]),
                fields.get("enabled", True),
                sealed,
                http,
            )
            return row

        return await self._view(bank_id, await write(self.pool, work))

    async def patch(
        self, tenant: str, bank_id: str, webhook_id: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Changes the named fields. The secret before goes on signing for a day."""
        id = as_uuid(webhook_id, "webhook_id")
        sets: dict[str, Any] = {}
        if "url" in changes:
            target = self.guard.read(changes["url"])
            sets |= {"url": target.url, "receiver": target.receiver}
        if "event_types" in changes:
            sets["event_types"] = list(changes["event_types"])
        if "enabled" in changes:
            sets |= {"enabled": changes["enabled"]}
            if changes["enabled"]:
                sets["failing_since"] = None
        if "secret" in changes:
            secret = changes["secret"] or None
            sets["secret"] = None if secret is None else await self.vault.seal(secret)
        if not sets and "http_config" not in changes:
            raise InvalidInput("nothing to change: give url, event_types, enabled, secret", "url")

        async def work(connection: Connection) -> Mapping[str, Any]:
            held = await _row(connection, tenant, bank_id, id, lock=True)
            own = dict(sets)
            if "http_config" in changes:
                before = await self.vault.open(held["http_config"])
                own["http_config"] = await self.vault.seal({**before, **changes["http_config"]})
            if "secret" in own:
                own |= {"previous_secret": held["secret"]}
            given = ", ".join(f"{name} = ${place}" for place, name in enumerate(own, 3))
            changed = ", secret_changed_at = now()" if "secret" in own else ""
            row: Mapping[str, Any] = await connection.fetchrow(
                f"update webhooks set {given}{changed}, updated_at = now()"
                " where bank = $1 and id = $2 returning *",
                held["bank"],
                id,
                *own.values(),
            )
            await _follow(connection, tenant, bank_id, row)
            return row

        return await self._view(bank_id, await write(self.pool, work))

    async def delete(self, tenant: str, bank_id: str, webhook_id: str) -> dict[str, Any]:
        """Ends a webhook with all that it was told or was to be told."""
        id = as_uuid(webhook_id, "webhook_id")

        async def work(connection: Connection) -> None:
            held = await _row(connection, tenant, bank_id, id, lock=True)
            await connection.execute(
                "delete from webhooks where bank = $1 and id = $2", held["bank"], id
            )
            await connection.execute(
                "delete from webhook_deliveries"
                " where tenant_id = $1 and bank_id = $2 and webhook_id = $3",
                tenant,
                bank_id,
                id,
            )

        await write(self.pool, work)
        return {"success": True}

    async def listed(
        self, tenant: str, bank_id: str, *, limit: int = 100, offset: int = 0
    ) -> dict[str, Any]:
        """{items, total, limit, offset}, oldest first."""
        limit, offset = page(limit, offset)

        async def work(connection: Connection) -> tuple[int, Sequence[Mapping[str, Any]]]:
            bank = (await banks.head_of(connection, tenant, bank_id)).bank
            total = await connection.fetchval("select count(*) from webhooks where bank = $1", bank)
            rows = await connection.fetch(
                "select * from webhooks where bank = $1 order by created_at, id limit $2 offset $3",
                bank,
                limit,
                offset,
            )
            return total, rows

        total, rows = await read(self.pool, work)
        items = [await self._view(bank_id, row) for row in rows]
        return listing("items", items, total, limit, offset)

    async def deliveries(
        self,
        tenant: str,
        bank_id: str,
        webhook_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """{items, next_cursor}, newest first; `cursor` is the next_cursor of the page before."""
        id = as_uuid(webhook_id, "webhook_id")
        after = None if cursor is None else _cursor(cursor)

        async def work(connection: Connection) -> Sequence[Mapping[str, Any]]:
            await _row(connection, tenant, bank_id, id)
            rows: Sequence[Mapping[str, Any]] = await connection.fetch(
                f"select {_KEPT} from webhook_deliveries"
                " where tenant_id = $1 and bank_id = $2 and webhook_id = $3"
                " and ($4::timestamptz is null or (created_at, id) < ($4, $5::uuid))"
                " order by created_at desc, id desc limit $6",
                tenant,
                bank_id,
                id,
                *(after or (None, None)),
                limit + 1,
            )
            return rows

        rows = await read(self.pool, work)
        shown = rows[:limit]
        more = len(rows) > limit and shown
        last = f"{iso(shown[-1]['created_at'])}|{shown[-1]['id']}" if more else None
        return {"items": [_delivery(row) for row in shown], "next_cursor": last}

    async def test(self, tenant: str, bank_id: str, webhook_id: str) -> dict[str, Any]:
        """Queues a delivery that tells nothing, also of a webhook that is switched off."""
        id = as_uuid(webhook_id, "webhook_id")

        async def work(connection: Connection) -> Mapping[str, Any]:
            held = await _row(connection, tenant, bank_id, id)
            event, now = uuid4(), await connection.fetchval("select now()")
            row: Mapping[str, Any] = await connection.fetchrow(
                "insert into webhook_deliveries (tenant_id, bank_id, id, webhook_id, event_id,"
                " event_type, url, receiver, body) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
                f" returning {_KEPT}",
                tenant,
                bank_id,
                uuid4(),
                id,
                event,
                TEST,
                held["url"],
                held["receiver"],
                body(bank_id, OutboxEvent(TEST, {}), event, now.isoformat()),
            )
            return row

        return _delivery(await write(self.pool, work))

    async def retry(
        self, tenant: str, bank_id: str, webhook_id: str, delivery_id: str
    ) -> dict[str, Any]:
        """Sends a delivery that has ended once more, from its first attempt on, to where the
        webhook leads now. Conflict while it has not ended, and where its body was erased."""
        id, delivery = as_uuid(webhook_id, "webhook_id"), as_uuid(delivery_id, "delivery_id")

        async def work(connection: Connection) -> Mapping[str, Any]:
            held = await _row(connection, tenant, bank_id, id)
            row = await connection.fetchrow(
                "select status, body is null as erased from webhook_deliveries where tenant_id = $1"
                " and bank_id = $2 and webhook_id = $3 and id = $4 for update",
                tenant,
                bank_id,
                id,
                delivery,
            )
            if row is None:
                raise NotFound(f"there is no delivery {delivery} of this webhook")
            if row["erased"]:
                raise Conflict(f"delivery {delivery} was erased")
            if row["status"] not in ("completed", "failed"):
                raise Conflict(f"delivery {delivery} is {row['status']}: it has not ended")
            again: Mapping[str, Any] = await connection.fetchrow(
                "update webhook_deliveries set status = 'pending', attempts = 0, last_error = null,"
                " next_attempt_at = now(), url = $4, receiver = $5, updated_at = now()"
                f" where tenant_id = $1 and bank_id = $2 and id = $3 returning {_KEPT}",
                tenant,
                bank_id,
                delivery,
                held["url"],
                held["receiver"],
            )
            return again

        return _delivery(await write(self.pool, work))

    async def _view(self, bank_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": str(row["id"]),
            "bank_id": bank_id,
            "url": row["url"],
            "secret": None,
            "event_types": row["event_types"],
            "enabled": row["enabled"],
            "http_config": await self.vault.open(row["http_config"]),
            "created_at": iso(row["created_at"]),
            "updated_at": iso(row["updated_at"]),
        }


async def _follow(
    connection: Connection, tenant: str, bank_id: str, hook: Mapping[str, Any]
) -> None:
    """What waits goes to where the webhook leads now, or nowhere where it is switched off."""
    await connection.execute(
        "update webhook_deliveries set url = $4, receiver = $5,"
        " status = case when $6 then status else 'failed' end,"
        " last_error = case when $6 then last_error else 'the webhook is off' end"
        " where tenant_id = $1 and bank_id = $2 and webhook_id = $3 and status = 'pending'",
        tenant,
        bank_id,
        hook["id"],
        hook["url"],
        hook["receiver"],
        hook["enabled"],
    )


async def _row(
    connection: Connection, tenant: str, bank_id: str, id: UUID, *, lock: bool = False
) -> Mapping[str, Any]:
    bank = (await banks.head_of(connection, tenant, bank_id)).bank
    row: Mapping[str, Any] | None = await connection.fetchrow(
        f"select * from webhooks where bank = $1 and id = $2{' for update' if lock else ''}",
        bank,
        id,
    )
    if row is None:
        raise NotFound(f"there is no webhook {id}")
    return row


def _cursor(text: str) -> tuple[datetime, UUID]:
    time, _, id = text.partition("|")
    try:
        moment = datetime.fromisoformat(time.replace(" ", "+"))
        found = moment, UUID(id)
    except ValueError:
        raise InvalidInput("cursor: take next_cursor of the page before", "cursor") from None
    if moment.tzinfo is None:
        raise InvalidInput("cursor: take next_cursor of the page before", "cursor")
    return found


def _delivery(row: Mapping[str, Any]) -> dict[str, Any]:
    pending = row["status"] in ("pending", "processing")
    return {
        "id": str(row["id"]),
        "event_id": str(row["event_id"]),
        "webhook_id": None if row["webhook_id"] is None else str(row["webhook_id"]),
        "url": row["url"],
        "event_type": row["event_type"],
        "status": row["status"],
        "attempts": row["attempts"],
        "next_retry_at": iso(row["next_attempt_at"]) if pending else None,
        "last_error": row["last_error"],
        "last_response_status": row["last_response_status"],
        "last_response_body": row["last_response_body"],
        "last_attempt_at": iso(row["last_attempt_at"]),
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
    }
