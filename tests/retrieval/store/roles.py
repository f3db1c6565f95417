"""Roles on the tests' server, and pools that connect as one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from retrieval.keyword import backends
from retrieval.store.database import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool, write
from retrieval.store.database.roles import Roles, grant

TABLES = [*migrate.tables(), *backends.TABLES]


def as_role(dsn: str, role: str) -> str:
    """The DSN of a server that asks for no password, for another role."""
    return dsn.replace("//fourfold@", f"//{role}@")


@asynccontextmanager
async def made(owner: Pool, *kinds: str) -> AsyncIterator[list[str]]:
    """New roles that may log in; they and their rights go at the end."""
    names = [f"{kind}_{uuid4().hex[:8]}" for kind in kinds]
    for name in names:
        await owner.execute(f"create role {name} login")
    try:
        yield names
    finally:
        for name in names:
            await owner.execute(f"drop owned by {name}; drop role {name}")


async def granted(owner: Pool, roles: Roles) -> None:
    await write(owner, lambda connection: grant(connection, owner.schema, TABLES, roles))


@asynccontextmanager
async def pool_of(owner: Pool, dsn: str, role: str, max_size: int = 8) -> AsyncIterator[Pool]:
    """As a server that connects as `role`."""
    settings = PoolSettings(
        as_role(dsn, role), schema=owner.schema, min_size=1, max_size=max_size, command_timeout_s=20
    )
    opened = await open_pool(settings)
    try:
        yield opened
    finally:
        await opened.close()
