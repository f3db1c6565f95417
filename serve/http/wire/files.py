"""The JSON beside uploaded files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from serve.http.wire.common import Body
from serve.http.wire.writes import ListOf, LocalTimestamp, Metadata, Tags

Parser = str | list[str]
"""A parser, or several to be tried in turn."""


class FileBody(Body):
    """What is said of one file."""

    document_id: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    context: str | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None
    timestamp: LocalTimestamp = None
    parser: Parser | None = None
    strategy: str | None = None

    @property
    def item(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, exclude={"parser"})


class FilesBody(Body):
    """`files_metadata`: one entry per file, in their order."""

    parser: Parser | None = None
    files_metadata: ListOf[FileBody] | None = None
