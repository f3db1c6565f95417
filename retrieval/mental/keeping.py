"""What is kept of a refresh, in one transaction with the end of its operation; and its account."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from retrieval.errors import Conflict
from retrieval.mental.refresh import ERROR, FULLS_FAILED, NOT_APPLIED, PRESERVED, WRITTEN, Result
from retrieval.settings.mental import MentalSettings
from retrieval.store import banks, citations, mental_models
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.edge import iso
from retrieval.store.mental_models import MentalModelRow
from retrieval.store.refreshes import REFRESH

Also = Callable[[Connection], Awaitable[None]]
"""What else belongs to the transaction."""


async def keep(pool: Pool, result: Result, settings: MentalSettings, also: Also) -> None:
    """Stores a refresh that did not fail.

    Conflict, and nothing is stored, where the model, or a memory that the text rests on, was
    changed or removed while it ran. NotFound where the model or its bank is gone."""

    async def work(connection: Connection) -> None:
        held = await _held(connection, result)
        taken, new = result.snapshot, result.document
        if new is not None and result.outcome != PRESERVED:
            cites = {one.id for one in result.sources if one.is_memory} & new.cites
            there = await citations.live(connection, held.bank, cites)
            missing = cites - there.keys()
            stale = {id for id, one in taken.cited.items() if id in there
                     and there[id].text != one.text}  # fmt: skip
            if missing or stale:
                raise Conflict("memories that the document rests on were changed meanwhile")
        await _store(connection, held, result, settings)
        await also(connection)

    await write(pool, work)


async def _held(connection: Connection, result: Result) -> MentalModelRow:
    """The model's row, locked, if it is still what the refresh started from."""
    before, head = result.snapshot.model, result.snapshot.head
    now = await banks.head_of(connection, head.tenant, head.bank_id)
    held = await mental_models.model(connection, now.bank, before.id, lock=True)
    if (now.bank, held.revision) != (before.bank, before.revision):
        raise Conflict(f"mental model {before.id!r} was changed while it was refreshed")
    if now.generation != head.generation:
        raise Conflict("the bank's memories were given new ordinals meanwhile")
    return held


async def _store(
    connection: Connection, held: MentalModelRow, result: Result, settings: MentalSettings
) -> None:
    taken, new = result.snapshot, result.document
    if result.outcome == WRITTEN and settings.enable_mental_model_history:
        most = settings.mental_model_history_max_entries
        await citations.remember(connection, held.bank, held.id, held.content, most)
    preserved = result.outcome == PRESERVED
    response: Mapping[str, Any] | None = held.reflect_response
    if new is not None and (not preserved or response is not None):
        response = _response(result, response or {})
    elif response is not None:
        response = {**response, "refresh_skipped": preserved}
    rewritten = not preserved and result.effective == "full"
    await mental_models.refreshed(
        connection,
        held,
        content=result.content,
        document=held.document if new is None else new.stored(),
        content_query=held.content_query if preserved else held.source_query,
        response=response,
        watermark=taken.head.next_ordinal,
        seen_at=taken.newest,
        full=rewritten,
    )
    if new is not None:
        await citations.cite(connection, held.bank, held.id, new.cites)


def _response(result: Result, before: Mapping[str, Any]) -> dict[str, Any]:
    """The answer behind the document, as it is stored."""
    kept = result.outcome == PRESERVED
    structured = before.get("structured_output") if kept else result.structured
    return {
        "text": result.content,
        "based_on": based_on(result),
        "structured_output": structured,
        "trace": trace(result) if result.snapshot.trigger.keep_trace else None,
        "refresh_skipped": kept,
    }


def based_on(result: Result) -> dict[str, list[dict[str, Any]]]:
    """The sources by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in result.sources:
        found.setdefault(one.kind, []).append(one.view())
    return found


async def fail(pool: Pool, result: Result, also: Also) -> None:
    """Counts a failed refresh. The document and what it has seen stay. Conflict, NotFound as
    keep."""
    full = result.effective == "full"

    async def work(connection: Connection) -> None:
        held = await _held(connection, result)
        fulls = held.failed_fulls + full
        await mental_models.refresh_failed(
            connection,
            held,
            failed_deltas=held.failed_deltas + (not full and result.outcome == NOT_APPLIED),
            failed_fulls=fulls,
            parked_at=result.snapshot.head.next_ordinal if fulls >= FULLS_FAILED else None,
        )
        await also(connection)

    await write(pool, work)


def details(result: Result) -> dict[str, Any]:
    """What an operation tells of its refresh."""
    return {
        "operation_type": REFRESH,
        "mental_model_id": result.snapshot.model.id,
        "outcome": result.outcome,
        "failure_reason": result.failure,
        "effective_mode": result.effective,
        "mode_fallback_reason": result.fallback,
        "usage": result.usage.wire(),
    }


def _edits(result: Result) -> dict[str, Any] | None:
    if result.edits is None:
        return None
    return {"applied": list(result.edits.applied), "skipped": list(result.edits.skipped)}


def trace(result: Result, now: datetime | None = None) -> dict[str, Any]:
    """How a refresh came to its outcome."""
    return {
        "recorded_at": iso(now or datetime.now(UTC)),
        "effective_mode": result.effective,
        "mode_fallback_reason": result.fallback,
        "outcome": _shown(result),
        "tool_calls": list(result.tool_calls),
        "llm_calls": list(result.llm_calls),
        "delta_operations": _edits(result),
        "retraction": result.retraction,
        "scope": scope(result),
        "window": window(result),
        "facts": {"retrieved": dict(result.retrieved), "used": dict(result.used)},
        "usage": result.usage.wire(),
        "duration_ms": round(result.seconds * 1000),
        "warnings": list(result.warnings),
    }


def _shown(result: Result) -> str:
    """The outcome, as traces know it: five of them."""
    if result.outcome not in (ERROR, "refresh_failed_structured_output"):
        return result.outcome
    return "refresh_failed_empty_candidate"


def scope(result: Result) -> dict[str, Any]:
    taken = result.snapshot
    trigger, filters = taken.trigger, taken.scope
    excluded = [taken.model.id, *(trigger.exclude_mental_model_ids or ())]
    return {
        "tags": None if filters.tags is None else list(filters.tags),
        "tags_match": filters.tags_match.value,
        "tag_groups": None if trigger.tag_groups is None else list(trigger.tag_groups),
        "fact_types": None if trigger.fact_types is None else list(trigger.fact_types),
        "exclude_mental_models": trigger.exclude_mental_models,
        "exclude_mental_model_ids": list(dict.fromkeys(excluded)),
    }


def window(result: Result) -> dict[str, Any]:
    taken = result.snapshot
    seen = taken.model.last_memory_seen_at
    return {
        "created_after": iso(seen) if result.effective == "delta" else None,
        "created_before": iso(taken.now),
        "watermark": iso(taken.newest),
    }


def preview(result: Result) -> dict[str, Any]:
    """A dry run as the API shows it."""
    model = result.snapshot.model
    content = result.content
    diff = difflib.unified_diff(
        model.content.splitlines(keepends=True),
        content.splitlines(keepends=True),
        "current",
        "preview",
    )
    warnings = list(result.warnings)
    if result.failed:
        warnings.append(f"a refresh would fail: {result.message}")
    return {
        "mental_model_id": model.id,
        "name": model.name,
        "requested_mode": result.requested,
        "effective_mode": result.effective,
        "mode_fallback_reason": result.fallback,
        "outcome": _shown(result),
        "would_persist": result.outcome == WRITTEN,
        "scope": scope(result),
        "window": window(result),
        "facts": {"retrieved": dict(result.retrieved), "used": dict(result.used)},
        "based_on": based_on(result),
        "current_content": model.content,
        "candidate_content": result.candidate,
        "preview_content": content,
        "diff": "".join(line if line.endswith("\n") else f"{line}\n" for line in diff),
        "delta_operations": _edits(result),
        "retraction": result.retraction,
        "trace": trace(result),
        "usage": result.usage.wire(),
        "duration_ms": round(result.seconds * 1000),
        "warnings": warnings,
    }
