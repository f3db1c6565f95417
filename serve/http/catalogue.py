"""The settings that a bank may have, described from where they are defined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from retrieval.recall.explaining import TRIED
from retrieval.settings import ANALYSIS, Owner
from retrieval.store import bankconfig

_GROUPS = {
    "RecallSettings": "recall",
    "RetainSettings": "retain",
    "ConsolidationSettings": "consolidation",
    "ReflectSettings": "reflect",
    "Accepted": "other",
}


def settings_of_banks(*deployed: Any) -> list[dict[str, Any]]:
    """[{name, group, kind, choices, min, max, default, doc, fixed_once_filled, tried}]: `default`
    is what holds where a bank sets nothing, in this deployment; `tried`: one recall may set it."""
    values: dict[str, Any] = {}
    for each in reversed(deployed):
        values |= dataclasses.asdict(each)
    return [
        {**_described(name, owner), "default": values.get(name)}
        for name, owner in bankconfig.names().items()
    ]


def _described(name: str, owner: Owner) -> Mapping[str, Any]:
    schema = _schema(owner).get(name, {})
    doc = schema.get("description", "")
    flat = next((s for s in schema.get("anyOf", ()) if s.get("type") != "null"), schema)
    choices = flat.get("enum") or ([flat["const"]] if "const" in flat else None)
    return {
        "name": name,
        "group": _GROUPS.get(owner.__name__, "other"),
        "kind": "choice" if choices else flat.get("type", "object"),
        "optional": flat is not schema,
        "choices": choices,
        "min": flat.get("minimum", flat.get("exclusiveMinimum")),
        "max": flat.get("maximum", flat.get("exclusiveMaximum")),
        "doc": " ".join(doc.split()),
        "fixed_once_filled": name in ANALYSIS,
        "tried": name in TRIED,
    }


@cache
def _schema(owner: Owner) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = TypeAdapter(owner).json_schema()["properties"]
    return properties
