"""What calls to language models cost, and what was said in them.

Sums per tenant, day, bank, operation and model are always kept. Texts are kept only where the
operator wants traces, for days, cut to a length, with what looks like a credential taken out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from retrieval.errors import InvalidInput, RateLimited
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import as_uuid, iso, listing, page, parse_time

PERIODS = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}

_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abposr])[-_][A-Za-z0-9_-]{12,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}|\bey[JK][\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
    r"|(?<=[Bb]earer )[\w.~+/-]{12,}=*"
)


@dataclass(frozen=True, slots=True)
class LLMCall:
    """One call, as it went. `error` "" where it was answered. `about`: scope, trace_id,
    document_id, as far as they are known."""

    tenant: str
    bank_id: str
    operation: str
    provider: str
    model: str
    started_at: datetime
    seconds: float
    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    thoughts_tokens: int
    messages: Sequence[Mapping[str, Any]]
    answer: str = ""
    calls: Sequence[str] = ()
    error: str = ""
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.thoughts_tokens


def seconds_to_midnight(now: datetime) -> float:
    """Until the next day in UTC, when budgets start over."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day + timedelta(days=1) - now).total_seconds()


async def reserve(pool: Pool, tenant: str, tokens: int, limit: int, now: datetime) -> None:
    """Sets tokens of today's budget aside. RateLimited, until midnight in UTC, where they do not
    fit; a tenant who has used nothing may always make one call."""

    async def work(connection: Connection) -> bool:
        return bool(
            await connection.fetchval(
                "insert into llm_budgets as b (tenant_id, day, reserved) values ($1, $2, $3)"
                " on conflict (tenant_id, day) do update set reserved = b.reserved + $3"
                " where b.used + b.reserved + $3 <= $4 or b.used + b.reserved = 0"
                " returning true",
                tenant,
                now.astimezone(UTC).date(),
                tokens,
                limit,
            )
        )

    if not await write(pool, work):
        raise RateLimited(
            f"this tenant's budget of {limit} language model tokens a day is used up",
            seconds_to_midnight(now),
        )


async def settle(
    pool: Pool,
    call: LLMCall,
    reserved: int | None,
    *,
    traced: bool = False,
    max_chars: int = 50_000,
) -> None:
    """Books a call: its cost in place of what was reserved (None: there is no budget), and its
    sums."""
    day = call.started_at.astimezone(UTC).date()

    async def work(connection: Connection) -> None:
        if reserved is not None:
            await connection.execute(
                "insert into llm_budgets as b (tenant_id, day, used) values ($1, $2, $3)"
                " on conflict (tenant_id, day) do update set used = b.used + $3,"
                " reserved = greatest(0, b.reserved - $4)",
                call.tenant,
                day,
                call.tokens,
                reserved,
            )
        await connection.execute(
            "insert into llm_usage as u values ($1, $2, $3, $4, $5, 1, $6, $7, $8, $9, $10, $11)"
            " on conflict (tenant_id, day, bank_id, operation, model) do update set"
            " calls = u.calls + 1, failed = u.failed + $6, requests = u.requests + $7,"
            " input_tokens = u.input_tokens + $8, output_tokens = u.output_tokens + $9,"
            " cached_tokens = u.cached_tokens + $10, thoughts_tokens = u.thoughts_tokens + $11",
            call.tenant,
            day,
            call.bank_id,
            call.operation,
            call.model,
            int(bool(call.error)),
            call.requests,
            call.input_tokens,
            call.output_tokens,
            call.cached_tokens,
            call.thoughts_tokens,
        )
        if traced:
            await _trace(connection, call, max_chars)

    await write(pool, work)


async def _trace(connection: Connection, call: LLMCall, max_chars: int) -> None:
    answer = "\n".join([call.answer, *call.calls]).strip()
    await connection.execute(
        "insert into llm_requests (id, tenant_id, bank_id, operation, scope, trace_id,"
        " document_id, provider, model, status, error, started_at, duration_ms, requests,"
        " input_tokens, output_tokens, cached_tokens, thoughts_tokens, input, output)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
        " $19, $20)",
        uuid4(),
        call.tenant,
        call.bank_id,
        call.operation,
        call.about.get("scope", ""),
        call.about.get("trace_id", ""),
        call.about.get("document_id"),
        call.provider,
        call.model,
        "error" if call.error else "success",
        _shown(call.error, 2000) or None,
        call.started_at,
        int(call.seconds * 1000),
        call.requests,
        call.input_tokens,
        call.output_tokens,
        call.cached_tokens,
        call.thoughts_tokens,
        _shortened(call.messages, max_chars),
        _shown(answer, max_chars),
    )


def _shown(text: str, most: int) -> str:
    """What may be kept of a text."""
    text = text[: most + 200].replace("\x00", "").encode("utf-8", "replace").decode()
    text = _SECRET.sub("[removed]", text)
    return text if len(text) <= most else text[:most] + "…"


def _shortened(messages: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, str]]:
    kept, left = [], most
    for message in messages:
        text = _shown(str(message.get("content") or ""), max(0, left))
        left -= len(text)
        kept.append({"role": str(message.get("role", "")), "content": text})
    return kept


async def forget(pool: Pool, *, requests_before: datetime, ledger_before: datetime) -> None:
    """Ends texts and ledger entries that are older; days of budgets that are over."""

    async def work(connection: Connection) -> None:
        await connection.execute("delete from llm_requests where started_at < $1", requests_before)
        await connection.execute(
            "delete from extraction_ledger where created_at < $1", ledger_before
        )
        await connection.execute(
            "delete from llm_budgets where day < (now() at time zone 'utc')::date - 7"
        )

    await write(pool, work)


# The API's views


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which calls a list shows; None: all."""

    status: str | None = None
    operation: str | None = None
    scope: str | None = None
    provider: str | None = None
    trace_id: str | None = None
    document_id: str | None = None
    memory_id: str | None = None
    """Calls about the document that this memory is of."""
    start_date: str | None = None
    end_date: str | None = None
    call_type: str | None = None
    """embedding, rerank, decision or llm; only those of language models are kept."""


async def list_requests(
    pool: Pool,
    tenant: str,
    bank_id: str,
    shown: RequestFilter = RequestFilter(),
    *,
    grouped: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> dict[str, Any]:
    """{bank_id, total, limit, offset, items}, newest first; empty where nothing is traced.

    `grouped` counts and pages whole runs of an operation instead of calls.
    """
    limit, offset = page(limit, offset, 500)
    start = None if shown.start_date is None else parse_time(shown.start_date, "start_date")
    end = None if shown.end_date is None else parse_time(shown.end_date, "end_date")
    memory = None if shown.memory_id is None else as_uuid(shown.memory_id, "memory_id")
    where = (
        "tenant_id = $1 and bank_id = $2 and ($3::text is null or status = $3)"
        " and ($4::text is null or operation = $4) and ($5::text is null or scope = $5)"
        " and ($6::text is null or provider = $6) and ($7::text is null or trace_id = $7)"
        " and ($8::text is null or document_id = $8)"
        " and ($9::timestamptz is null or started_at >= $9)"
        " and ($10::timestamptz is null or started_at < $10)"
        " and coalesce($11, 'llm') = 'llm'"
        " and ($12::uuid is null or document_id = (select m.document_id from memory_units m"
        "  join banks b using (bank)"
        "  where b.tenant_id = $1 and b.bank_id = $2 and m.id = $12))"
    )
    values = (
        tenant, bank_id, shown.status, shown.operation, shown.scope, shown.provider,
        shown.trace_id, shown.document_id, start, end, shown.call_type, memory,
    )  # fmt: skip
    unit = "coalesce(nullif(trace_id, ''), id::text)" if grouped else "id::text"

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.head_of(connection, tenant, bank_id)
        total = await connection.fetchval(
            f"select count(distinct {unit}) from llm_requests where {where}", *values
        )
        rows = await connection.fetch(
            f"with found as (select *, {unit} as unit from llm_requests where {where}),"
            " shown as (select unit, max(started_at) as latest from found group by unit"
            "  order by latest desc, unit limit $13 offset $14)"
            " select found.* from found join shown using (unit)"
            " order by shown.latest desc, unit, started_at desc, id",
            *values,
            limit,
            offset,
        )
        found = [_view(row) for row in rows]
        return {"bank_id": bank_id, **listing("items", found, total, limit, offset)}

    return await read(pool, work)


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    ended = row["started_at"] + timedelta(milliseconds=row["duration_ms"])
    return {
        "id": str(row["id"]),
        "bank_id": row["bank_id"],
        "operation": row["operation"],
        "scope": row["scope"] or row["operation"],
        "trace_id": row["trace_id"] or None,
        "span_id": None,
        "parent_span_id": None,
        "provider": row["provider"],
        "model": row["model"],
        "status": row["status"],
        "started_at": iso(row["started_at"]),
        "ended_at": iso(ended),
        "duration_ms": row["duration_ms"],
        "input_tokens": row["input_tokens"],
        "output_tokens": row["output_tokens"],
        "cached_tokens": row["cached_tokens"],
        "thoughts_tokens": row["thoughts_tokens"],
        "total_tokens": row["input_tokens"] + row["output_tokens"],
        "input": row["input"],
        "output": row["output"],
        "error": row["error"],
        "llm_info": {"requests": row["requests"]},
        "metadata": {} if row["document_id"] is None else {"document_id": row["document_id"]},
    }


async def stats(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    period: str = "7d",
    operation: str | None = None,
    call_type: str | None = None,
    now: datetime,
) -> dict[str, Any]:
    """Calls of a period in buckets of an hour (1d) or a day: {bank_id, period, trunc, start,
    buckets}. InvalidInput for another period."""
    if period not in PERIODS:
        raise InvalidInput(f"period must be one of {', '.join(PERIODS)}", "period")
    trunc = "hour" if period == "1d" else "day"
    start = now - PERIODS[period]

    async def work(connection: Connection) -> Sequence[Mapping[str, Any]]:
        await banks.head_of(connection, tenant, bank_id)
        return await connection.fetch(  # type: ignore[no-any-return]
            "select date_trunc($4, started_at, 'UTC') as time, status, count(*) as n,"
            " sum(input_tokens)::bigint as input, sum(output_tokens)::bigint as output,"
            " sum(cached_tokens)::bigint as cached, sum(thoughts_tokens)::bigint as thoughts"
            " from llm_requests where tenant_id = $1 and bank_id = $2 and started_at >= $3"
            " and ($5::text is null or operation = $5) and coalesce($6, 'llm') = 'llm'"
            " group by 1, 2 order by 1",
            tenant,
            bank_id,
            start,
            trunc,
            operation,
            call_type,
        )

    buckets: dict[str, dict[str, Any]] = {}
    for row in await read(pool, work):
        time = iso(row["time"]) or ""
        bucket = buckets.setdefault(
            time,
            {
                "time": time,
                "statuses": {},
                "total": 0,
                "tokens": dict.fromkeys(("input", "output", "cached", "thoughts", "total"), 0),
            },
        )
        bucket["statuses"][row["status"]] = row["n"]
        bucket["total"] += row["n"]
        for name in ("input", "output", "cached", "thoughts"):
            bucket["tokens"][name] += row[name]
        bucket["tokens"]["total"] += row["input"] + row["output"]
    return {
        "bank_id": bank_id,
        "period": period,
        "trunc": trunc,
        "start": iso(start),
        "buckets": list(buckets.values()),
    }
