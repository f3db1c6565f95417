"""What of a bank travels: each table that has a bank, with the part that carries it or the reason
why none does. A test walks the database's catalogue and holds it against this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CARRIED: Final[Mapping[str, str]] = {
    "banks": "bank.json",
    "documents": "documents",
    "chunks": "chunks",
    "entities": "entities",
    "entity_aliases": "entities",
    "entity_cooccurrences": "cooccurrences",
    "memory_units": "memories",
    "unit_entities": "memories",
    "links": "memories",
    "tags": "memories",
    "observation_history": "memories",
    "segments": "memories, vectors, edges",
    "document_history": "document-history",
    "mental_models": "mental-models",
    "mental_model_citations": "mental-models",
    "mental_model_history": "mental-models",
    "knowledge_nodes": "knowledge",
    "directives": "directives",
    "attachments": "blobs",
    "attachment_parts": "blobs",
    "document_attachments": "attachments",
    "operations": "history/operations",
    "llm_requests": "history/llm-requests",
    "webhooks": "webhooks",
    "audit_logs": "history/audit",
}
"""Table -> kind of the parts. Rooms that add tables of a bank's own add them here and to
`retrieval/lifecycle/transfer/lines.py` and `storing.py`."""

LEFT_BEHIND: Final[Mapping[str, str]] = {
    "tombstones": "an archive holds what lives, under dense ordinals",
    "answers": "answers to requests of this server, which no other has been sent",
    "bank_aliases": "names by which this server knows the bank",
    "webhook_deliveries": "what this server has to tell",
    "operation_lanes": "an order of work that is not done yet; work does not travel",
    "document_turns": "who writes at this moment",
    "llm_usage": "what the tenant was charged for here",
    "extraction_ledger": "a cache, which costs nothing but money",
    "operation_files": "uploads that wait to be read here",
    "extraction_batches": "questions that a language model is working on for this server",
    "stored_files": "archives themselves",
    "stored_file_parts": "archives themselves",
}
"""Table -> why it does not travel."""

COPIED: Final = (
    "documents", "attachments", "attachment_parts", "document_attachments", "chunks",
    "memory_units", "entities", "entity_aliases", "unit_entities",
    "entity_cooccurrences", "observation_history", "links", "tags", "segments", "tombstones",
    "document_history",
)  # fmt: skip
"""Tables that a clone copies as rows with the memories, in an order that their references allow."""
COPIED_CONFIG: Final = (
    "directives", "mental_models", "mental_model_citations", "mental_model_history",
    "knowledge_nodes",
)  # fmt: skip
"""And with the settings."""
