"""The knowledge base: pages that a language model keeps up to date, in folders."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from retrieval.mental import knowledge
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, needs_model
from serve.http.wire.knowledge import FolderBody, NodePatch, PageBody
from serve.http.wire.tags import Counted

router = Router(tags=["knowledge base"])
_BASE = f"{BANK}/knowledge-base"
_NODE = f"{_BASE}/nodes/{{node_id}}"


@router.get(f"{_BASE}/tree", operation_id="get_knowledge_base_tree")
async def tree(bank_id: str, tenant: Reader, services: Given, wanted: Counted) -> Response:
    """All folders and pages; with tags, the pages that pass and the folders on the way."""
    return json_response(await knowledge.tree(services.pool, tenant, bank_id, wanted))


@router.get(f"{_BASE}/search", operation_id="search_knowledge_base")
async def search(
    bank_id: str,
    tenant: Reader,
    services: Given,
    wanted: Counted,
    q: Annotated[str, Query(min_length=1, max_length=20_000)],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Response:
    """Pages by words and meaning, best first."""
    found = await knowledge.found(
        services.pool,
        services.embedder,
        services.settings.retain,
        tenant,
        bank_id,
        q,
        wanted,
        limit,
    )
    return json_response(found)


@router.get(f"{_BASE}/export", operation_id="export_knowledge_base")
async def export(bank_id: str, tenant: Reader, services: Given) -> Response:
    """All pages as markdown files, with an index."""
    return json_response(await knowledge.export(services.pool, tenant, bank_id))


@router.post(f"{_BASE}/folders", operation_id="create_knowledge_folder", status_code=201)
async def create_folder(
    bank_id: str, body: FolderBody, tenant: Changer, services: Given
) -> Response:
    """A new folder; the bank is made if there is none."""
    made = await knowledge.create_folder(services.pool, tenant, bank_id, body.name, body.parent_id)
    return json_response(made, 201)


@router.post(f"{_BASE}/pages", operation_id="create_knowledge_page", status_code=201)
async def create_page(bank_id: str, body: PageBody, tenant: Changer, services: Given) -> Response:
    """A new page, its first refresh queued; the bank is made if there is none."""
    needs_model(services.documents is not None, "a page")
    made = await knowledge.create_page(services.pool, tenant, bank_id, body.fields, body.parent_id)
    return json_response(made, 201)


@router.get(f"{_BASE}/pages/{{page_id}}", operation_id="get_knowledge_page")
async def get_page(bank_id: str, page_id: str, tenant: Reader, services: Given) -> Response:
    """One page as a markdown document."""
    return json_response(await knowledge.page(services.pool, tenant, bank_id, page_id))


@router.patch(_NODE, operation_id="update_knowledge_node")
async def update_node(
    bank_id: str, node_id: str, body: NodePatch, tenant: Changer, services: Given
) -> Response:
    """Renames or moves a node, or changes a page's options."""
    changed = await knowledge.patch(
        services.pool,
        tenant,
        bank_id,
        node_id,
        body.changes,
        able=services.documents is not None,
    )
    return json_response(changed)


@router.delete(_NODE, operation_id="delete_knowledge_node")
async def delete_node(bank_id: str, node_id: str, tenant: Changer, services: Given) -> Response:
    """Ends a node, all below it, and their mental models."""
    return json_response(await knowledge.delete(services.pool, tenant, bank_id, node_id))
