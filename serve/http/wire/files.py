"""The JSON beside uploaded files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainValidator

from serve.http.wire.common import Body, fields_of
from serve.http.wire.writes import ListOf

Parser = str | list[str]
"""A parser, or several to be tried in turn."""


class FileBody(BaseModel):
    """What is said of one file, as `ItemBody` of an item."""

    document_id: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    context: str | None = None
    metadata: dict[str, Any] | None = None
    tags: list[str] | str | None = None
    timestamp: str | None = None
    parser: Parser | None = None
    strategy: str | None = None


File = Annotated[
    dict[str, Any], PlainValidator(fields_of(FileBody), json_schema_input_type=FileBody)
]


class FilesBody(Body):
    """`files_metadata`: one entry per file, in their order."""

    parser: Parser | None = None
    files_metadata: ListOf[File] | None = None
