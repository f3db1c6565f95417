"""The endpoints, one small module per resource. Order matters: recall is matched first."""

from __future__ import annotations

from serve.http.routes import (
    aliases,
    audit,
    banks,
    consolidation,
    directives,
    documents,
    entities,
    erasure,
    files,
    knowledge,
    llm,
    memories,
    mental_models,
    operations,
    recall,
    reflect,
    retain,
    service,
    templates,
    transfer,
    unbuilt,
    webhooks,
)
from serve.http.routing import Router

ROUTERS: tuple[Router, ...] = (
    recall.router,
    reflect.router,
    retain.router,
    memories.router,
    documents.router,
    entities.router,
    files.router,
    erasure.router,
    operations.router,
    consolidation.router,
    mental_models.router,
    directives.router,
    knowledge.router,
    llm.router,
    banks.router,
    templates.router,
    transfer.router,
    webhooks.router,
    audit.router,
    aliases.router,
    service.router,
    unbuilt.router,
)
