"""A bank copied inside the database: rows and segments, ordinals and ids as they are. Nothing is
read, nothing is embedded; one transaction sees the source as it was at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from retrieval.ingest.context import WriteContext
from retrieval.lifecycle.transfer import watchers
from retrieval.lifecycle.transfer.archive import ArchiveContents
from retrieval.lifecycle.transfer.contents import COPIED, COPIED_CONFIG
from retrieval.lifecycle.transfer.exporting import Report, no_report
from retrieval.lifecycle.transfer.inserting import columns
from retrieval.lifecycle.transfer.restoring import counts
from retrieval.lifecycle.transfer.storing import TargetBank
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks, building, operations, planner
from retrieval.store.database.pool import Connection, read, write
from retrieval.store.operations import Claim

STATEMENT_S: Final = 6 * 3600.0
"""Most seconds of one table's copy."""

_ORDER: Final = {"document_history": " order by place", "mental_model_history": " order by entry"}
_HEAD: Final = (
    "next_ordinal, next_entity, next_tag, next_document, vector_set, analyser, generation,"
    " version, name_folding, last_write_at, last_document_at, attached"
)
_CONFIG: Final = "mission, disposition, config"


async def clone(
    deps: WriteContext,
    claimed: Claim,
    source: int,
    bank: int,
    include: ArchiveContents,
    report: Report = no_report,
    *,
    keys: Sequence[str] = (),
) -> dict[str, Any]:
    """Fills the reserved bank with what the source holds, and opens it: the counts. `keys`: those
    of what webhooks keep sealed."""
    vault = Vault(deps.pool, keys)
    row = await read(
        deps.pool,
        lambda c: c.fetchrow("select bank_id, building from banks where bank = $1", bank),
    )
    await report("copying", 0, 0)
    if row["building"] is None:
        name = row["bank_id"]
        await write(deps.pool, lambda c: _copy(c, claimed, source, bank, name, include, vault))
    target = TargetBank(bank, claimed.tenant, row["bank_id"], deps.settings, vault)

    async def work(connection: Connection) -> tuple[dict[str, Any], Any]:
        counted = await counts(connection, target, include)
        await operations.finish(connection, claimed, counted)
        held = await building.lock(connection, bank, claimed)
        await building.open_bank(connection, bank, held["version"])
        return counted, await banks.head_of(connection, claimed.tenant, row["bank_id"])

    await planner.inform(deps.pool, bank)
    counted, head = await write(deps.pool, work)
    deps.committed(head)
    return counted


async def _copy(
    connection: Connection,
    claimed: Claim,
    source: int,
    bank: int,
    bank_id: str,
    include: ArchiveContents,
    vault: Vault,
) -> None:
    # The operation's own row stays out of this: its lease is renewed meanwhile, and a snapshot
    # that is older than that could not commit.
    await connection.execute("set transaction isolation level repeatable read")
    await connection.execute("set local statement_timeout = 0")
    for table in (
        *(COPIED if include.data else ()),
        *(COPIED_CONFIG if include.bank_config else ()),
    ):
        await _table(connection, table, source, bank, bank_id)
    if include.bank_config:
        await watchers.clone_webhooks(connection, source, bank, vault)
    if include.history:
        await _history(connection, claimed.tenant, source, bank, bank_id)
    if not include.data:
        await connection.execute(
            "update mental_models set watermark = 0, parked_at = null where bank = $1", bank
        )
    names = ["name", "created_at"]
    names += _HEAD.split(", ") if include.data else ["name_folding"]
    names += _CONFIG.split(", ") if include.bank_config else []
    sets = ", ".join(f"{name} = s.{name}" for name in names)
    await connection.execute(
        f"update banks b set {sets}, building = '{{\"copied\": true}}' from banks s"
        " where b.bank = $1 and s.bank = $2 and b.state = 'importing'",
        bank,
        source,
    )
    await connection.execute(
        "update banks set search_key = $2 where bank = $1",
        bank,
        banks.search_key(
            bank_id, await connection.fetchval("select name from banks where bank = $1", bank)
        ),
    )


async def _table(connection: Connection, table: str, source: int, bank: int, bank_id: str) -> None:
    """All rows of a table. Chunks, and what refers to them, are called after their bank."""
    names = sorted(await columns(connection, table) - {"bank"})
    chunk = "c.document_id || '_' || c.chunk_index"
    values = {name: f't."{name}"' for name in names}
    if table == "chunks":
        values["chunk_id"] = f"$3 || '_' || {chunk.replace('c.', 't.')}"
    elif table == "memory_units":
        values["chunk_id"] = (
            f"(select $3 || '_' || {chunk} from chunks c"
            " where c.bank = t.bank and c.chunk_id = t.chunk_id)"
        )
    quoted = ", ".join(f'"{name}"' for name in names)
    given = ", ".join(values[name] for name in names)
    await connection.execute(
        f"insert into {table} (bank, {quoted}) select $1::bigint, {given} from {table} t"
        f" where t.bank = $2 and $3::text is not null{_ORDER.get(table, '')}",
        bank,
        source,
        bank_id,
        timeout=STATEMENT_S,
    )


async def _history(
    connection: Connection, tenant: str, source: int, bank: int, bank_id: str
) -> None:
    """What was done, without what operations were given."""
    names = sorted(
        await columns(connection, "operations")
        - {"bank", "payload", "lease", "leased_until", "place", "next_retry_at"}
    )
    quoted = ", ".join(f'"{name}"' for name in names)
    await connection.execute(
        f"insert into operations (bank, payload, {quoted}) select $1, '{{}}', {quoted}"
        " from operations where bank = $2 and status in ('completed', 'failed', 'cancelled')"
        " order by place",
        bank,
        source,
        timeout=STATEMENT_S,
    )
    names = sorted(await columns(connection, "llm_requests") - {"id", "tenant_id", "bank_id"})
    quoted = ", ".join(f'"{name}"' for name in names)
    await connection.execute(
        f"insert into llm_requests (id, tenant_id, bank_id, {quoted})"
        f" select gen_random_uuid(), $1, $2, {quoted} from llm_requests"
        " where tenant_id = $1 and bank_id = (select bank_id from banks where bank = $3)",
        tenant,
        bank_id,
        source,
        timeout=STATEMENT_S,
    )
    name = await connection.fetchval("select bank_id from banks where bank = $1", source)
    await watchers.clone_audit_entries(connection, tenant, name, bank_id, STATEMENT_S)
