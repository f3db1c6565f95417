"""What deletions left behind reaches its end: texts, models, entities, segments.

Deletions take rows away at once. This does the rest, for an erasure right away and for others by
upkeep, within ERASE_AFTER_S. It may be stopped at any point and done again.
"""

from __future__ import annotations

from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities.curation import prune_entities
from retrieval.ingest.write.transaction import Change, write
from retrieval.store import erasure
from retrieval.store.segments import table as segments


async def settle(deps: WriteContext, tenant: str, bank_id: str) -> int:
    """Takes away what was made from memories that are gone, and compacts the bank's segments
    whatever there is to gain; how many ordinals went. NotFound."""

    async def work(change: Change) -> None:
        models = await erasure.unfounded(change.connection, change.bank)
        await erasure.unwrite(change.connection, change.bank, models)
        await erasure.forget_texts(change.connection, change.held)

    await prune_entities(deps, tenant, bank_id)
    await write(deps, tenant, bank_id, work)
    return await segments.compact(deps.pool, tenant, bank_id, force=True)
