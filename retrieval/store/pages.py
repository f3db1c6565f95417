"""The knowledge base as rows: a tree of folders, and of pages whose text is a mental model.

Everything runs on the caller's connection; who changes the tree holds the bank's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.store import mental_models
from retrieval.store.database.pool import Connection
from retrieval.text.folding import fold

MOST = 4_000
"""Folders and pages of one bank."""
DEPTH_MOST = 32
FOLDER, PAGE = "kf-", "kp-"
"""What ids begin with."""

_NODES = (
    "select n.id, n.parent_id, n.name, n.mental_model_id, n.managed, n.created_at as made_at,"
    " n.updated_at as moved_at, m.bank, m.source_query, m.tags, m.trigger, m.watermark,"
    " m.content_query, m.created_at, m.updated_at, m.last_refreshed_at, m.last_refresh_failed_at"
    " from knowledge_nodes n"
    " left join mental_models m on m.bank = n.bank and m.id = n.mental_model_id"
    " where n.bank = $1"
)


def unknown(node_id: str) -> NotFound:
    return NotFound(f"there is no folder or page {node_id[:100]!r}")


async def nodes(connection: Connection, bank: int) -> list[Mapping[str, Any]]:
    """All of them with what a tree shows of their models, in the order of their names."""
    rows: list[Mapping[str, Any]] = await connection.fetch(
        f"{_NODES} order by (n.mental_model_id is not null), n.name_key, n.id", bank
    )
    return rows


async def node(connection: Connection, bank: int, id: str) -> Mapping[str, Any]:
    """As in `nodes`. NotFound."""
    row: Mapping[str, Any] | None = await connection.fetchrow(f"{_NODES} and n.id = $2", bank, id)
    if row is None:
        raise unknown(id)
    return row


async def page(connection: Connection, bank: int, id: str) -> Mapping[str, Any]:
    """A page's node, with its model's id; NotFound where it is none."""
    row = await node(connection, bank, id)
    if row["mental_model_id"] is None:
        raise NotFound(f"there is no page {id[:100]!r}")
    return row


async def put(
    connection: Connection, bank: int, name: str, parent_id: str | None, model: str | None
) -> str:
    """A new folder, or the page of a model; its id. InvalidInput for a parent that is none,
    Conflict for a name that is taken in that folder and above MOST."""
    if await connection.fetchval(
        "select count(*) >= $2 from knowledge_nodes where bank = $1", bank, MOST
    ):
        raise Conflict(f"a knowledge base has at most {MOST:,} folders and pages")
    await _parent(connection, bank, parent_id, 1)
    id = f"{FOLDER if model is None else PAGE}{uuid4()}"
    made = await connection.fetchval(
        "insert into knowledge_nodes (bank, id, parent_id, name, name_key, mental_model_id)"
        " values ($1, $2, $3, $4, $5, $6) on conflict do nothing returning true",
        bank,
        id,
        parent_id,
        name,
        _key(name),
        model,
    )
    if not made:
        raise _taken(name)
    return id


async def move(
    connection: Connection, bank: int, row: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    """Renames a node, or gives it another parent, as far as `changes` name it."""
    name = changes.get("name", row["name"])
    parent = changes.get("parent_id", row["parent_id"])
    if "parent_id" in changes and parent is not None:
        below = await subtree(connection, bank, row["id"])
        if parent in below:
            raise InvalidInput("parent_id: a folder cannot be moved into itself", "parent_id")
        await _parent(connection, bank, parent, await _height(connection, bank, row["id"]))
    taken = await connection.fetchval(
        "select true from knowledge_nodes where bank = $1 and id <> $2"
        " and coalesce(parent_id, '') = coalesce($3, '') and name_key = $4",
        bank,
        row["id"],
        parent,
        _key(name),
    )
    if taken:
        raise _taken(name)
    await connection.execute(
        "update knowledge_nodes set name = $3, name_key = $4, parent_id = $5, updated_at = now()"
        " where bank = $1 and id = $2",
        bank,
        row["id"],
        name,
        _key(name),
        parent,
    )


def _key(name: str) -> str:
    return fold(name).strip()


def _taken(name: str) -> Conflict:
    return Conflict(f"there is {name[:100]!r} in this folder already, in whatever case")


async def _parent(connection: Connection, bank: int, id: str | None, height: int) -> None:
    """That a node with `height` levels may stand below this one. InvalidInput if not."""
    if id is None:
        return
    row = await connection.fetchrow(
        "with recursive up as ("
        " select id, parent_id, mental_model_id, 1 as depth from knowledge_nodes"
        "  where bank = $1 and id = $2"
        " union all select n.id, n.parent_id, n.mental_model_id, up.depth + 1"
        "  from knowledge_nodes n join up on n.id = up.parent_id where n.bank = $1)"
        " select count(*) as depth, bool_or(id = $2 and mental_model_id is not null) as page"
        " from up",
        bank,
        id,
    )
    if not row["depth"]:
        raise InvalidInput(f"parent_id: there is no folder {id[:100]!r}", "parent_id")
    if row["page"]:
        raise InvalidInput("parent_id: a page cannot hold anything", "parent_id")
    if row["depth"] + height > DEPTH_MOST:
        raise InvalidInput(f"parent_id: folders are at most {DEPTH_MOST} deep", "parent_id")


_BELOW = (
    "with recursive down as ("
    " select id, mental_model_id, 1 as depth from knowledge_nodes where bank = $1 and id = $2"
    " union all select n.id, n.mental_model_id, down.depth + 1 from knowledge_nodes n"
    "  join down on n.parent_id = down.id where n.bank = $1)"
)


async def subtree(connection: Connection, bank: int, id: str) -> frozenset[str]:
    """The ids of a node and of all below it."""
    rows = await connection.fetch(f"{_BELOW} select id from down", bank, id)
    return frozenset(row["id"] for row in rows)


async def _height(connection: Connection, bank: int, id: str) -> int:
    found: int = await connection.fetchval(f"{_BELOW} select max(depth) from down", bank, id)
    return found


async def remove(connection: Connection, bank: int, id: str) -> None:
    """Ends a node and all below it, with the models of the pages. NotFound."""
    rows = await connection.fetch(f"{_BELOW} select id, mental_model_id from down", bank, id)
    if not rows:
        raise unknown(id)
    models = [row["mental_model_id"] for row in rows if row["mental_model_id"] is not None]
    await connection.execute(
        "delete from mental_models where bank = $1 and id = any($2)", bank, models
    )
    await mental_models.forget_refreshes(connection, bank, models)
    await connection.execute(
        "delete from knowledge_nodes where bank = $1 and id = any($2)",
        bank,
        [row["id"] for row in rows],
    )


# What a search reads


async def searchable(
    connection: Connection, bank: int, where: str, parameters: Sequence[Any], vector_set: str | None
) -> list[Mapping[str, Any]]:
    """The models that pass `where` (its parameters from $2 on), with terms and vectors; where it
    lacks terms, or a vector of this set, what they are made of."""
    rows: list[Mapping[str, Any]] = await connection.fetch(
        "select id, revision, terms, vector, vector_set, name, source_query,"
        " case when terms is null or vector is null or vector_set <> $"
        f"{len(parameters) + 2} then content end as content"
        f" from mental_models where bank = $1 and {where} order by id limit {mental_models.MOST}",
        bank,
        *parameters,
        vector_set,
    )
    return rows


async def index(
    connection: Connection,
    bank: int,
    id: str,
    revision: int,
    terms: Any,
    vector: bytes | None,
    vector_set: str,
) -> None:
    """Keeps what a search counted of a revision, until the text changes."""
    await connection.execute(
        "update mental_models set terms = $4, vector = $5, vector_set = $6"
        " where bank = $1 and id = $2 and revision = $3",
        bank,
        id,
        revision,
        terms,
        vector,
        vector_set,
    )


async def of_models(
    connection: Connection, bank: int, models: Sequence[str], opening: int = 300
) -> list[Mapping[str, Any]]:
    """The pages of these models, as in `nodes`, with the first characters of their texts."""
    shown = _NODES.replace(" from knowledge_nodes n", f", left(m.content, {opening}) as opening"
                           " from knowledge_nodes n", 1)  # fmt: skip
    rows: list[Mapping[str, Any]] = await connection.fetch(
        f"{shown} and n.mental_model_id = any($2)", bank, list(models)
    )
    return rows
