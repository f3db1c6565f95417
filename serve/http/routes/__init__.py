"""The endpoints, one small module per resource. Order matters: recall is matched first."""

from __future__ import annotations

from serve.http.routes import (
    admin,
    banks,
    consolidation,
    contents,
    directives,
    documents,
    entities,
    explain,
    files,
    inspecting,
    knowledge,
    llm,
    memories,
    mental_models,
    operations,
    recall,
    reflect,
    retain,
    service,
    unbuilt,
)
from serve.http.routing import Router

ROUTERS: tuple[Router, ...] = (
    recall.router,
    explain.router,
    contents.router,
    reflect.router,
    retain.router,
    memories.router,
    documents.router,
    entities.router,
    files.router,
    operations.router,
    consolidation.router,
    mental_models.router,
    directives.router,
    knowledge.router,
    llm.router,
    banks.router,
    inspecting.router,
    admin.router,
    service.router,
    unbuilt.router,
)
