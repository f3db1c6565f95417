"""Other ids of banks: for reaching them under a new name without touching who uses the old one."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from typing import Any

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write

CACHE_S = 5.0
"""How long an answer is kept, also that there is no such alias."""
BYTES_MAX = 192
MOST = 1_000
"""Aliases of a bank."""
_CACHED_MOST = 10_000

_known: weakref.WeakKeyDictionary[Pool, dict[tuple[str, str], tuple[float, str]]] = (
    weakref.WeakKeyDictionary()
)


async def resolve(pool: Pool, tenant: str, bank_id: str) -> str:
    """The id of the bank that is called so or has this alias; as it is where neither is there."""
    cached = _known.setdefault(pool, {})
    now = time.monotonic()
    hit = cached.get((tenant, bank_id))
    if hit is not None and hit[0] > now:
        return hit[1]
    if len(bank_id.encode(errors="replace")) > BYTES_MAX:
        return bank_id
    found: str | None = await read(
        pool,
        lambda connection: connection.fetchval(
            "select b.bank_id from bank_aliases a join banks b using (bank)"
            " where a.tenant_id = $1 and a.alias = $2 and not exists"
            "  (select from banks o where o.tenant_id = $1 and o.bank_id = $2)",
            tenant,
            bank_id,
        ),
    )
    if len(cached) >= _CACHED_MOST:
        cached.clear()
    cached[tenant, bank_id] = (now + CACHE_S, found or bank_id)
    return found or bank_id


async def listed(pool: Pool, tenant: str, bank_id: str) -> dict[str, Any]:
    """{bank_id, aliases: [{alias, primary}]}, the primary one first, then the oldest."""
    return await read(pool, lambda connection: _listed(connection, tenant, bank_id))


async def add(
    pool: Pool, tenant: str, bank_id: str, alias: str, *, primary: bool
) -> dict[str, Any]:
    """One more id. InvalidInput for what no alias may be, Conflict where it is taken."""
    checked(alias)
    if alias == bank_id:
        raise InvalidInput("alias: the bank is called so already", "alias")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        taken = await connection.fetchval(
            "select exists (select from banks where tenant_id = $1 and bank_id = $2)", tenant, alias
        )
        if not taken and await connection.fetchval(
            "select count(*) >= $2 from bank_aliases where bank = $1", bank, MOST
        ):
            raise Conflict(f"a bank has at most {MOST:,} aliases")
        if taken or not await connection.fetchval(
            "insert into bank_aliases (tenant_id, alias, bank) values ($1, $2, $3)"
            " on conflict do nothing returning true",
            tenant,
            alias,
            bank,
        ):
            raise Conflict(f"alias: {alias!r} is a bank or an alias already")
        if primary:
            await _show(connection, bank, alias)
        return await _listed(connection, tenant, bank_id)

    found = await write(pool, work)
    _forget(pool, tenant, alias)
    return found


async def set_primary(
    pool: Pool, tenant: str, bank_id: str, alias: str, *, primary: bool
) -> dict[str, Any]:
    """Shows the bank under this alias, or under its own id again. NotFound."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        held = await connection.fetchval(
            "select is_primary from bank_aliases where bank = $1 and alias = $2", bank, alias
        )
        if held is None:
            raise _unknown(alias)
        if primary or held:
            await _show(connection, bank, alias if primary else None)
        return await _listed(connection, tenant, bank_id)

    return await write(pool, work)


async def remove(pool: Pool, tenant: str, bank_id: str, alias: str) -> dict[str, Any]:
    """Ends an alias. NotFound."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if not await connection.fetchval(
            "delete from bank_aliases where bank = $1 and alias = $2 returning true", bank, alias
        ):
            raise _unknown(alias)
        return await _listed(connection, tenant, bank_id)

    found = await write(pool, work)
    _forget(pool, tenant, alias)
    return found


def checked(alias: str) -> str:
    """`alias` if a bank may have it; InvalidInput."""
    if len(alias.encode(errors="replace")) > BYTES_MAX or alias.startswith("_"):
        raise InvalidInput(f"alias: 1 to {BYTES_MAX} bytes, no _ in front", "alias")
    try:
        return banks.check_id(alias)
    except InvalidInput as error:
        raise InvalidInput(f"alias: {error}", "alias") from None


def possible(name: str) -> bool:
    """Can a bank have it as an alias?"""
    try:
        checked(name)
    except InvalidInput:
        return False
    return True


async def _show(connection: Connection, bank: int, alias: str | None) -> None:
    await connection.execute(
        "update bank_aliases set is_primary = (alias is not distinct from $2) where bank = $1",
        bank,
        alias,
    )


async def _listed(connection: Connection, tenant: str, bank_id: str) -> dict[str, Any]:
    bank = (await banks.head_of(connection, tenant, bank_id)).bank
    rows: list[Mapping[str, Any]] = await connection.fetch(
        "select alias, is_primary from bank_aliases where bank = $1"
        " order by is_primary desc, created_at, alias",
        bank,
    )
    return {
        "bank_id": bank_id,
        "aliases": [{"alias": row["alias"], "primary": row["is_primary"]} for row in rows],
    }


def _forget(pool: Pool, tenant: str, alias: str) -> None:
    _known.setdefault(pool, {}).pop((tenant, alias), None)


def _unknown(alias: str) -> NotFound:
    return NotFound(f"the bank has no alias {alias[:100]!r}")
