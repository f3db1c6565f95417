"""What a refresh starts from: the document, its scope, and what changed in it, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrieval.mental import document as documents
from retrieval.mental import staleness
from retrieval.mental.document import Document
from retrieval.mental.trigger import Trigger, scope
from retrieval.store import banks, citations, mental_models, refreshes
from retrieval.store.citations import Live
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead
from retrieval.store.mental_models import MentalModelRow
from retrieval.types import Filters

CHANGED_MOST = 2_000
"""Memories written since the last refresh that are told apart, newest first."""


@dataclass(frozen=True, slots=True)
class RefreshInput:
    """All of it as of `now`, in database time: `head.next_ordinal` bounds what has been written.

    `changed`: memories in scope since the watermark, newest first. `cited`: those that the document
    cites and that are there, in scope; `gone`: ids of those that are not, `moved` those of them
    that another memory says word by word. `recorded`: what cited memories said, as the document
    knows it. `others`: whether other mental models have something to say."""

    head: BankHead
    model: MentalModelRow
    trigger: Trigger
    scope: Filters
    now: datetime
    document: Document | None
    changed: tuple[Live, ...]
    cited: Mapping[str, Live]
    gone: frozenset[str]
    moved: Mapping[str, str]
    recorded: Mapping[str, Mapping[str, Any]]
    consolidating: bool
    newest: datetime | None
    others: bool

    @property
    def populated(self) -> bool:
        return bool(self.model.content)

    @property
    def forgotten(self) -> bool:
        """Whether nothing that the document cites is there any more, as after a restore: then its
        text is all there is."""
        return bool(self.gone) and not self.cited

    def said(self, ids: Sequence[str] | frozenset[str]) -> list[str]:
        """What memories said, as the document recorded it."""
        return [str(self.recorded[id]["text"]) for id in sorted(ids) if id in self.recorded]


async def take(pool: Pool, tenant: str, bank_id: str, model_id: str) -> RefreshInput:
    """NotFound where there is no such bank or model."""

    async def work(connection: Connection) -> RefreshInput:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _take(connection, tenant, bank_id, model_id)

    return await read(pool, work)


async def _take(connection: Connection, tenant: str, bank_id: str, model_id: str) -> RefreshInput:
    head = await banks.head_of(connection, tenant, bank_id)
    bank, end = head.bank, head.next_ordinal
    model = await mental_models.model(connection, bank, model_id)
    trigger = Trigger.of(model.trigger)
    filters = scope(list(model.tags), trigger)
    recorded = _recorded(model.reflect_response)
    document = _document(model, recorded)
    wanted = document.cites if document is not None else frozenset(recorded)
    there = await citations.live(connection, bank, wanted)
    holds = staleness.ScopeFilter(filters).holds
    cited = {id: one for id, one in there.items() if holds(one.tags, int(one.fact_type))}
    gone = frozenset(wanted - cited.keys())
    moved: dict[str, str] = {}
    if gone:
        texts = {str(recorded[id]["text"]): id for id in gone if id in recorded}
        same = await citations.saying(connection, bank, texts.keys(), filters)
        moved = {
            id: same[str(recorded[id]["text"])]
            for id in gone
            if id in recorded and str(recorded[id]["text"]) in same
        }
        if moved:
            cited |= await citations.live(connection, bank, moved.values())
            gone -= moved.keys()
            if document is not None:
                document = documents.moved(document, moved)
    others = not trigger.exclude_mental_models and await connection.fetchval(
        "select exists (select from mental_models where bank = $1 and id <> $2 and content <> ''"
        " and id <> all($3::text[]))",
        bank,
        model_id,
        list(trigger.exclude_mental_model_ids or ()),
    )
    return RefreshInput(
        head,
        model,
        trigger,
        filters,
        await connection.fetchval("select now()"),
        document,
        tuple(await citations.since(connection, bank, filters, model.watermark, end, CHANGED_MOST)),
        cited,
        gone,
        moved,
        recorded,
        await refreshes.consolidating(connection, bank),
        await citations.newest(connection, bank, filters, end),
        bool(others),
    )


def _recorded(response: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The memories that the stored answer names, by id."""
    based_on = (response or {}).get("based_on") or {}
    return {
        str(one["id"]): one
        for kind in ("world", "experience", "observation")
        for one in based_on.get(kind) or ()
    }


def _document(model: MentalModelRow, recorded: Mapping[str, Any]) -> Document | None:
    """None where the stored form cannot be read, or does not say what the content does."""
    if not model.content:
        return Document()
    try:
        found = documents.of(model.document)
    except documents.BadDocument:
        return None
    return found if found.text == model.content else None
