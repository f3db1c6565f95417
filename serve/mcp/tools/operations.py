"""What runs in the background, such as a retain."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serve.mcp.tool import Effect, Id, Offset, Tool, in_bank


class ListOperations(Tool):
    """Background operations, the newest first."""

    NAME = "list_operations"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/operations")

    status: str | None = None
    """pending, processing, completed, failed or cancelled."""
    type: str | None = None
    """Only operations of this type."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    offset: Offset = 0
    exclude_parents: bool = False


class GetOperation(Tool):
    """How far a background operation is."""

    NAME = "get_operation"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/operations/{operation_id}")

    operation_id: Id


class CancelOperation(Tool):
    """Cancel a background operation that has not ended; nothing of it is stored."""

    NAME = "cancel_operation"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/operations/{operation_id}")

    operation_id: Id


TOOLS: tuple[type[Tool], ...] = (ListOperations, GetOperation, CancelOperation)
