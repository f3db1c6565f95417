"""Under which names a write's segments go, where a bank changes its model or its analyser."""

from __future__ import annotations

from dataclasses import dataclass

from retrieval.errors import Conflict
from retrieval.store import rebuilds
from retrieval.store.database.pool import Connection
from retrieval.store.heads import BankHead


@dataclass(frozen=True, slots=True)
class Sets:
    """vectors, postings: what this write makes. serving: what the bank's row is to name after it.
    linkable: are the stored vectors of the same model, so that new ones can be compared."""

    vectors: str
    postings: str
    serving: tuple[str, str]
    linkable: bool


async def agreed(connection: Connection, held: BankHead, vectors: str, postings: str) -> Sets:
    """What a writer that makes `vectors` and `postings` may do to the locked bank `held`.

    Conflict where the bank has another model's vectors, unless it is being re-embedded with ours:
    then the write goes into the new set, and its memories are found by it after the switch.
    Another analyser's postings stop nobody: the write adds its own, and the upkeep of a server
    brings the bank to one analyser.
    """
    linkable = held.vector_set in ("", vectors)
    if not linkable and not await rebuilds.running(
        connection, held.bank, rebuilds.REEMBED, vectors
    ):
        raise Conflict(
            f"the vectors of bank {held.bank_id!r} were made with {held.vector_set!r}, this server"
            f" makes {vectors!r}: run `fourfold reembed {held.bank_id}`, or start the server with"
            " the former model"
        )
    serving = (held.vector_set or vectors, held.analyser or postings)
    return Sets(vectors, postings, serving, linkable)
