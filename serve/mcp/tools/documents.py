"""Documents, which memories come from, and tags."""

from __future__ import annotations

from serve.mcp.tool import Effect, Id, Offset, Page, Tool, in_bank


class ListDocuments(Tool):
    """The bank's documents, the last changed first."""

    NAME = "list_documents"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/documents")

    q: str | None = None
    """A part of the id."""
    limit: Page = 100
    offset: Offset = 0


class GetDocument(Tool):
    """One document with its text."""

    NAME = "get_document"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/documents/{document_id}")

    document_id: Id


class DeleteDocument(Tool):
    """Delete a document and all memories that came from it, for good."""

    NAME = "delete_document"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/documents/{document_id}")

    document_id: Id


class ListTags(Tool):
    """The tags of the bank's memories, the most used first."""

    NAME = "list_tags"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/tags")

    q: str | None = None
    """A whole tag; * stands for anything."""
    limit: Page = 100
    offset: Offset = 0


TOOLS: tuple[type[Tool], ...] = (ListDocuments, GetDocument, DeleteDocument, ListTags)
