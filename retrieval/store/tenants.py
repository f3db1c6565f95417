"""Tenants and their API keys.

A key is `ff_<8 public>_<secret>`. It is shown once, when it is made; the database holds its public
part, by which it is found, and its SHA-256, which is compared in constant time. A tenant may have
any number of keys: to rotate one, make a second, give it out, revoke the first. Keys of earlier
versions have no public part; they are found by their hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import string
import time
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg

from retrieval.errors import Conflict, FourfoldError, InvalidInput, NotFound
from retrieval.store.database.pool import Connection, Pool, read, write

DEFAULT_TENANT = "default"
CACHE_S = 5.0
"""How long a revoked key may still work in a process that has seen it."""

SCOPES = ("read", "write", "admin", "operator")
"""What a key may do: ask; change memories; change and delete banks; see the whole server's
figures. The first three are a key's unless it is told otherwise."""
TENANTS_SCOPES = SCOPES[:3]

LAST_USE_S = 60.0
"""How exactly a key's last use is kept."""

_CACHE_SIZE = 10_000
_KEY = re.compile(r"ff_([a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_PUBLIC = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Access:
    """Whose key it is, and what it may do."""

    tenant: str
    scopes: frozenset[str] = frozenset(TENANTS_SCOPES)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What can be shown of a key, never the key. `key_id`: its public part; of keys of earlier
    versions the first bytes of its hash."""

    key_id: str
    tenant_id: str
    label: str
    created_at: str
    revoked_at: str | None
    scopes: tuple[str, ...] = TENANTS_SCOPES
    expires_at: str | None = None
    last_used_at: str | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """`until`: on the monotonic clock; never past the key's own end."""

    until: float
    access: Access | None


class _Known:
    """Answers of the last seconds, per pool. Wrong keys have a place of their own: however many
    come, they push no good one out."""

    def __init__(self) -> None:
        self.good: dict[bytes, _Answer] = {}
        self.wrong: dict[bytes, _Answer] = {}
        self.noting: set[asyncio.Task[None]] = set()


_known: weakref.WeakKeyDictionary[Pool, _Known] = weakref.WeakKeyDictionary()


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


def key_id(key: str) -> str:
    """What names a key in lists: its public part; of keys of earlier versions the first bytes of
    its hash."""
    match = _KEY.fullmatch(key)
    return _hash(key)[:8].hex() if match is None else match[1]


def remembered(pool: Pool, key: str) -> bool:
    """Whether the key was good here not long ago: to look at it again is not a guess."""
    return _hash(key) in _known.setdefault(pool, _Known()).good


async def access(pool: Pool, key: str | None) -> Access | None:
    """What an API key gives; None for no key, and for one that is unknown, revoked or over.

    Answers are kept for CACHE_S seconds.
    """
    if not key:
        return None
    digest = _hash(key)
    known = _known.setdefault(pool, _Known())
    now = time.monotonic()
    for answers in (known.good, known.wrong):
        if (hit := answers.get(digest)) is not None and hit.until > now:
            return hit.access
    row = await read(pool, lambda connection: _find(connection, key, digest))
    found = None if row is None else Access(row["tenant_id"], frozenset(row["scopes"]))
    until = now + CACHE_S
    if row is not None and row["left_s"] is not None:
        until = min(until, now + float(row["left_s"]))
    answers = known.wrong if found is None else known.good
    if len(answers) >= _CACHE_SIZE:
        answers.clear()
    answers[digest] = _Answer(until, found)
    if found is None:
        known.good.pop(digest, None)
    elif row is not None and row["due"]:
        noting = asyncio.create_task(_note_use(pool, digest))
        known.noting.add(noting)
        noting.add_done_callback(known.noting.discard)
    return found


async def _find(connection: Connection, key: str, digest: bytes) -> Mapping[str, Any] | None:
    match = _KEY.fullmatch(key)
    by, value = ("key_hash", digest) if match is None else ("public_id", match[1])
    row: Mapping[str, Any] | None = await connection.fetchrow(f"{_SELECT} and {by} = $1", value)
    if row is None or not hmac.compare_digest(bytes(row["key_hash"]), digest):
        return None
    return row


_SELECT = f"""
select key_hash, tenant_id, scopes, extract(epoch from expires_at - now()) as left_s,
    last_used_at is null or last_used_at < now() - interval '{LAST_USE_S} seconds' as due
from api_keys where revoked_at is null and (expires_at is null or expires_at > now())
"""


async def _note_use(pool: Pool, digest: bytes) -> None:
    """Beside the request; a database that takes no writes does not matter."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update api_keys set last_used_at = now() where key_hash = $1", digest
        )

    with suppress(FourfoldError, OSError):
        await write(pool, work)


async def create_key(
    pool: Pool,
    tenant_id: str = DEFAULT_TENANT,
    label: str = "",
    *,
    scopes: Collection[str] = TENANTS_SCOPES,
    expires_at: datetime | None = None,
) -> str:
    """A new key of the tenant, which is made if need be. The only time the key is seen.

    InvalidInput for a name that no tenant may have, an unknown scope, an end in the past; Conflict
    where only another role of the database may make keys.
    """
    if not tenant_id or len(tenant_id) > 200 or not tenant_id.isprintable():
        raise InvalidInput("a tenant needs a name of 1 to 200 printable characters", "tenant_id")
    if not scopes or set(scopes) - set(SCOPES):
        raise InvalidInput(f"scopes are one or more of {', '.join(SCOPES)}", "scopes")
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise InvalidInput("expires_at must be in the future", "expires_at")
    public = "".join(secrets.choice(_PUBLIC) for _ in range(8))
    key = f"ff_{public}_{secrets.token_urlsafe(32)}"

    async def insert(connection: Connection) -> None:
        try:
            await fill(connection)
        except asyncpg.InsufficientPrivilegeError:
            raise Conflict(
                "keys are made with `fourfold keys create` by the role of DATABASE_KEYS_ROLE, not"
                " by the one that this process connects as"
            ) from None

    async def fill(connection: Connection) -> None:
        await connection.execute(
            "insert into tenants (tenant_id) values ($1) on conflict do nothing", tenant_id
        )
        await connection.execute(
            "insert into api_keys (key_hash, tenant_id, label, public_id, scopes, expires_at)"
            " values ($1, $2, $3, $4, $5, $6)",
            _hash(key),
            tenant_id,
            label,
            public,
            [scope for scope in SCOPES if scope in scopes],
            expires_at,
        )

    await write(pool, insert)
    return key


async def revoke_key(pool: Pool, key_id: str) -> None:
    """Ends a key, named by the key itself or by its `key_id`. NotFound if there is none."""
    match = _KEY.fullmatch(key_id)
    public = key_id if match is None else match[1]
    try:
        prefix = bytes.fromhex(key_id)
    except ValueError:
        prefix = _hash(key_id)
    if len(prefix) < 8:
        prefix = _hash(key_id)

    async def update(connection: Connection) -> list[bytes]:
        rows = await connection.fetch(
            "update api_keys set revoked_at = coalesce(revoked_at, now())"
            " where public_id = $3 or substr(key_hash, 1, $2) = $1 returning key_hash",
            prefix,
            len(prefix),
            public,
        )
        return [bytes(row["key_hash"]) for row in rows]

    if not (hashes := await write(pool, update)):
        raise NotFound("there is no such key")
    for digest in hashes:
        _known.setdefault(pool, _Known()).good.pop(digest, None)


async def list_keys(pool: Pool, tenant_id: str | None = None) -> list[ApiKey]:
    """The keys of one tenant or of all, newest first, revoked ones included."""

    async def find(connection: Connection) -> list[ApiKey]:
        rows = await connection.fetch(
            "select * from api_keys where $1::text is null or tenant_id = $1"
            " order by created_at desc",
            tenant_id,
        )
        return [_shown(row) for row in rows]

    return await read(pool, find)


def _shown(row: Mapping[str, Any]) -> ApiKey:
    def when(name: str) -> str | None:
        return row[name].isoformat() if row[name] else None

    return ApiKey(
        key_id=row["public_id"] or bytes(row["key_hash"])[:8].hex(),
        tenant_id=row["tenant_id"],
        label=row["label"],
        created_at=row["created_at"].isoformat(),
        revoked_at=when("revoked_at"),
        scopes=tuple(row["scopes"]),
        expires_at=when("expires_at"),
        last_used_at=when("last_used_at"),
    )
