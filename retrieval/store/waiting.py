"""How much of one tenant's background work may wait: who looks for the next operation looks through
all that wait, and whoever asked for them is not there to see it."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.errors import RateLimited
from retrieval.store.database.pool import Connection

MOST = 10_000
"""Operations of one tenant, in all its banks."""
LATER_S = 10.0


async def check_room(
    connection: Connection, bank: int, types: Sequence[str] | None = None, most: int = MOST
) -> None:
    """RateLimited where the bank's tenant has so many operations (of these types) that wait or run.

    Whoever asks at the same time may get a place more. What the server queues by itself does not
    ask: it queues no more than there is to do.
    """
    waiting: int = await connection.fetchval(
        "select count(*) from (select from operations o where o.status in ('pending', 'processing')"
        "  and ($2::text[] is null or o.type = any($2))"
        "  and o.bank in (select bank from banks where tenant_id ="
        "   (select tenant_id from banks where bank = $1))"
        "  limit $3) waiting",
        bank,
        None if types is None else list(types),
        most,
    )
    if waiting >= most:
        what = "operations" if types is None else " and ".join(f"{type}s" for type in types)
        raise RateLimited(
            f"{most} {what} of this tenant wait already: come again when some are done", LATER_S
        )
