"""Every table that holds something of a bank, and how it is looked through once more.

A table that is not listed here fails a test: nobody adds one without saying how it is erased.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """`test`: SQL that is true of rows (t) that should be gone, over the values (e) of
    `proof.VALUES`; None where nothing of a memory can be. `why` says so, or where else it is
    looked for."""

    test: str | None
    why: str = ""


_ENDED = "status in ('completed', 'failed', 'cancelled')"
_NAMED = "t.tenant_id = e.tenant and t.bank_id = e.bank_id"
_BEFORE = "<= e.at"

TABLES: Mapping[str, Table] = {
    "banks": Table(None, "name, mission and settings: what the bank is, not what it remembers"),
    "memory_units": Table(
        "t.bank = e.bank and (t.id = any(e.memories) or t.source_ids && e.memories"
        " or t.superseded_by = any(e.memories) or t.document_id = any(e.documents))"
    ),
    "documents": Table("t.bank = e.bank and t.document_id = any(e.documents)"),
    "chunks": Table("t.bank = e.bank and t.document_id = any(e.documents)"),
    "attachments": Table(
        "t.bank = e.bank and not exists (select from document_attachments d where d.bank = t.bank"
        " and d.id = t.id)"
    ),
    "attachment_parts": Table(None, "of attachments, and gone with them"),
    "document_attachments": Table("t.bank = e.bank and t.document_id = any(e.documents)"),
    "entities": Table("t.bank = e.bank and t.id = any(e.entities)"),
    "entity_aliases": Table("t.bank = e.bank and t.entity_no = any(e.numbers)"),
    "unit_entities": Table(
        "t.bank = e.bank and (t.unit_id = any(e.memories) or t.entity_no = any(e.numbers))"
    ),
    "entity_cooccurrences": Table(
        "t.bank = e.bank and (t.a = any(e.numbers) or t.b = any(e.numbers))"
    ),
    "observation_history": Table("t.bank = e.bank and t.observation_id = any(e.memories)"),
    "links": Table(
        "t.bank = e.bank and (t.from_id = any(e.memories) or t.to_id = any(e.memories))"
    ),
    "tags": Table(
        "t.bank = e.bank and t.version <= e.version and not exists (select from tombstones d"
        " where d.bank = e.bank) and t.tag not in"
        " (select unnest(m.tags) from memory_units m where m.bank = e.bank)"
    ),
    "segments": Table(None, "decoded, and looked through as arrays"),
    "tombstones": Table("t.bank = e.bank and t.version <= e.version"),
    "operations": Table(
        f"t.bank = e.bank and t.{_ENDED} and t.updated_at {_BEFORE} and (t.payload <> '{{}}'"
        " or t.document_id = any(e.documents))"
    ),
    "operation_lanes": Table(None, "of operations that have not ended: they name documents"),
    "document_turns": Table(
        f"{_NAMED} and t.document_id = any(e.documents) and t.leased_until < now()"
    ),
    "document_history": Table(
        "t.bank = e.bank and (t.document_id = any(e.documents) or t.fact_id = any(e.memories)"
        " or jsonb_path_query_array(t.observations, '$.*.ids[*]') ?| e.texts)"
    ),
    "answers": Table(None, "digests of requests, and counts"),
    "llm_usage": Table(None, "counts"),
    "llm_requests": Table(
        f"{_NAMED} and t.started_at {_BEFORE} and (t.input is not null or t.output is not null)"
    ),
    "extraction_ledger": Table(f"{_NAMED} and t.created_at {_BEFORE}"),
    "directives": Table(None, "rules that somebody wrote; gone where they say what is erased"),
    "mental_models": Table(None, "every id in what they say is looked for"),
    "mental_model_citations": Table("t.bank = e.bank and t.memory_id = any(e.memories)"),
    "mental_model_history": Table(f"t.bank = e.bank and t.changed_at {_BEFORE}"),
    "knowledge_nodes": Table(None, "names of folders and pages"),
    "webhooks": Table(None, "addresses"),
    "webhook_deliveries": Table(
        f"{_NAMED} and t.created_at {_BEFORE} and t.body is not null"
        " and t.status in ('completed', 'failed')"
    ),
    "audit_logs": Table(
        f"{_NAMED} and t.started_at {_BEFORE} and (t.request is not null or t.response is not null)"
    ),
    "operation_files": Table(
        "t.bank = e.bank and exists (select from operations o where o.bank = t.bank"
        f" and o.operation_id = t.operation_id and o.{_ENDED} and o.updated_at {_BEFORE})"
    ),
    "stored_files": Table(
        f"t.bank = e.bank and t.created_at {_BEFORE} and exists (select from operations o"
        " where o.bank = t.bank and o.operation_id = t.operation_id"
        f" and (o.type = 'transfer_export' or o.{_ENDED} and o.updated_at {_BEFORE}))",
        "archives of the bank; what is to be imported from one has not happened yet",
    ),
    "extraction_batches": Table(None, "marks and hashes of questions that a provider has"),
    "bank_aliases": Table(None, "other names of the bank"),
}

KEYWORD = "keyword_"
"""Tables of keyword back-ends: rows by ordinal, that must belong to a memory."""
