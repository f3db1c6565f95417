"""An erasure as an operation: taken away, compacted, let go of everywhere, and looked for again.

It may die at any point: what it took away is noted in the transaction that did, with ids in place
of the words that it was asked with, and the rest is done again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from retrieval.errors import InvalidInput
from retrieval.ingest.context import WriteContext
from retrieval.ingest.operations.parking import Parked
from retrieval.ingest.operations.worker import Handler
from retrieval.ingest.write.transaction import Change
from retrieval.lifecycle.erasure import proof, replicas
from retrieval.lifecycle.erasure.removal import Erased, Observations, remove
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.lifecycle.erasure.settling import settle
from retrieval.store import banks, erasure, operations, outbox
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.database.upkeep import keep_up
from retrieval.store.operations import Claim
from retrieval.store.waiting import check_room

ERASE, PURGE = "erase", "purge"
EARLIER_S = 3600.0
"""How long an erasure waits for contents that came before it."""
_STORING = ("retain", "file_convert_retain", "reprocess")

MOST_WAITING = 100
"""Erasures of one tenant that wait: each looks through its bank twice, and has every process let go
of what it holds."""

SCANS = 3
"""What is found behind is taken away again, so often."""
_NAMED = 1_000
"""Ids of documents and observations that a report has."""

_VACUUMED = (
    "memory_units", "chunks", "documents", "attachments", "attachment_parts",
    "entities", "entity_aliases", "unit_entities", "links",
    "segments", "operations", "llm_requests", "mental_models", "mental_model_history",
    "observation_history", "audit_logs", "webhook_deliveries", "extraction_ledger",
)  # fmt: skip


async def submit(
    pool: Pool,
    tenant: str,
    bank_id: str,
    wanted: Selectors,
    observations: Observations = "delete",
    *,
    kind: str = ERASE,
) -> dict[str, Any]:
    """Queues an erasure: {operation_id, status}. It waits for what was to be written earlier to the
    documents that it names, and for earlier erasures of the bank. NotFound; RateLimited where the
    tenant has MOST_WAITING of them."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await check_room(connection, bank)
        await check_room(connection, bank, (ERASE, PURGE), MOST_WAITING)
        made, _ = await operations.create(
            connection,
            bank,
            kind,
            {"selectors": wanted.wire(), "observations": observations},
            lanes=[*wanted.document_ids, operations.ERASE_LANE],
        )
        return {"operation_id": str(made), "status": "pending"}

    return await write(pool, work)


def invalidated(older_than_days: float) -> Selectors:
    """What was invalidated so many days ago."""
    before = datetime.now(UTC) - timedelta(days=older_than_days)
    return Selectors(invalidated_before=before.isoformat())


@dataclass(frozen=True, slots=True)
class Eraser:
    """Does operations of the types ERASE and PURGE. `signing_key` signs reports. `lost_s`: see
    replicas.LOST_S."""

    signing_key: str | None = None
    lost_s: float = replicas.LOST_S

    async def __call__(self, deps: WriteContext, claimed: Claim) -> None:
        started = datetime.now(UTC)
        payload = claimed.payload
        if "erased" in payload:
            erased = Erased.of(payload["erased"])
        elif "selectors" in payload:
            await _earlier(deps.pool, claimed)
            erased = await self._remove(deps, claimed)
        else:
            raise InvalidInput("it does not keep what it was to erase any more: ask again")
        for _ in range(SCANS):
            await settle(deps, claimed.tenant, claimed.bank_id)
            found = await self._again(deps, claimed, erased)
            if not found:
                break
        await replicas.announce(deps.pool)
        reached = await replicas.acknowledged(deps.pool, lost_s=self.lost_s)
        vacuumed = await keep_up(deps.pool, "vacuum", _VACUUMED)
        head = await banks.head(deps.pool, claimed.tenant, claimed.bank_id)
        report = {
            "counts": erased.counts,
            "kept_observations": list(erased.kept_observations)[:_NAMED],
            "documents_shortened": list(erased.shortened)[:_NAMED],
            "documents_emptied": list(erased.emptied)[:_NAMED],
            "bank_says": list(erased.own),
            "generation": head.generation,
            "replicas": {"acknowledged": reached.swept, "gone": reached.gone},
            "vacuumed": vacuumed,
            "remaining": sum(found.values()),
            "remaining_in": found,
            "erased_at": erased.at,
            "started_at": started.isoformat(),
            "finished_at": datetime.now(UTC).isoformat(),
        }
        await write(deps.pool, lambda c: self._end(c, claimed, self._signed(report)))

    async def _remove(self, deps: WriteContext, claimed: Claim) -> Erased:
        async def also(change: Change, erased: Erased) -> None:
            await operations.proceed(change.connection, claimed, {"stage": "erased"})
            await change.connection.execute(
                "update operations set payload = $3 where bank = $1 and operation_id = $2",
                change.bank,
                claimed.operation_id,
                {"erased": erased.wire()},
            )

        return await remove(
            deps,
            claimed.tenant,
            claimed.bank_id,
            Selectors.of(claimed.payload["selectors"]),
            claimed.payload["observations"],
            also,
            claimed.operation_id,
        )

    async def _again(self, deps: WriteContext, claimed: Claim, erased: Erased) -> Mapping[str, int]:
        """What the second scan finds."""
        head = await banks.head(deps.pool, claimed.tenant, claimed.bank_id)
        await write(
            deps.pool,
            lambda connection: erasure.forget_payloads(connection, head.bank, erased.documents),
        )
        return await proof.remaining(deps.pool, head, erased)

    def _signed(self, report: Mapping[str, Any]) -> dict[str, Any]:
        packed = orjson.dumps(report, option=orjson.OPT_SORT_KEYS)
        signed = {**report, "digest": hashlib.sha256(packed).hexdigest()}
        if self.signing_key is not None:
            key = self.signing_key.encode()
            signed["signature"] = hmac.new(key, packed, hashlib.sha256).hexdigest()
        return signed

    @staticmethod
    async def _end(connection: Connection, claimed: Claim, report: Mapping[str, Any]) -> None:
        head = await banks.head_of(connection, claimed.tenant, claimed.bank_id)
        if report["remaining"]:
            places = ", ".join(f"{name}: {n}" for name, n in report["remaining_in"].items())
            await operations.end_failed(
                connection, claimed, f"something is still there ({places})", report
            )
            status = "failed"
        else:
            await operations.finish(connection, claimed, report)
            status = "completed"
        data = {name: report[name] for name in ("counts", "remaining", "digest")}
        event = outbox.OutboxEvent("erase.completed", data, claimed.operation_id, status)
        await outbox.emit(connection, head, [event])


async def _earlier(pool: Pool, claimed: Claim) -> None:
    """Parked while contents that came before the erasure are still to be stored."""
    waits = await read(
        pool,
        lambda connection: connection.fetchval(
            "select exists (select from operations o join operations own on own.bank = o.bank"
            " where own.operation_id = $1 and own.lease = $2 and o.place < own.place"
            " and o.status in ('pending', 'processing') and o.type = any($3)"
            " and own.created_at > now() - $4 * interval '1 second')",
            claimed.operation_id,
            claimed.lease,
            list(_STORING),
            EARLIER_S,
        ),
    )
    if waits:
        raise Parked("contents that came earlier are still to be stored", 1.0)


def handlers(eraser: Eraser) -> Mapping[str, Handler]:
    """For a Worker."""
    return {ERASE: eraser, PURGE: eraser}


async def erase_tenant(pool: Pool, tenant: str, note: erasure.Note | None = None) -> dict[str, int]:
    """Ends a tenant: keys first, which stop working within seconds, then every bank, then what is
    kept by his name. {banks, keys}."""
    keys = await write(pool, lambda c: _revoked(c, tenant))
    rows = await read(
        pool, lambda c: c.fetch("select bank_id from banks where tenant_id = $1", tenant)
    )
    for row in rows:
        await banks.delete(pool, tenant, row["bank_id"], note=note)

    async def rest(connection: Connection) -> None:
        for table in (
            "llm_requests", "llm_usage", "llm_budgets", "extraction_ledger", "audit_logs",
            "webhook_deliveries", "document_turns", "usage", "api_keys", "tenants",
        ):  # fmt: skip
            await connection.execute(f"delete from {table} where tenant_id = $1", tenant)

    await write(pool, rest)
    await keep_up(pool, "vacuum", _VACUUMED)
    return {"banks": len(rows), "keys": keys}


async def _revoked(connection: Connection, tenant: str) -> int:
    status: str = await connection.execute(
        "update api_keys set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1", tenant
    )
    return int(status.rpartition(" ")[2])
