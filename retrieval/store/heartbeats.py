"""Which processes let requests in, in `ingress_heartbeats`: each says so every few seconds."""

from __future__ import annotations

from uuid import UUID

from retrieval.store.database.pool import Connection, Pool, write


async def beat(pool: Pool, id: UUID, fresh_s: float) -> tuple[int, int]:
    """Says that the process `id` is there; (its rank from 0, how many there are).

    There is who said so within `fresh_s` seconds, by the database's clock. While the same ones are
    there, each sees the same number and no two the same rank.
    """

    async def work(connection: Connection) -> tuple[int, int]:
        row = await connection.fetchrow(_BEAT, id, fresh_s)
        return row["before"], row["others"] + 1

    return await write(pool, work)


# What a statement writes is not seen by its own select: that counts the others.
_BEAT = """
with said as (
    insert into ingress_heartbeats (id, seen) values ($1, now())
    on conflict (id) do update set seen = now())
select count(*) as others, count(*) filter (where id < $1) as before from ingress_heartbeats
where id <> $1 and seen > now() - $2 * interval '1 second'
"""


async def leave(pool: Pool, id: UUID, forget_s: float) -> None:
    """Says that the process is gone, as are those that said nothing for `forget_s` seconds."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "delete from ingress_heartbeats where id in (select id from ingress_heartbeats"
            "  where id = $1 or seen < now() - $2 * interval '1 second' for update skip locked)",
            id,
            forget_s,
        )

    await write(pool, work)
