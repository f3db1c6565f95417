"""Which processes are there, in `ingress_heartbeats`: each says so every few seconds."""

from __future__ import annotations

from uuid import UUID

from retrieval.store.database.pool import Connection, Pool, write

INGRESS = "door"
"""The role of processes that let requests in, by the name that it has always had in the table."""


async def beat(pool: Pool, id: UUID, fresh_s: float, role: str = INGRESS) -> tuple[int, int]:
    """Says that the process `id` is there, for `fresh_s` seconds; (its rank from 0, how many there
    are) among those of its role.

    There is who said so, by the database's clock. While the same ones are there, each sees the same
    number and no two the same rank.
    """

    async def work(connection: Connection) -> tuple[int, int]:
        row = await connection.fetchrow(_BEAT, id, fresh_s, role)
        return row["before"], row["others"] + 1

    return await write(pool, work)


# What a statement writes is not seen by its own select: that counts the others. Programs from
# before say only when they were seen.
_BEAT = """
with said as (
    insert into ingress_heartbeats (id, seen, role, fresh_until)
    values ($1, now(), $3, now() + $2 * interval '1 second')
    on conflict (id) do update set seen = excluded.seen, fresh_until = excluded.fresh_until)
select count(*) as others, count(*) filter (where id < $1) as before from ingress_heartbeats
where id <> $1 and role = $3 and coalesce(fresh_until, seen + interval '7 seconds') > now()
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
