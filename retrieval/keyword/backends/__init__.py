"""The keyword back-ends that an operator may choose instead of the default BM25 arm."""

from __future__ import annotations

from retrieval.errors import InvalidInput
from retrieval.keyword.backends.backend import (
    BackendFinding,
    BuildProgress,
    KeywordBackend,
    Statement,
)
from retrieval.keyword.backends.native import Native
from retrieval.keyword.backends.pg_search import PgSearch
from retrieval.keyword.backends.pg_textsearch import PgTextsearch
from retrieval.keyword.backends.pgroonga import PGroonga
from retrieval.keyword.backends.vchord import VChord

NAMES = ("native", "vchord", "pg_textsearch", "pgroonga", "pg_search")

__all__ = [
    "NAMES",
    "BackendFinding",
    "BuildProgress",
    "KeywordBackend",
    "Native",
    "PGroonga",
    "PgSearch",
    "PgTextsearch",
    "Statement",
    "VChord",
    "make",
]  # fmt: skip


def make(
    name: str,
    *,
    native_language: str = "english",
    pg_search_tokenizer: str = "",
    max_query_terms: int = 16,
    selective_terms: bool = True,
) -> KeywordBackend:
    """The back-end of this name with the settings that concern it; InvalidInput if unknown."""
    match name:
        case "native":
            return Native(native_language, max_terms=max_query_terms, selective=selective_terms)
        case "vchord":
            return VChord()
        case "pg_textsearch":
            return PgTextsearch()
        case "pgroonga":
            return PGroonga()
        case "pg_search":
            return PgSearch(pg_search_tokenizer)
    raise InvalidInput(
        f"unknown text search extension {name!r}: use bm25 or one of {', '.join(NAMES)}",
        "text_search_extension",
    )


TABLES = tuple(f"keyword_{name}" for name in NAMES)


def dismantle(name: str) -> list[str]:
    """Statements that take a back-end's table and triggers away, where they are."""
    table = f"keyword_{name}"
    triggers = [
        statement
        for event in ("insert", "update", "delete")
        for statement in (
            f"drop trigger if exists {table}_{event} on memory_units",
            f"drop function if exists {table}_{event}()",
        )
    ]
    return [*triggers, f"drop table if exists {table}"]
