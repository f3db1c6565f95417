"""The endpoints, one small module per resource. Order matters: recall is matched first."""

from __future__ import annotations

from serve.http.routes import (
    banks,
    consolidation,
    documents,
    entities,
    llm,
    memories,
    operations,
    recall,
    retain,
    service,
    unbuilt,
)
from serve.http.routing import Router

ROUTERS: tuple[Router, ...] = (
    recall.router,
    retain.router,
    memories.router,
    documents.router,
    entities.router,
    operations.router,
    consolidation.router,
    llm.router,
    banks.router,
    service.router,
    unbuilt.router,
)
