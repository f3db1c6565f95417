"""Banks: the head that recall reads, profiles, settings, and their end.

Every function names the bank by (tenant, bank_id) and raises NotFound if that tenant has no such
bank; only `put` and `ensure` make one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retrieval.errors import Conflict, InvalidInput, NotFound, Unavailable
from retrieval.store import bank_templates, bankconfig, containing, outbox
from retrieval.store.bankconfig import PerBankSettings
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import clean, iso, listing, page
from retrieval.store.erasure import ErasureEntry, Note
from retrieval.store.heads import BankHead
from retrieval.text.folding import fold
from retrieval.text.language import bare

HEAD_COLUMNS = (
    "bank, tenant_id, bank_id, version, generation, next_ordinal, vector_set, analyser, config,"
    " state, attached, (select epoch from database_epoch) as epoch"
)
_HEAD = f"select {HEAD_COLUMNS} from banks where tenant_id = $1 and bank_id = $2"
_ID_LIMIT, _ID_BYTES = 512, 1536
"""Chunk ids, which are indexed, are made of the bank's id, the document's and a number."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


BUILDING_S = 5.0
"""When to ask again for a bank that is being built."""


def as_head(row: Mapping[str, Any], *, building: bool = False) -> BankHead:
    """Unavailable for a bank that is still being built, except for whoever builds it."""
    if row["state"] != "open" and not building:
        raise Unavailable(
            f"bank {row['bank_id'][:100]!r}", "it is still being imported", BUILDING_S
        )
    return BankHead(
        bank=row["bank"],
        tenant=row["tenant_id"],
        bank_id=row["bank_id"],
        version=row["version"],
        generation=row["generation"],
        next_ordinal=row["next_ordinal"],
        vector_set=row["vector_set"],
        analyser=row["analyser"],
        config=row["config"],
        epoch=row["epoch"],
        attached=row["attached"],
    )


def unknown(bank_id: str) -> NotFound:
    shown = bank_id if len(bank_id) <= 100 else f"{bank_id[:100]}..."
    return NotFound(f"there is no bank {shown!r}: its first retain or import creates it")


def check_id(bank_id: str) -> str:
    """`bank_id` if a bank may be called so; InvalidInput if not.

    Clients take the segments `.` and `..` out of an address; control characters have no place in
    headers and logs. A slash is fine, written %2F in addresses.
    """
    if (
        not bank_id.strip()
        or len(bank_id) > _ID_LIMIT
        or len(bank_id.encode(errors="replace")) > _ID_BYTES
    ):
        raise InvalidInput(
            f"a bank's id has 1 to {_ID_LIMIT} characters, in {_ID_BYTES} bytes at most", "bank_id"
        )
    if _CONTROL.search(bank_id) or clean(bank_id) != bank_id or bank_id in (".", ".."):
        raise InvalidInput(
            "a bank's id has no control characters, and is not `.` or `..`", "bank_id"
        )
    return bank_id


async def head(pool: Pool, tenant: str, bank_id: str, *, building: bool = False) -> BankHead:
    """The bank's newest committed state, in one indexed read; `building`: also of a bank that is
    still being made."""
    row = await read(pool, lambda connection: connection.fetchrow(_HEAD, tenant, bank_id))
    if row is None:
        raise unknown(bank_id)
    return as_head(row, building=building)


async def head_of(connection: Connection, tenant: str, bank_id: str) -> BankHead:
    row = await connection.fetchrow(_HEAD, tenant, bank_id)
    if row is None:
        raise unknown(bank_id)
    return as_head(row)


async def lock(
    connection: Connection, tenant: str, bank_id: str, *, building: bool = False
) -> BankHead:
    """The bank's head, with its row locked until the transaction ends: what a writer holds."""
    row = await connection.fetchrow(_HEAD + " for no key update", tenant, bank_id)
    if row is None:
        raise unknown(bank_id)
    return as_head(row, building=building)


async def number_of(connection: Connection, tenant: str, bank_id: str) -> int:
    """The bank's number, also while it is being built: for its operations. A bank that was never
    built has those that say why."""
    bank: int | None = await connection.fetchval(
        "select bank from banks where tenant_id = $1 and (bank_id = $2"
        " or (state = 'abandoned' and former_id = $2)) order by state = 'abandoned', bank desc"
        " limit 1",
        tenant,
        bank_id,
    )
    if bank is None:
        raise unknown(bank_id)
    return bank


async def ensure(
    target: Pool | Connection, tenant: str, bank_id: str, *, bare: bool = False
) -> BankHead:
    """The bank's head; the bank is made with defaults if there is none yet. `bare`: without the
    template that the server's settings name."""
    check_id(bank_id)

    async def make(connection: Connection) -> BankHead:
        made = await connection.fetchval(
            "insert into banks (tenant_id, bank_id, name, search_key) values ($1, $2, $2, $3)"
            " on conflict do nothing returning bank",
            tenant,
            bank_id,
            search_key(bank_id, bank_id),
        )
        if made is not None and not bare and (content := await bank_templates.kept(connection)):
            if settings := content.get("settings"):
                await _apply(connection, tenant, bank_id, _change(settings))
            await bank_templates.furnish(connection, made, content)
        return await head_of(connection, tenant, bank_id)

    if isinstance(target, Pool):
        return await write(target, make)
    return await make(target)


def search_key(bank_id: str, name: str) -> str:
    return f"{fold(bank_id)}\n{fold(name)}"


async def fill_search_keys(connection: Connection) -> None:
    """Gives banks from before there were search keys theirs."""
    rows = await connection.fetch("select bank, bank_id, name from banks where search_key is null")
    if rows:
        await connection.execute(
            "update banks b set search_key = n.key"
            " from unnest($1::bigint[], $2::text[]) n (bank, key) where b.bank = n.bank",
            [row["bank"] for row in rows],
            [search_key(row["bank_id"], row["name"]) for row in rows],
        )


# Profiles


def _profile(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bank_id": row["bank_id"],
        "name": row["name"],
        "disposition": row["disposition"],
        "mission": row["mission"],
        "background": row["mission"],
    }


async def profile(pool: Pool, tenant: str, bank_id: str) -> dict[str, Any]:
    _, found = await character(pool, tenant, bank_id)
    return dict(found)


async def character(pool: Pool, tenant: str, bank_id: str) -> tuple[BankHead, Mapping[str, Any]]:
    """The bank's head and profile, in one read."""
    row = await read(
        pool,
        lambda connection: connection.fetchrow(
            f"select {HEAD_COLUMNS}, name, disposition, mission from banks"
            " where tenant_id = $1 and bank_id = $2",
            tenant,
            bank_id,
        ),
    )
    if row is None:
        raise unknown(bank_id)
    return as_head(row), _profile(row)


async def put(pool: Pool, tenant: str, bank_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the bank or changes it; fields that are absent or null stay. Returns the profile."""
    change = _change(body)

    async def work(connection: Connection) -> dict[str, Any]:
        await ensure(connection, tenant, bank_id)
        return await _apply(connection, tenant, bank_id, change)

    return await write(pool, work)


async def apply(connection: Connection, tenant: str, bank_id: str, body: Mapping[str, Any]) -> None:
    """As `patch`, in the caller's transaction."""
    await _apply(connection, tenant, bank_id, _change(body))


async def patch(pool: Pool, tenant: str, bank_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Changes a bank that exists; fields that are absent or null stay. Returns the profile."""
    change = _change(body)
    return await write(pool, lambda connection: _apply(connection, tenant, bank_id, change))


def _change(body: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"?, "mission"?, "disposition": {...}, "config": {...}} of a request's body."""
    given = {key: value for key, value in body.items() if value is not None}
    change: dict[str, Any] = {}
    for key in ("name", "background", "mission", "reflect_mission"):
        if key in given:
            if not isinstance(given[key], str):
                raise InvalidInput(f"{key} must be a string", key)
            change["name" if key == "name" else "mission"] = clean(given[key])
    disposition = given.get("disposition", {})
    if not isinstance(disposition, Mapping):
        raise InvalidInput("disposition must be an object", "disposition")
    traits = {}
    for trait in bankconfig.TRAITS:
        field = (
            f"disposition_{trait}" if f"disposition_{trait}" in given else f"disposition.{trait}"
        )
        value = given.get(f"disposition_{trait}", disposition.get(trait))
        if value is not None:
            if said := bankconfig.problem(f"disposition_{trait}", value):
                raise InvalidInput(f"{field}: {said}", field)
            traits[trait] = value
    change["disposition"] = traits
    settings = {
        key: value
        for key, value in given.items()
        if key in bankconfig.names()
        and not key.startswith("disposition_")
        and key != "reflect_mission"
    }
    change["config"] = bankconfig.checked(settings)
    return change


async def _apply(
    connection: Connection, tenant: str, bank_id: str, change: Mapping[str, Any]
) -> dict[str, Any]:
    held = await lock(connection, tenant, bank_id)
    config = {**held.config, **change["config"]}
    _may_change(held, config)
    row = await connection.fetchrow(
        "update banks set name = coalesce($3, name), mission = coalesce($4, mission),"
        " disposition = disposition || $5, config = $6, updated_at = now(),"
        " search_key = coalesce($7, search_key)"
        " where tenant_id = $1 and bank_id = $2 returning *",
        tenant,
        bank_id,
        change.get("name"),
        change.get("mission"),
        change["disposition"],
        config,
        None if change.get("name") is None else search_key(bank_id, change["name"]),
    )
    return _profile(row)


def _may_change(held: BankHead, config: Mapping[str, Any]) -> None:
    bankconfig.agree(config)
    if held.next_ordinal:
        for name in bankconfig.ANALYSIS:
            if config.get(name) != held.config.get(name):
                option = name.removeprefix("text_search_")
                raise Conflict(
                    f"{name} of a bank with memories needs their keyword index rebuilt: run"
                    f" `fourfold reindex {held.bank_id} --{option} {config.get(name) or '...'}`"
                )


async def list_banks(
    pool: Pool, tenant: str, *, q: str | None = None, limit: int = 100, offset: int = 0
) -> dict[str, Any]:
    """{banks, total, limit, offset}, latest write first.

    `q`: a part of the id or the name, folded as recall folds words, in any locale.
    """
    limit, offset = page(limit, offset)
    asked = fold(clean(q)) if q else None
    wanted = (bare(asked) or asked) if asked else None

    async def work(connection: Connection) -> dict[str, Any]:
        where = (
            "tenant_id = $1 and state = 'open'"
            f" and ($2::text is null or strpos({containing.bare('search_key')}, $2) > 0"
            " or exists"
            " (select from bank_aliases a where a.bank = banks.bank"
            f"  and strpos({containing.bare('lower(a.alias)')}, $2) > 0))"
        )
        total = await connection.fetchval(
            f"select count(*) from banks where {where}", tenant, wanted
        )
        rows = await connection.fetch(
            f"with found as (select * from banks where {where}"
            " order by last_write_at desc nulls last, created_at desc, bank limit $3 offset $4)"
            " select found.*, (select count(*) from memory_units m"
            "  where m.bank = found.bank and m.ordinal is not null) as facts,"
            " (select alias from bank_aliases a where a.bank = found.bank and is_primary)"
            "  as display_alias, array(select alias from bank_aliases a where a.bank = found.bank"
            f"  and strpos({containing.bare('lower(a.alias)')}, $2) > 0 order by alias)"
            "  as matched_aliases from found"
            " order by last_write_at desc nulls last, created_at desc, bank",
            tenant,
            wanted,
            limit,
            offset,
        )
        banks = [
            {
                "bank_id": row["bank_id"],
                "name": row["name"],
                "disposition": row["disposition"],
                "mission": row["mission"],
                "created_at": iso(row["created_at"]),
                "updated_at": iso(row["updated_at"]),
                "fact_count": row["facts"],
                "last_document_at": iso(row["last_document_at"]),
                "last_write_at": iso(row["last_write_at"]),
                "display_alias": row["display_alias"],
                "matched_aliases": row["matched_aliases"],
            }
            for row in rows
        ]
        return listing("banks", banks, total, limit, offset)

    return await read(pool, work)


async def delete(
    pool: Pool, tenant: str, bank_id: str, *, note: Note | None = None
) -> dict[str, Any]:
    """Ends a bank and everything in it: {success, message, deleted_count}. `note` keeps that it was
    deleted, before the commit."""

    async def work(connection: Connection) -> int:
        held = await connection.fetchrow(_HEAD + " for update", tenant, bank_id)
        if held is None:
            raise unknown(bank_id)
        bank = held["bank"]
        count: int = await connection.fetchval(
            "select (select count(*) from memory_units where bank = $1)"
            " + (select count(*) from entities where bank = $1)"
            " + (select count(*) from documents where bank = $1)",
            bank,
        )
        await outbox.emit(
            connection,
            as_head(held, building=True),
            [outbox.OutboxEvent("bank.deleted", {"deleted_count": count})],
        )
        await empty(connection, bank)
        await connection.execute("delete from banks where bank = $1", bank)
        if note is not None:
            now = await connection.fetchval("select now()")
            await note(ErasureEntry(tenant, bank_id, now, whole=True, bank=bank))
        return count

    count = await write(pool, work)
    return {
        "success": True,
        "message": f"bank {bank_id!r} and its contents were deleted",
        "deleted_count": count,
    }


async def empty(connection: Connection, bank: int) -> None:
    """Takes out what most of a bank is, in bulk, children first: a cascade would go row by row."""
    for table in (
        "links", "unit_entities", "observation_history", "memory_units", "chunks",
        "document_attachments", "documents", "segments",
    ):  # fmt: skip
        await connection.execute(f"delete from {table} where bank = $1", bank)


# Settings


async def config(
    pool: Pool, tenant: str, bank_id: str, *defaults: PerBankSettings
) -> dict[str, Any]:
    """{bank_id, config: every setting with its value, overrides: the bank's own}."""
    return _config(bank_id, (await head(pool, tenant, bank_id)).config, *defaults)


async def patch_config(
    pool: Pool,
    tenant: str,
    bank_id: str,
    updates: Mapping[str, Any],
    *defaults: PerBankSettings,
) -> dict[str, Any]:
    """Sets overrides; a null takes one away. All or none are set."""
    changes = bankconfig.checked(updates)

    async def work(connection: Connection) -> Mapping[str, Any]:
        held = await lock(connection, tenant, bank_id)
        config = {k: v for k, v in {**held.config, **changes}.items() if v is not None}
        _may_change(held, config)
        await _set_config(connection, held, config)
        return config

    return _config(bank_id, await write(pool, work), *defaults)


async def reset_config(
    pool: Pool, tenant: str, bank_id: str, *defaults: PerBankSettings
) -> dict[str, Any]:
    """Takes all overrides away, but those that the stored postings depend on."""

    async def work(connection: Connection) -> Mapping[str, Any]:
        held = await lock(connection, tenant, bank_id)
        keep = bankconfig.ANALYSIS if held.next_ordinal else frozenset[str]()
        config = {k: v for k, v in held.config.items() if k in keep}
        await _set_config(connection, held, config)
        return config

    return _config(bank_id, await write(pool, work), *defaults)


async def _set_config(connection: Connection, held: BankHead, config: Mapping[str, Any]) -> None:
    await connection.execute(
        "update banks set config = $2, updated_at = now() where bank = $1", held.bank, dict(config)
    )


def _config(
    bank_id: str, overrides: Mapping[str, Any], *defaults: PerBankSettings
) -> dict[str, Any]:
    return {
        "bank_id": bank_id,
        "config": bankconfig.resolved(overrides, *defaults),
        "overrides": dict(overrides),
    }
