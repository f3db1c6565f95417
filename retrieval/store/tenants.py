"""Tenants and their API keys.

A key is shown once, when it is made; the database holds its SHA-256.
"""

from __future__ import annotations

import hashlib
import secrets
import time
import weakref
from dataclasses import dataclass

from retrieval.errors import InvalidInput, NotFound
from retrieval.store.database.pool import Connection, Pool, read, write

DEFAULT_TENANT = "default"
CACHE_S = 5.0
"""How long a revoked key may still work in a process that has seen it."""

_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What can be shown of a key: the first bytes of its hash, never the key."""

    key_id: str
    tenant_id: str
    label: str
    created_at: str
    revoked_at: str | None


class _Known:
    """Answers of the last seconds, per pool."""

    def __init__(self) -> None:
        self.by_hash: dict[bytes, tuple[float, str | None]] = {}


_known: weakref.WeakKeyDictionary[Pool, _Known] = weakref.WeakKeyDictionary()


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def key_id(key: str) -> str:
    """What names a key in lists."""
    return _hash(key)[:8].hex()


async def tenant_of(pool: Pool, key: str | None) -> str | None:
    """The tenant of an API key; None for no key, an unknown one or a revoked one.

    Answers are kept for CACHE_S seconds.
    """
    if not key:
        return None
    digest = _hash(key)
    known = _known.setdefault(pool, _Known()).by_hash
    now = time.monotonic()
    if (hit := known.get(digest)) is not None and hit[0] > now:
        return hit[1]

    async def find(connection: Connection) -> str | None:
        tenant: str | None = await connection.fetchval(
            "select tenant_id from api_keys where key_hash = $1 and revoked_at is null", digest
        )
        return tenant

    tenant = await read(pool, find)
    if len(known) >= _CACHE_SIZE:
        known.clear()
    known[digest] = (now + CACHE_S, tenant)
    return tenant


async def create_key(pool: Pool, tenant_id: str = DEFAULT_TENANT, label: str = "") -> str:
    """A new key of the tenant, which is made if need be. The only time the key is seen.

    InvalidInput for a name that no tenant may have.
    """
    if not tenant_id or len(tenant_id) > 200 or not tenant_id.isprintable():
        raise InvalidInput("a tenant needs a name of 1 to 200 printable characters", "tenant_id")
    key = "ff_" + secrets.token_urlsafe(32)

    async def insert(connection: Connection) -> None:
        await connection.execute(
            "insert into tenants (tenant_id) values ($1) on conflict do nothing", tenant_id
        )
        await connection.execute(
            "insert into api_keys (key_hash, tenant_id, label) values ($1, $2, $3)",
            _hash(key),
            tenant_id,
            label,
        )

    await write(pool, insert)
    return key


async def revoke_key(pool: Pool, key_id: str) -> None:
    """Ends a key, named by the key itself or by its `key_id`. NotFound if there is none."""
    try:
        prefix = bytes.fromhex(key_id)
    except ValueError:
        prefix = _hash(key_id)

    async def update(connection: Connection) -> list[bytes]:
        rows = await connection.fetch(
            "update api_keys set revoked_at = coalesce(revoked_at, now())"
            " where substr(key_hash, 1, $2) = $1 returning key_hash",
            prefix,
            len(prefix),
        )
        return [bytes(row["key_hash"]) for row in rows]

    if len(prefix) < 8 or not (hashes := await write(pool, update)):
        raise NotFound("there is no such key")
    for digest in hashes:
        _known.setdefault(pool, _Known()).by_hash.pop(digest, None)


async def list_keys(pool: Pool, tenant_id: str | None = None) -> list[ApiKey]:
    """The keys of one tenant or of all, newest first, revoked ones included."""

    async def find(connection: Connection) -> list[ApiKey]:
        rows = await connection.fetch(
            "select * from api_keys where $1::text is null or tenant_id = $1"
            " order by created_at desc",
            tenant_id,
        )
        return [
            ApiKey(
                key_id=bytes(row["key_hash"])[:8].hex(),
                tenant_id=row["tenant_id"],
                label=row["label"],
                created_at=row["created_at"].isoformat(),
                revoked_at=row["revoked_at"].isoformat() if row["revoked_at"] else None,
            )
            for row in rows
        ]

    return await read(pool, find)
