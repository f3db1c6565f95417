"""The database's epoch: which history of it the versions of its banks belong to.

Versions and ordinals count commits. A database that comes back in an earlier state counts the same
numbers again, for other commits. So every head names the epoch, and what is held of another one is
loaded anew.
"""

from __future__ import annotations

from retrieval.store.database.pool import Connection, Pool, write


async def renew(target: Pool | Connection) -> str:
    """Begins a new epoch, and returns its name: call it when a database was restored, or when its
    new primary may lack commits, before anything is served from it.

    Replicas forget what they hold of the former one with the next request for it; nothing stored
    changes.
    """

    async def work(connection: Connection) -> str:
        name: str = await connection.fetchval(
            "update database_epoch set epoch = gen_random_uuid()::text, began = now()"
            " returning epoch"
        )
        return name

    return await write(target, work) if isinstance(target, Pool) else await work(target)
