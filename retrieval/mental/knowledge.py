"""The knowledge base: pages in folders, each page a mental model that is read as markdown.

Every function names the bank by (tenant, bank_id): NotFound where that tenant has no such bank, or
the bank no such node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import yaml

from retrieval.errors import InvalidInput
from retrieval.mental import models, staleness
from retrieval.mental.models import PLACEHOLDER
from retrieval.mental.search import search
from retrieval.mental.trigger import PAGE, Trigger, checked, merged
from retrieval.protocols import Embedder
from retrieval.settings import RetainSettings
from retrieval.store import banks, citations, mental_models, pages, refreshes
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import iso
from retrieval.store.tags import TagFilter
from retrieval.store.visibility import Seen, Visibility
from retrieval.types import Filters

PAGE_TYPE = "knowledge-page"
TYPE_TAG = "type:"
DEFAULT_TRIGGER = "knowledge_page_default_trigger"
"""The setting of a bank that says how its pages are refreshed."""


def _view(row: Mapping[str, Any], stale: bool, children: list[dict[str, Any]]) -> dict[str, Any]:
    page = row["mental_model_id"] is not None
    return {
        "id": row["id"],
        "kind": "page" if page else "folder",
        "name": row["name"],
        "parent_id": row["parent_id"],
        "mental_model_id": row["mental_model_id"],
        "managed": row["managed"],
        "description": row["source_query"],
        "tags": row["tags"] if page else [],
        "timestamp": _time(row),
        "is_stale": stale if page else None,
        "last_refresh_failed_at": iso(row["last_refresh_failed_at"]),
        "trigger": Trigger.of(row["trigger"]).wire() if page else None,
        "children": children,
    }


def _time(row: Mapping[str, Any]) -> str | None:
    """When a page was last written, a folder last changed."""
    if row["mental_model_id"] is None:
        return iso(row["moved_at"])
    return iso(row["last_refreshed_at"] or row["created_at"])


def _models(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of pages as rows of their models."""
    return [
        {**row, "id": row["mental_model_id"]} for row in rows if row["mental_model_id"] is not None
    ]


async def tree(pool: Pool, tenant: str, bank_id: str, wanted: TagFilter) -> dict[str, Any]:
    """{roots: [node]} without texts. With a filter, the pages that pass and the folders on the way
    to them."""
    visibility = Visibility(Filters(
        tags=None if wanted.tags is None else tuple(wanted.tags),
        tags_match=wanted.match,
        tag_groups=tuple(wanted.groups) or None,
    ))  # fmt: skip

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows = await pages.nodes(connection, bank)
        stale = await staleness.stale(connection, bank, _models(rows))
        below: dict[str | None, list[Mapping[str, Any]]] = {}
        for row in rows:
            below.setdefault(row["parent_id"], []).append(row)

        def shown(parent: str | None) -> list[dict[str, Any]]:
            found = []
            for row in below.get(parent, ()):
                if row["mental_model_id"] is not None:
                    if visibility.passes(Seen("", row["tags"], None, None)):
                        found.append(_view(row, row["mental_model_id"] in stale, []))
                    continue
                children = shown(row["id"])
                if children or visibility.everything:
                    found.append(_view(row, False, children))
            return found

        return {"roots": shown(None)}

    return await read(pool, work)


async def _shown(connection: Connection, bank: int, id: str) -> dict[str, Any]:
    row = await pages.node(connection, bank, id)
    stale = await staleness.stale(connection, bank, _models([row]))
    return _view(row, bool(stale), [])


async def create_folder(
    pool: Pool, tenant: str, bank_id: str, name: str, parent_id: str | None
) -> dict[str, Any]:
    """The new node; the bank is made if there is none. InvalidInput for a parent that is none,
    Conflict for a name that is taken."""

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.ensure(connection, tenant, bank_id)
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        made = await pages.put(connection, bank, name, parent_id, None)
        return await _shown(connection, bank, made)

    return await write(pool, work)


async def create_page(
    pool: Pool, tenant: str, bank_id: str, fields: Mapping[str, Any], parent_id: str | None
) -> dict[str, Any]:
    """{page_id, mental_model_id, operation_id}; errors as of `create_folder`.

    `fields` as of models.create; its trigger names what differs from the bank's default, which
    names what differs from PAGE.
    """

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.ensure(connection, tenant, bank_id)
        head = await banks.lock(connection, tenant, bank_id)
        default = checked(head.config.get(DEFAULT_TRIGGER) or {}, DEFAULT_TRIGGER)
        trigger = merged(merged(PAGE, default), fields["trigger"])
        model = str(uuid4())
        operation = await models.created(
            connection, head.bank, model, {**fields, "trigger": trigger}, page=True
        )
        page = await pages.put(connection, head.bank, fields["name"], parent_id, model)
        return {"page_id": page, "mental_model_id": model, "operation_id": operation}

    return await write(pool, work)


async def patch(
    pool: Pool,
    tenant: str,
    bank_id: str,
    node_id: str,
    changes: Mapping[str, Any],
    *,
    able: bool,
) -> dict[str, Any]:
    """Changes what is named of a node; the node then. Another question queues a refresh where
    somebody is `able` to write. InvalidInput where nothing is named, for a folder that becomes its
    own parent, and for what a folder does not have."""
    if not changes:
        raise InvalidInput("nothing to change: give name, parent_id or a page's options")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        row = await pages.node(connection, bank, node_id)
        model = row["mental_model_id"]
        own = {k: v for k, v in changes.items() if k in mental_models.CHANGEABLE}
        if model is None:
            if beyond := sorted(own.keys() - {"name"}):
                raise InvalidInput(f"{beyond[0]}: a folder has none", beyond[0])
        elif own:
            before = await models.changed(connection, bank, model, own)
            if able and own.get("source_query", before["source_query"]) != before["source_query"]:
                await refreshes.queue_refresh(connection, bank, model)
        if "name" in changes or "parent_id" in changes:
            await pages.move(connection, bank, row, changes)
        return await _shown(connection, bank, node_id)

    return await write(pool, work)


async def delete(pool: Pool, tenant: str, bank_id: str, node_id: str) -> dict[str, Any]:
    """Ends a node, all below it, and the models of these pages."""

    async def work(connection: Connection) -> None:
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        await pages.remove(connection, bank, node_id)

    await write(pool, work)
    return {"status": "deleted"}


def page_type(tags: Sequence[str]) -> str:
    found = (tag.removeprefix(TYPE_TAG).strip() for tag in tags if tag.startswith(TYPE_TAG))
    return next((kind for kind in found if kind), PAGE_TYPE)


def markdown(row: Mapping[str, Any], body: str) -> str:
    """A page as a document with YAML front matter."""
    front = {
        "id": row["id"],
        "title": row["name"],
        "type": page_type(row["tags"]),
        "description": row["source_query"],
        "tags": list(row["tags"]),
        "timestamp": _time(row),
    }
    head = yaml.safe_dump(front, allow_unicode=True, sort_keys=False, width=100)
    return f"---\n{head}---\n\n{body}".rstrip() + "\n"


async def page(pool: Pool, tenant: str, bank_id: str, page_id: str) -> dict[str, Any]:
    """A page as a markdown document."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await pages.page(connection, bank, page_id)
        model = await mental_models.model(connection, bank, row["mental_model_id"])
        return {
            "id": row["id"],
            "name": row["name"],
            "type": page_type(row["tags"]),
            "description": row["source_query"],
            "tags": row["tags"],
            "timestamp": _time(row),
            "body": model.content,
            "markdown": markdown(row, model.content or PLACEHOLDER),
        }

    return await read(pool, work)


async def found(
    pool: Pool,
    embedder: Embedder | None,
    retain: RetainSettings,
    tenant: str,
    bank_id: str,
    q: str,
    wanted: TagFilter,
    limit: int,
) -> dict[str, Any]:
    """{results, total}: the pages that have to do with `q`, best first."""
    hits = await search(
        pool, embedder, retain, tenant, bank_id, q, wanted=wanted, only_pages=True, limit=limit
    )

    async def work(connection: Connection) -> list[dict[str, Any]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows = {
            row["mental_model_id"]: row
            for row in await pages.of_models(connection, bank, [id for id, _ in hits])
        }
        return [
            {
                "id": row["id"],
                "name": row["name"],
                "mental_model_id": id,
                "source_query": row["source_query"],
                "snippet": row["opening"] or PLACEHOLDER,
                "score": score,
                "updated_at": _time(row),
            }
            for id, score in hits
            if (row := rows.get(id)) is not None
        ]

    results = await read(pool, work) if hits else []
    return {"results": results, "total": len(results)}


async def export(pool: Pool, tenant: str, bank_id: str) -> dict[str, Any]:
    """{files: [{path, content}]}: index.md, and for every page its text and its log."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows = await pages.nodes(connection, bank)
        files = [{"path": "index.md", "content": _index(rows)}]
        for row in rows:
            if row["mental_model_id"] is None:
                continue
            model = await mental_models.model(connection, bank, row["mental_model_id"])
            earlier = await citations.history(connection, bank, model.id)
            files.append({"path": f"{row['id']}.md", "content": markdown(row, model.content)})
            files.append({"path": f"{row['id']}.log.md", "content": _log(row, earlier)})
        return files

    return {"files": await read(pool, work)}


def _index(rows: Sequence[Mapping[str, Any]]) -> str:
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        below.setdefault(row["parent_id"], []).append(row)

    def lines(parent: str | None, depth: int) -> list[str]:
        told = []
        for row in below.get(parent, ()):
            indent = "  " * depth
            if row["mental_model_id"] is None:
                told += [f"{indent}- {row['name']}", *lines(row["id"], depth + 1)]
            else:
                told.append(f"{indent}- [{row['name']}]({row['id']}.md): {row['source_query']}")
        return told

    return "\n".join(["# Knowledge base", "", *lines(None, 0)]).rstrip() + "\n"


def _log(row: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"# {row['name']}: earlier texts"]
    parts += [f"## Until {iso(one['changed_at'])}\n\n{one['previous_content']}" for one in earlier]
    return "\n\n".join(parts) + "\n"
