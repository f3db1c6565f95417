"""What goes along with the ranked memories: result fields, entities, chunks, source facts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg
import numpy as np

from retrieval.ranking.shortlist import Shortlist
from retrieval.store import attachments, chunks, memories
from retrieval.store.heads import BankHead
from retrieval.store.visibility import Visibility
from retrieval.text import tokens
from retrieval.types import FactType, Ints, MemoryRow, RecallQuery

EntityNames = Mapping[int, Sequence[tuple[str, str]]]
"""ordinal -> (entity id, canonical name), in the order they are shown."""

_PAGE = 64
_TYPES = tuple(kind.wire for kind in FactType)


def result(
    row: MemoryRow,
    names: EntityNames | None,
    as_of: datetime | None = None,
    heirs: Collection[str] | None = None,
) -> dict[str, Any]:
    """One memory as the API shows it; keys without a value are left out, and so is an end that
    came after `as_of`, and what took its place where that is none of the `heirs`."""
    shown: dict[str, Any] = {"id": row.id, "text": row.text, "type": _TYPES[row.fact_type]}
    if names is not None and (own := names.get(row.ordinal)):
        shown["entities"] = [name for _, name in own]
    if row.context is not None:
        shown["context"] = row.context
    if row.occurred_start is not None:
        shown["occurred_start"] = row.occurred_start
    if row.occurred_end is not None:
        shown["occurred_end"] = row.occurred_end
    if row.mentioned_at is not None:
        shown["mentioned_at"] = row.mentioned_at
    if row.document_id is not None:
        shown["document_id"] = row.document_id
    if row.metadata:
        shown["metadata"] = dict(row.metadata)
    if row.chunk_id is not None:
        shown["chunk_id"] = row.chunk_id
    if row.tags:
        shown["tags"] = list(row.tags)
    if row.proof_count is not None:
        shown["proof_count"] = row.proof_count
    if row.valid_from is not None:
        shown["valid_from"] = row.valid_from
    if row.valid_until is not None and (as_of is None or row.valid_until <= as_of):
        shown["valid_until"] = row.valid_until
        if row.superseded_by is not None and (heirs is None or row.superseded_by in heirs):
            shown["superseded_by"] = row.superseded_by
    return shown


def entity_map(rows: Iterable[MemoryRow], names: EntityNames) -> dict[str, dict[str, Any]]:
    """Canonical name -> entity, in order of first appearance among the results."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        for entity_id, name in names.get(row.ordinal, ()):
            found.setdefault(
                name, {"entity_id": entity_id, "canonical_name": name, "observations": []}
            )
    return found


def visible(ids: Sequence[str], shown: Collection[str] | None) -> list[str]:
    """Those of the ids that are `shown`; None means all."""
    return [id for id in ids if shown is None or id in shown]


async def sources(
    pool: asyncpg.Pool, head: BankHead, visibility: Visibility, rows: Iterable[MemoryRow]
) -> frozenset[str] | None:
    """The ids of what these memories were made from that may be shown; None where all may."""
    if visibility.everything:
        return None
    made = np.array([row.ordinal for row in rows if row.source_ids], np.int32)
    if not len(made):
        return frozenset()
    found = await memories.origins(pool, head.bank, made, head.generation)
    return frozenset(origin.id for origin in found if visibility.passes(origin))


async def heirs(
    pool: asyncpg.Pool, head: BankHead, visibility: Visibility, rows: Iterable[MemoryRow]
) -> frozenset[str] | None:
    """The ids of what took the place of these memories that may be shown; None where all may."""
    if visibility.everything:
        return None
    ids = {row.superseded_by for row in rows if row.superseded_by is not None}
    if not ids:
        return frozenset()
    found = await memories.seen(pool, head.bank, ids)
    return frozenset(seen.id for seen in found if visibility.passes(seen))


async def fetch(
    pool: asyncpg.Pool,
    query: RecallQuery,
    shortlist: Shortlist,
    order: Ints,
    rows: Mapping[int, MemoryRow],
    visibility: Visibility,
    shown: Collection[str] | None,
) -> dict[str, Any]:
    """The optional parts of the answer that were asked for; they never change the ranking, and
    hold nothing that the recall's filters leave out. `shown`: from `sources`."""
    found: dict[str, Any] = {}
    if query.include.chunks is not None:
        picked = await _chunks(pool, shortlist, order, query.include.chunks, visibility)
        if picked:
            found["chunks"] = picked
    if query.include.source_facts is not None:
        found.update(await _source_facts(pool, query, shortlist, rows, visibility, shown))
    return found


async def _chunks(
    pool: asyncpg.Pool,
    shortlist: Shortlist,
    order: Ints,
    budget: int,
    visibility: Visibility,
) -> dict[str, dict[str, Any]]:
    """Distinct chunks of the ranked memories, in rank order, whole until the budget is used up;
    the next one is cut to what is left, and the walk ends. An observation stands for its
    sources' chunks. A chunk is the text of all memories that were cut from it: it is left out
    where one of them may not be shown."""
    bank = shortlist.head.bank
    picked: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    left = budget
    for begin in range(0, len(order), _PAGE):
        if left <= 0:
            break
        page = order[begin : begin + _PAGE]
        groups = [_provenance(shortlist, int(i)) for i in page]
        asked = np.unique(np.concatenate(groups))
        rows = await memories.rows(pool, bank, asked, shortlist.head.generation)
        chunk_of = {row.ordinal: row.chunk_id for row in rows}
        wanted: list[str] = []
        for group in groups:
            for ordinal in group.tolist():
                chunk_id = chunk_of.get(ordinal)
                if chunk_id is not None and chunk_id not in seen:
                    seen.add(chunk_id)
                    wanted.append(chunk_id)
        if not visibility.everything and wanted:
            told = await memories.of_chunks(pool, bank, wanted)
            hidden = {chunk for chunk, memory in told if not visibility.passes(memory)}
            wanted = [chunk for chunk in wanted if chunk not in hidden]
        texts = {c["chunk_id"]: c for c in await chunks.chunks(pool, bank, wanted)}
        for chunk_id in wanted:
            chunk = texts.get(chunk_id)
            if chunk is None:
                continue
            text, cost = chunk["chunk_text"], tokens.count(chunk["chunk_text"])
            truncated = cost > left
            picked[chunk_id] = {
                "id": chunk_id,
                "text": tokens.cut(text, left) if truncated else text,
                "chunk_index": chunk["chunk_index"],
                "truncated": truncated,
            }
            left -= min(cost, left)
            if left <= 0:
                break
    if shortlist.head.attached:
        await _attached(pool, shortlist.head, picked)
    return picked


async def _attached(
    pool: asyncpg.Pool, head: BankHead, picked: Mapping[str, dict[str, Any]]
) -> None:
    held = [
        {"text": "", "document_id": row["document_id"], "chunk_id": row["chunk_id"]}
        for row in await chunks.chunks(pool, head.bank, list(picked))
    ]
    await attachments.show(pool, head.bank, head.bank_id, held)
    for one in held:
        if "attachments" in one:
            picked[one["chunk_id"]]["attachments"] = one["attachments"]


def _provenance(shortlist: Shortlist, i: int) -> Ints:
    """The ordinals whose chunks stand for candidate i."""
    if shortlist.facts.fact_type[i] == FactType.OBSERVATION:
        return shortlist.source_ordinals[shortlist.source_ptr[i] : shortlist.source_ptr[i + 1]]
    return shortlist.found.ordinals[i : i + 1]


async def _source_facts(
    pool: asyncpg.Pool,
    query: RecallQuery,
    shortlist: Shortlist,
    rows: Mapping[int, MemoryRow],
    visibility: Visibility,
    shown: Collection[str] | None,
) -> dict[str, Any]:
    """The memories that the returned observations were made from, within the budgets."""
    per_observation = query.include.source_facts_per_observation
    shared = query.include.source_facts if query.include.source_facts is not None else -1
    observations = [row for row in rows.values() if row.source_ids]
    ids = list(dict.fromkeys(i for row in observations for i in visible(row.source_ids, shown)))
    known = {row.id: row for row in await memories.by_ids(pool, shortlist.head.bank, ids)}
    after = await heirs(pool, shortlist.head, visibility, known.values())
    costs = dict(zip(known, tokens.counts([row.text for row in known.values()]), strict=True))
    picked: dict[str, dict[str, Any]] = {}
    used = 0
    for row in observations:
        own = 0
        for source in row.source_ids:
            if source not in known or source in picked:
                continue
            cost = costs[source]
            if per_observation >= 0:
                fits = own + cost <= per_observation
            else:
                fits = shared < 0 or used + cost <= shared
            if fits:
                picked[source] = result(known[source], None, query.filters.as_of, after)
                own, used = own + cost, used + cost
    found: dict[str, Any] = {"source_facts_truncated": any(i not in picked for i in known)}
    if picked:
        found["source_facts"] = picked
    return found
