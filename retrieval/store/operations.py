"""Work that goes on in the background, as rows: a worker that dies loses nothing.

A worker claims one waiting operation at a time under a lease and renews it while it works. A lease
that ran out puts the operation back into the queue, but not for ever: whoever's lease runs out may
have been killed by the work. `finish` is part of the transaction that does the work, so it is done
once. Tenants take turns, and the operations that write one document go in the order in which they
were asked for. What is done loses its payload at once, what failed after a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from retrieval.errors import Conflict
from retrieval.store import banks, outbox
from retrieval.store.database.pool import Connection, Pool, write

LEASE_S = 60.0
MAX_RETRIES = 3
RETRY_WAIT_S = 5.0
"""Wait before the first retry; it doubles with each."""

DEATHS_MOST = 3
"""An operation whose process died so often while it had it has failed."""

_DIED = (
    "the process that worked on it died {} times: it is not tried again by itself, since it may be"
    " what killed them"
)

BANK_LANE = " "
"""The lane of what is done one at a time in a bank. No document can be called so."""


ERASE_LANE = " erase"
"""The lane of a bank's erasures: each scans all of it."""


def model_lane(model_id: str) -> str:
    """The lane of the refreshes of a mental model: no document is called so."""
    return f" mental model {model_id}"


_TOLD = frozenset({"retain", "consolidation", "erase"})
_MOVES = frozenset({"transfer_export", "transfer_import", "clone"})
"""Operations whose failure webhooks are told; of moves their success, too: whoever does another one
tells more of it than is known here."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An operation that is ours until its lease runs out. `retries`: earlier failures; `deaths`:
    how often the process that had it died."""

    operation_id: UUID
    tenant: str
    bank_id: str
    type: str
    payload: Mapping[str, Any]
    retries: int
    lease: UUID
    document_id: str | None = None
    deaths: int = 0
    place: int = 0


async def create(
    connection: Connection,
    bank: int,
    type: str,
    payload: Mapping[str, Any],
    *,
    operation_id: UUID | None = None,
    items_count: int = 0,
    document_id: str | None = None,
    lanes: Sequence[str] = (),
    wait_s: float = 0.0,
    place: int | None = None,
) -> tuple[UUID, bool]:
    """(operation id, made now). An id that exists in the bank with this type is that operation;
    Conflict if it is something else.

    `lanes`: the documents it writes; it waits for earlier operations that write one of them.
    `wait_s`: when it may begin, from now on. `place`: that of the operation it goes on from; else
    it goes behind all others.
    """
    id = operation_id or uuid4()
    place = await connection.fetchval(
        "insert into operations"
        " (operation_id, bank, type, payload, items_count, document_id, next_retry_at, place)"
        " values ($1, $2, $3, $4, $5, $6,"
        "  case when $7::float8 > 0 then now() + $7 * interval '1 second' end,"
        "  coalesce($8, nextval(pg_get_serial_sequence('operations', 'place'))))"
        " on conflict (bank, operation_id) do nothing"
        " returning place",
        id,
        bank,
        type,
        dict(payload),
        items_count,
        document_id,
        wait_s,
        place,
    )
    if place is None:
        found = await connection.fetchval(
            "select type from operations where bank = $1 and operation_id = $2", bank, id
        )
        if found != type:
            raise Conflict(f"operation_id {id} is in use for something else")
        return id, False
    await connection.execute(
        "insert into operation_lanes (bank, lane, place, operation_id)"
        " select distinct $1::bigint, lane, $2::bigint, $3::uuid from unnest($4::text[]) lane",
        bank,
        place,
        id,
        list(lanes),
    )
    return id, True


async def claim(
    pool: Pool,
    lease_s: float = LEASE_S,
    *,
    types: Sequence[str] | None = None,
    without: Sequence[str] = (),
    lately: Sequence[str] = (),
) -> Claim | None:
    """The next operation that waits, now leased to the caller; None if there is none.

    `types`: what the caller can do; None for everything. `without`: tenants who have to wait.
    `lately`: those who had their turn, the last one last.

    Oldest first within a tenant; the tenant with the fewest running comes first, and of those the
    one whose turn is longest ago. Nothing is claimed
    whose document an earlier operation has yet to write.
    """
    lease = uuid4()
    wanted = None if types is None else list(types)

    async def work(connection: Connection) -> Claim | None:
        await give_up(connection, wanted)
        row = await connection.fetchrow(
            "with running as (select b.tenant_id, count(*) as n from operations o"
            "  join banks b using (bank) where o.status = 'processing' and o.leased_until > now()"
            "  group by b.tenant_id),"
            " next as (select o.bank, o.operation_id from operations o join banks b using (bank)"
            "  left join running r on r.tenant_id = b.tenant_id"
            "  where ((o.status = 'pending' and coalesce(o.next_retry_at, now()) <= now())"
            "   or (o.status = 'processing' and o.leased_until <= now()))"
            "   and ($3::text[] is null or o.type = any($3)) and b.tenant_id <> all($4)"
            "   and not exists (select from operation_lanes mine join operation_lanes first"
            "    on first.bank = mine.bank and first.lane = mine.lane and first.place < mine.place"
            "    where mine.bank = o.bank and mine.operation_id = o.operation_id)"
            "  order by coalesce(r.n, 0), coalesce(array_position($5::text[], b.tenant_id), 0),"
            "   o.place"
            "  limit 1 for update of o skip locked)"
            " update operations o set status = 'processing', lease = $2,"
            "  deaths = deaths + (o.status = 'processing')::int,"
            "  leased_until = now() + $1 * interval '1 second', updated_at = now()"
            " from next, banks b where o.bank = next.bank and o.operation_id = next.operation_id"
            "  and b.bank = o.bank"
            " returning o.*, b.tenant_id, b.bank_id",
            lease_s,
            lease,
            wanted,
            list(without),
            list(lately),
        )
        if row is None:
            return None
        return Claim(
            row["operation_id"], row["tenant_id"], row["bank_id"], row["type"],
            row["payload"], row["retry_count"], lease, row["document_id"], row["deaths"],
            row["place"],
        )  # fmt: skip

    return await write(pool, work)


async def give_up(connection: Connection, types: Sequence[str] | None) -> None:
    """Ends operations that outlived too many of those who worked on them."""
    await connection.execute(
        "with dead as (select bank, operation_id from operations"
        "  where status = 'processing' and leased_until <= now() and deaths + 1 >= $1"
        "   and ($2::text[] is null or type = any($2)) for update skip locked),"
        " failed as (update operations o set status = 'failed', deaths = deaths + 1,"
        "   error_message = $3, lease = null, leased_until = null, updated_at = now()"
        "  from dead where o.bank = dead.bank and o.operation_id = dead.operation_id)"
        " delete from operation_lanes l using dead"
        " where l.bank = dead.bank and l.operation_id = dead.operation_id",
        DEATHS_MOST,
        types,
        _DIED.format(DEATHS_MOST),
    )


async def deadly(connection: Connection, bank: int, type: str, model: str | None = None) -> bool:
    """Did the newest operation of this type (and on this mental model) fail because its processes
    died? Then nobody begins another one unasked."""
    found = await connection.fetchval(
        "select status = 'failed' and deaths >= $4 from operations where bank = $1 and type = $2"
        " and ($3::text is null or $3 = coalesce("  # what is done has no payload any more
        "  payload->>'mental_model_id', result_metadata->>'mental_model_id'))"
        " order by place desc limit 1",
        bank,
        type,
        model,
        DEATHS_MOST,
    )
    return bool(found)


async def renew(
    pool: Pool,
    claimed: Claim,
    lease_s: float = LEASE_S,
    progress: Mapping[str, Any] | None = None,
) -> bool:
    """Keeps the operation ours, and says how far it is; False if it no longer is ours."""

    async def work(connection: Connection) -> bool:
        held = await connection.fetchval(
            "update operations set leased_until = now() + $3 * interval '1 second',"
            " progress = coalesce($4, progress)"
            " where operation_id = $1 and lease = $2 and status = 'processing' returning true",
            claimed.operation_id,
            claimed.lease,
            lease_s,
            None if progress is None else dict(progress),
        )
        return bool(held)

    return await write(pool, work)


async def finish(
    connection: Connection,
    claimed: Claim,
    result: Mapping[str, Any] | None = None,
    progress: Mapping[str, Any] | None = None,
) -> None:
    """Completes the operation inside the transaction that did its work. `progress`: its last.

    Conflict, which undoes that work, if the operation is not ours any more: somebody else does it,
    or it was cancelled.
    """
    bank = await connection.fetchval(
        "update operations set status = 'completed', result_metadata = $3, error_message = null,"
        " progress = coalesce($4, progress), payload = '{}', leased_until = null, lease = null,"
        " updated_at = now()"
        " where operation_id = $1 and lease = $2 and status = 'processing' returning bank",
        claimed.operation_id,
        claimed.lease,
        None if result is None else dict(result),
        None if progress is None else dict(progress),
    )
    if bank is None:
        raise Conflict(f"operation {claimed.operation_id} was taken over or cancelled")
    await leave_lanes(connection, bank, claimed.operation_id)
    if claimed.type in _MOVES:
        await _tell(connection, bank, claimed, {"operation": claimed.type}, "completed")


async def _tell(
    connection: Connection, bank: int, claimed: Claim, data: Mapping[str, Any], status: str
) -> None:
    """Queues the event of an operation's end for webhooks; where the bank is given up, nobody's."""
    row = await connection.fetchrow(
        f"select {banks.HEAD_COLUMNS} from banks where bank = $1 and state <> 'abandoned'", bank
    )
    if row is not None:
        event = f"{'transfer' if claimed.type in _MOVES else claimed.type}.completed"
        told = outbox.OutboxEvent(event, data, claimed.operation_id, status)
        await outbox.emit(connection, banks.as_head(row, building=True), [told])


async def leave_lanes(connection: Connection, bank: int, id: UUID) -> None:
    await connection.execute(
        "delete from operation_lanes where bank = $1 and operation_id = $2", bank, id
    )


async def proceed(
    connection: Connection, claimed: Claim, progress: Mapping[str, Any] | None = None
) -> None:
    """Makes sure, inside a transaction that does a part of the work, that it is still ours.

    Conflict, which undoes that part, if somebody else does it, or it was cancelled.
    """
    held = await connection.fetchval(
        "update operations set progress = coalesce($3, progress)"
        " where operation_id = $1 and lease = $2 and status = 'processing' returning true",
        claimed.operation_id,
        claimed.lease,
        None if progress is None else dict(progress),
    )
    if not held:
        raise Conflict(f"operation {claimed.operation_id} was taken over or cancelled")


async def release(
    pool: Pool,
    claimed: Claim,
    wait_s: float = 0.0,
    message: str | None = None,
    progress: Mapping[str, Any] | None = None,
) -> None:
    """Puts an operation that was not done back into the queue, for `wait_s` from now on, which
    costs no attempt. `message`: what it waits for; `progress`: how far it is, if it does not begin
    anew."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update operations set status = 'pending', leased_until = null, lease = null,"
            " next_retry_at = case when $3 > 0 then now() + $3 * interval '1 second' end,"
            " error_message = coalesce($4, error_message), progress = coalesce($5, progress),"
            " updated_at = now()"
            " where operation_id = $1 and lease = $2 and status = 'processing'",
            claimed.operation_id,
            claimed.lease,
            wait_s,
            message,
            None if progress is None else dict(progress),
        )

    await write(pool, work)


async def end_failed(
    connection: Connection, claimed: Claim, message: str, result: Mapping[str, Any]
) -> None:
    """Ends the operation as failed, inside the transaction that notes what went wrong elsewhere.
    Conflict as of `finish`."""
    bank = await connection.fetchval(
        "update operations set status = 'failed', result_metadata = $3, error_message = $4,"
        " leased_until = null, lease = null, next_retry_at = null, updated_at = now()"
        " where operation_id = $1 and lease = $2 and status = 'processing' returning bank",
        claimed.operation_id,
        claimed.lease,
        dict(result),
        message or "unknown error",
    )
    if bank is None:
        raise Conflict(f"operation {claimed.operation_id} was taken over or cancelled")
    await leave_lanes(connection, bank, claimed.operation_id)


async def fail(
    pool: Pool, claimed: Claim, message: str, *, again: bool, died: bool = False
) -> None:
    """Records a failure; with `again` it is retried later, MAX_RETRIES times.

    `died`: the process that did the work is gone, which may happen DEATHS_MOST times.
    """
    retry = again and claimed.retries < MAX_RETRIES
    if died and claimed.deaths + 1 >= DEATHS_MOST:
        retry, message = False, f"{_DIED.format(claimed.deaths + 1)}: {message}"
    wait_s = RETRY_WAIT_S * 2**claimed.retries

    async def work(connection: Connection) -> None:
        bank = await connection.fetchval(
            "update operations set status = $3, error_message = $4, leased_until = null,"
            " lease = null, updated_at = now(), retry_count = retry_count + $5,"
            " next_retry_at = case when $6 then now() + $7 * interval '1 second' end,"
            " deaths = deaths + $8"
            " where operation_id = $1 and lease = $2 and status = 'processing' returning bank",
            claimed.operation_id,
            claimed.lease,
            "pending" if retry else "failed",
            message or "unknown error",
            1 if retry else 0,
            retry,
            wait_s,
            int(died),
        )
        if bank is not None and not retry:
            await leave_lanes(connection, bank, claimed.operation_id)
            if claimed.type in _TOLD:
                data = {"document_id": claimed.document_id}
                await _tell(connection, bank, claimed, data, "failed")
            elif claimed.type in _MOVES:
                await _tell(connection, bank, claimed, {"operation": claimed.type}, "failed")

    await write(pool, work)
