"""Secrets of webhooks, sealed in the database.

The first of the operator's keys seals, all of them open, so that keys can be changed. Without one a
key is made and kept in the database: then a copy of the database opens what is sealed in it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import orjson
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from retrieval.store.database.pool import Connection, Pool, write

_NAME = "webhooks"


class Sealed(Exception):
    """No key opens it."""

    def __init__(self) -> None:
        super().__init__(
            "no key of WEBHOOK_SECRET_KEY opens the secret: it was sealed with another"
        )


class Vault:
    """Seals and opens. `keys`: texts of any length."""

    def __init__(self, pool: Pool, keys: Sequence[str] = ()) -> None:
        self._pool = pool
        self._keys = [_fernet(key.encode()) for key in keys]
        self._every: MultiFernet | None = None

    async def seal(self, content: Any) -> bytes:
        """Any JSON, sealed."""
        return (await self._ring()).encrypt(orjson.dumps(content))

    async def open(self, sealed: bytes | None) -> Any:
        """What was sealed; None for None. Sealed where no key fits."""
        if sealed is None:
            return None
        try:
            return orjson.loads((await self._ring()).decrypt(bytes(sealed)))
        except InvalidToken:
            raise Sealed from None

    async def _ring(self) -> MultiFernet:
        if self._every is None:
            # Its own key stays behind the operator's: what was sealed before there was one opens.
            self._every = MultiFernet([*self._keys, _fernet(await self._made())])
        return self._every

    async def _made(self) -> bytes:
        async def work(connection: Connection) -> bytes:
            await connection.execute(
                "insert into server_keys (name, value) values ($1, $2) on conflict do nothing",
                _NAME,
                Fernet.generate_key(),
            )
            return bytes(
                await connection.fetchval("select value from server_keys where name = $1", _NAME)
            )

        return await write(self._pool, work)


def _fernet(key: bytes) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(key).digest()))
