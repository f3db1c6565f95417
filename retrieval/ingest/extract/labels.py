"""Labels: what a bank's owner wants to know of every fact, besides its text.

A group of `entity_labels` has a key, a description, and a type: one of its values (value), several
(multi-values), any text (text), several texts (multi-text), or fields that are groups again (map).
A label becomes the entity `key:value`; a group with `tag` adds it as a tag, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.llm.reading import list_of, text_of

VALUE_CHARS = 200
GROUPS = 50
VALUES = 200


@dataclass(frozen=True, slots=True)
class Group:
    """One checked group. `values` empty where any text will do; `many`: several of them."""

    key: str
    description: str
    values: tuple[str, ...]
    many: bool
    tag: bool

    def schema(self) -> dict[str, Any]:
        one: dict[str, Any] = {"type": "string"}
        if self.values:
            one = {"type": "string", "enum": list(self.values)}
        if self.many:
            return {"type": ["array", "null"], "items": one}
        return {
            "type": ["string", "null"],
            **({"enum": [*self.values, None]} if self.values else {}),
        }

    def words(self) -> str:
        choices = f" One of: {', '.join(self.values)}." if self.values else ""
        several = " Several are possible." if self.many else ""
        return f"- {self.key}: {self.description or 'as the text says'}.{choices}{several}"


def groups(given: Sequence[Mapping[str, Any]] | None) -> tuple[Group, ...]:
    """The groups of a bank's setting; fields of a map are groups `key.field`."""
    found: list[Group] = []
    for entry in (given or ())[:GROUPS]:
        key = text_of(entry.get("key"), VALUE_CHARS)
        if key:
            found += _groups(key, entry, bool(entry.get("tag")))
    return tuple(found[:GROUPS])


def _groups(key: str, entry: Mapping[str, Any], tag: bool) -> list[Group]:
    kind = entry.get("type") or "value"
    if kind == "map":
        fields = entry.get("fields")
        return [
            group
            for name, field in (fields.items() if isinstance(fields, Mapping) else ())
            if isinstance(field, Mapping)
            for group in _groups(f"{key}.{name}", field, tag)
        ]
    values = tuple(
        dict.fromkeys(
            value
            for one in list_of(entry.get("values"))[:VALUES]
            if (
                value := text_of(one.get("value") if isinstance(one, Mapping) else one, VALUE_CHARS)
            )
        )
    )
    free = kind in ("text", "multi-text")
    return [
        Group(
            key,
            text_of(entry.get("description"), 500),
            () if free else values,
            kind in ("multi-values", "multi-text"),
            tag,
        )
    ]


def read(answer: Any, known: Sequence[Group]) -> tuple[list[str], list[str]]:
    """(labels, tags) of a fact, `key:value` each; what no group allows is left out."""
    if not isinstance(answer, Mapping):
        return [], []
    labels, tags = [], []
    for group in known:
        given = list_of(answer.get(group.key))
        allowed = {value.casefold(): value for value in group.values}
        for one in given[: VALUES if group.many else 1]:
            value = text_of(one, VALUE_CHARS)
            if allowed:
                value = allowed.get(value.casefold(), "")
            if value:
                labels.append(f"{group.key}:{value}")
                if group.tag:
                    tags.append(f"{group.key}:{value}")
    return list(dict.fromkeys(labels)), list(dict.fromkeys(tags))
