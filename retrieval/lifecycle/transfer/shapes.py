"""What the JSON columns of rows must look like: the database takes any JSON, and those who read the
rows later count on one kind of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from retrieval.ingest.fields import SCOPES

OBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "documents": ("metadata", "retain_params"),
    "entities": ("metadata",),
    "memory_units": ("metadata",),
    "observation_history": ("content",),
    "document_history": ("observations",),
    "mental_models": ("trigger", "document", "reflect_response"),
    "operations": ("result_metadata", "progress"),
    "audit_logs": ("metadata",),
}
"""Table -> columns that hold an object, where they hold anything."""
_TEXTS: Final = {("memory_units", "metadata"), ("documents", "metadata")}
"""Objects of texts alone."""
_SCOPED: Final = ("documents", "memory_units")


def check(table: str, line: Mapping[str, Any]) -> None:
    """ValueError where a column of the line, as a row of the table, has another shape."""
    for name in OBJECTS.get(table, ()):
        value = line.get(name)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is no object")
        if (table, name) in _TEXTS and not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f"{name} has values that are no texts")
    if table in _SCOPED and not _scopes(line.get("observation_scopes")):
        raise ValueError("observation_scopes are none")


def _scopes(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value is None or value in SCOPES
    return isinstance(value, list) and all(
        isinstance(scope, list) and all(isinstance(tag, str) for tag in scope) for scope in value
    )
