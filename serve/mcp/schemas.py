"""How a tool's arguments are described to clients: JSON Schema that the simplest of them read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

BANK_ARGUMENT = "bank_id"
_BANK = {"type": "string", "description": "The bank; absent: the one that the connection names."}


class _Plain(GenerateJsonSchema):
    """Without titles, and without null as a type of its own: an argument may be left out."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def of(kind: type[BaseModel], *, bank: bool) -> dict[str, Any]:
    """The schema of an object with the fields of `kind`; with `bank`, of `bank_id`, too."""
    found = kind.model_json_schema(schema_generator=_Plain)
    properties = dict(found.get("properties", {}))
    if bank and BANK_ARGUMENT not in properties:
        properties[BANK_ARGUMENT] = _BANK
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if found.get("required"):
        schema["required"] = found["required"]
    return schema
