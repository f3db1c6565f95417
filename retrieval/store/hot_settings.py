"""Settings in the table `hot_settings`: an operator changes them, and every process follows."""

from __future__ import annotations

from typing import Any

from retrieval.store.database.pool import Connection, Pool, read, write


async def everything(pool: Pool) -> dict[str, Any]:
    """Values by name, as stored."""

    async def find(connection: Connection) -> dict[str, Any]:
        rows = await connection.fetch("select name, value from hot_settings")
        return {row["name"]: row["value"] for row in rows}

    return await read(pool, find)


async def put(pool: Pool, name: str, value: Any) -> None:
    """Sets one; `value` is anything that JSON can say."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "insert into hot_settings (name, value) values ($1, $2) on conflict (name)"
            " do update set value = excluded.value, changed_at = now()",
            name,
            value,
        )

    await write(pool, work)


async def remove(pool: Pool, name: str) -> bool:
    """Returns one to what each process was started with; False where it was not set."""

    async def work(connection: Connection) -> bool:
        done: str = await connection.execute("delete from hot_settings where name = $1", name)
        return done != "DELETE 0"

    return await write(pool, work)
