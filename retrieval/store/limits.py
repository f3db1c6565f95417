"""What each tenant may do, in the `tenants` table: set by an operator, read by every process."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from retrieval.errors import InvalidInput, NotFound
from retrieval.store.database.pool import Connection, Pool, read, write

log = logging.getLogger(__name__)

CACHE_S = 5.0
"""How long a process goes on with limits that were changed."""

_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """A tenant's own limits. None: the server's setting holds; 0: no limit.

    Rates and what may run at once hold for all processes together. A tenant's sizes can only be
    smaller than the server's.
    """

    recalls_at_once: int | None = None
    recalls_per_s: float | None = None
    recall_burst: int | None = None
    writes_at_once: int | None = None
    writes_per_s: float | None = None
    write_burst: int | None = None
    reads_at_once: int | None = None
    reads_per_s: float | None = None
    read_burst: int | None = None
    max_body_bytes: int | None = None
    max_items: int | None = None
    llm_tokens_per_day: int | None = None
    llm_calls_at_once: int | None = None
    max_stored_bytes: int | None = None
    """Of all its banks together, as `banks.stored_bytes` counts; checked inside each write."""


NAMES = tuple(field.name for field in fields(TenantLimits))
_NONE = TenantLimits()


def _checked(name: str, value: object) -> int | float | None:
    """The value if the limit may have it; InvalidInput names the limit."""
    if name not in NAMES:
        raise InvalidInput(f"{name} is not a limit; known limits: {', '.join(NAMES)}", name)
    if value is None:
        return None
    broken = name.endswith("_per_s")
    kind = (int, float) if broken else int
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value < 2**53:
        raise InvalidInput(f"{name} must be a {'' if broken else 'whole '}number from 0", name)
    return value


def _stored(tenant_id: str, given: Mapping[str, Any]) -> TenantLimits:
    """What the row says; an entry that cannot be counts as not set."""
    good: dict[str, Any] = {}
    for name, value in given.items():
        try:
            good[name] = _checked(name, value)
        except InvalidInput as error:
            log.warning("limits of tenant %r: %s", tenant_id, error)
    return TenantLimits(**good)


class _Known:
    """Answers of the last seconds, per pool."""

    def __init__(self) -> None:
        self.by_tenant: dict[str, tuple[float, TenantLimits]] = {}


_known: weakref.WeakKeyDictionary[Pool, _Known] = weakref.WeakKeyDictionary()


async def of_tenant(pool: Pool, tenant_id: str) -> TenantLimits:
    """A tenant's limits; one without a row has none. At most CACHE_S seconds old, twice that while
    another request asks for them."""
    known = _known.setdefault(pool, _Known()).by_tenant
    now = time.monotonic()
    hit = known.get(tenant_id)
    if hit is not None:
        if hit[0] > now:
            return hit[1]
        if hit[0] > now - CACHE_S:
            known[tenant_id] = (now + CACHE_S, hit[1])  # one asks, the others need not wait
    elif len(known) >= _CACHE_SIZE:
        known.clear()
    try:
        given = await read(pool, lambda connection: connection.fetchval(_SELECT, tenant_id))
    except BaseException:
        if hit is not None:
            known[tenant_id] = hit
        raise
    found = _NONE if not given else _stored(tenant_id, given)
    known[tenant_id] = (now + CACHE_S, found)
    return found


_SELECT = "select limits from tenants where tenant_id = $1"


async def change(pool: Pool, tenant_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sets the given limits, all or none, and returns those in force; None takes one away.

    NotFound if there is no such tenant. Processes follow within CACHE_S seconds.
    """
    checked = {name: _checked(name, value) for name, value in changes.items()}

    async def work(connection: Connection) -> dict[str, Any]:
        held = await connection.fetchval(_SELECT + " for update", tenant_id)
        if held is None:
            raise NotFound(f"there is no tenant {tenant_id!r}: its first key creates it")
        limits = {k: v for k, v in {**held, **checked}.items() if v is not None and k in NAMES}
        await connection.execute(
            "update tenants set limits = $2 where tenant_id = $1", tenant_id, limits
        )
        return limits

    limits = await write(pool, work)
    _known.setdefault(pool, _Known()).by_tenant.pop(tenant_id, None)
    return limits


async def listed(pool: Pool) -> list[tuple[str, int, dict[str, Any]]]:
    """(tenant, its valid keys, its limits as set) of all tenants, by name."""

    async def find(connection: Connection) -> list[tuple[str, int, dict[str, Any]]]:
        rows = await connection.fetch(
            "select t.tenant_id, t.limits, (select count(*) from api_keys k"
            "  where k.tenant_id = t.tenant_id and k.revoked_at is null) as keys"
            ' from tenants t order by t.tenant_id collate "C"'
        )
        return [(row["tenant_id"], row["keys"], row["limits"]) for row in rows]

    return await read(pool, find)
