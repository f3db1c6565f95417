"""Answers under keys of the caller's: the same request again has the same answer.

The answer is stored in the transaction of the work, so a key stands for work that was done once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from retrieval.errors import InvalidInput, NotFound
from retrieval.messages import message
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write

KEPT_S = 24 * 3600.0
KEY_LIMIT = 255  # characters
FIELD = "Idempotency-Key"


@message
@dataclass(frozen=True, slots=True)
class Key:
    """A caller's name for one request; `body_hash` (sha256) tells whether it is that request."""

    name: str
    body_hash: bytes

    @property
    def stored(self) -> str:
        """What stands for the name in the database: it may say anything about anybody."""
        return hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()


class Answered(Exception):
    """Another request with this key was done in the meantime: its answer is there to read."""


class KeyReused(InvalidInput):
    """The key stands for a request with another body."""


def checked(name: str) -> str:
    """The key; InvalidInput if it is none."""
    if not 0 < len(name) <= KEY_LIMIT or not name.isprintable() or not name.strip():
        raise InvalidInput(f"{FIELD} must have 1 to {KEY_LIMIT} printable characters", FIELD)
    return name


async def find(pool: Pool, tenant: str, bank_id: str, key: Key) -> Mapping[str, Any] | None:
    """What was answered under the key within a day; KeyReused if another request was."""

    async def look(connection: Connection) -> Mapping[str, Any] | None:
        try:
            bank = (await banks.head_of(connection, tenant, bank_id)).bank
        except NotFound:
            return None
        row: Mapping[str, Any] | None = await connection.fetchrow(
            "select body_hash, answer from answers where bank = $1 and key = $2"
            " and created_at > now() - $3 * interval '1 second'",
            bank,
            key.stored,
            KEPT_S,
        )
        return row

    row = await read(pool, look)
    if row is None:
        return None
    if row["body_hash"] != key.body_hash:
        raise KeyReused(f"{FIELD} {key.name!r} was used for a request with another body", FIELD)
    answer: Mapping[str, Any] = row["answer"]
    return answer


async def keep(connection: Connection, bank: int, key: Key, answer: Mapping[str, Any]) -> None:
    """Stores the answer, as part of the work; Answered if the key has one already."""
    kept = await connection.fetchval(
        "insert into answers as a (bank, key, body_hash, answer) values ($1, $2, $3, $4)"
        " on conflict (bank, key) do update set body_hash = excluded.body_hash,"
        "  answer = excluded.answer, created_at = excluded.created_at"
        "  where a.created_at <= now() - $5 * interval '1 second' returning true",
        bank,
        key.stored,
        key.body_hash,
        dict(answer),
        KEPT_S,
    )
    if not kept:
        raise Answered


async def let_go(pool: Pool) -> None:
    """Drops answers that are not given any more."""
    await write(
        pool,
        lambda connection: connection.execute(
            "delete from answers where created_at < now() - $1 * interval '1 second'", KEPT_S
        ),
    )


async def once(
    pool: Pool,
    tenant: str,
    bank_id: str,
    key: Key | None,
    work: Callable[[], Awaitable[dict[str, Any]]],
) -> dict[str, Any]:
    """The answer of `work`, which keeps it under the key, or the one that was given before."""
    if key is None:
        return await work()
    while True:
        if (before := await find(pool, tenant, bank_id, key)) is not None:
            return dict(before)
        try:
            return await work()
        except Answered:
            continue
