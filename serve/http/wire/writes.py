"""Bodies of retain, import, and of changes to memories and documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    model_validator,
)

from retrieval import zones
from retrieval.errors import InvalidInput
from retrieval.ingest.scopes import check_combinations
from serve.http.wire.common import Body, Name, fields_of


def text_of(content: Any) -> Any:
    """Text blocks joined with newlines; other kinds of block cannot be read here."""
    if not isinstance(content, list):
        return content
    texts = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text" or not isinstance(block.get("text"), str):
            raise ValueError(f"content block of type {kind!r}: only text blocks can be stored")
        texts.append(block["text"])
    return "\n".join(texts)


class TextBlock(BaseModel):
    type: Literal["text"]
    text: str


class Base64Source(BaseModel):
    type: Literal["base64"] = "base64"
    media_type: str
    data: str


class ImageBlock(BaseModel):
    type: Literal["image"]
    source: Base64Source


class FileBlock(BaseModel):
    type: Literal["file"]
    source: Base64Source
    filename: str | None = None


Block = Annotated[TextBlock | ImageBlock | FileBlock, Field(discriminator="type")]


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("content must not be blank")
    return value


def _tags(value: Any) -> Any:
    """A list, a JSON array in a text, or one plain text."""
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return [value]
    return [value]


def _timestamp(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        if value.strip().lower() == "unset":
            return "unset"
        return zones.utc(zones.written(value)).isoformat()
    return value


Timestamp = Annotated[str | None, BeforeValidator(_timestamp)]
T = TypeVar("T")
ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list that is checked up to its first wrong entry: of a million, each would be an error."""
Tags = Annotated[ListOf[str], BeforeValidator(_tags, json_schema_input_type=list[str] | str)]
Scopes = Literal["per_tag", "combined", "all_combinations", "shared"] | ListOf[ListOf[str]]


def _countable(scopes: Any, tags: Iterable[str]) -> None:
    try:
        check_combinations(scopes, set(tags), "observation_scopes")
    except InvalidInput as error:
        raise ValueError(str(error)) from None


class EntityBody(Body):
    text: str
    type: str = "CONCEPT"


class ItemBody(BaseModel):
    """One item of a retain: what the API's description says of it. Its values are read once, where
    it is stored (retrieval/ingest/items.py)."""

    content: str | list[Block]
    timestamp: str | None = None
    context: str | None = None
    metadata: dict[str, Any] | None = None
    document_id: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    entities: list[EntityBody] | None = None
    resolve_entities: bool = True
    tags: list[str] | str | None = None
    observation_scopes: Scopes | None = None
    strategy: str | None = None
    update_mode: Literal["replace", "append"] = "replace"


Item = Annotated[
    dict[str, Any], PlainValidator(fields_of(ItemBody), json_schema_input_type=ItemBody)
]


class RetainBody(Body):
    LARGE: ClassVar[bool] = True
    """Bodies of this kind may be as large as the server allows (serve/http/routing.py)."""

    items: ListOf[Item]
    is_async: Annotated[bool, Field(alias="async")] = False
    document_tags: Tags | None = None
    operation_id: str | None = None


class ImportBody(BaseModel):
    """Structured memories that need no extraction; each item is checked by the importer."""

    LARGE: ClassVar[bool] = True

    memories: ListOf[dict[str, Any]]


class MemoryPatch(BaseModel):
    """Changes to one memory. A field that is absent stays; '' or null clears a time."""

    text: Annotated[str, AfterValidator(_not_blank)] | None = None
    context: str | None = None
    occurred_start: Timestamp = None
    occurred_end: Timestamp = None
    mentioned_at: Timestamp = None
    fact_type: Literal["world", "experience"] | None = None
    entities: list[str] | None = None
    resolve_entities: bool = True
    state: Literal["valid", "invalidated"] | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _something(self) -> MemoryPatch:
        if not self.model_fields_set - {"resolve_entities", "reason"}:
            raise ValueError(
                "nothing to change: give text, context, occurred_start, occurred_end,"
                " mentioned_at, fact_type, entities or state"
            )
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """Only what was given, absent fields left out."""
        return self.model_dump(include=self.model_fields_set)


class DocumentPatch(Body):
    """Changes to a document, which its memories follow. What is absent stays."""

    tags: Tags | None = None
    observation_scopes: Scopes | None = None

    @model_validator(mode="after")
    def _something(self) -> DocumentPatch:
        if self.tags is None and self.observation_scopes is None:
            raise ValueError("nothing to change: give tags or observation_scopes")
        _countable(self.observation_scopes, self.tags or ())
        return self


class MergeBody(Body):
    others: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    """Ids of the entities that become this one."""


class SplitBody(Body):
    name: Name
    """What the other entity is called."""
    memory_ids: Annotated[list[str], Field(min_length=1, max_length=10_000)] | None = None
    """Memories that are about it."""
