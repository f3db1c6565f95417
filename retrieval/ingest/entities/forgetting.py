"""What entities know from memories that are gone: names, counts, co-occurrences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.ingest.entities import merging
from retrieval.ingest.entities.keys import plain_key
from retrieval.ingest.write.transaction import Change
from retrieval.text import folding


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Entities that are gone: their numbers and ids. `renamed`: how many go by another name."""

    numbers: Sequence[int] = ()
    ids: Sequence[UUID] = ()
    renamed: int = 0


async def mentioned(change: Change, memories: Sequence[UUID]) -> list[int]:
    """The entities that these memories mention; asked before they go."""
    rows = await change.connection.fetch(
        "select distinct entity_no from unit_entities where bank = $1 and unit_id = any($2)",
        change.bank,
        list(memories),
    )
    return [row["entity_no"] for row in rows]


async def forget(change: Change, numbers: Sequence[int]) -> Forgotten:
    """Ends those of the entities that nothing mentions any more; others keep only the names that
    are still used, and are counted anew."""
    if not numbers:
        return Forgotten()
    change.touch()
    connection, bank = change.connection, change.bank
    rows = await connection.fetch(
        "select entity_no, mention, count(*) as n from unit_entities"
        " where bank = $1 and entity_no = any($2) group by entity_no, mention",
        bank,
        list(numbers),
    )
    said: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        said[row["entity_no"]][row["mention"]] += row["n"]
    gone = [number for number in numbers if number not in said]
    ended = await connection.fetch(
        "delete from entities where bank = $1 and coalesce(merged_into, entity_no) = any($2)"
        " returning entity_no, id",
        bank,
        gone,
    )
    renamed = 0
    for number, mentions in said.items():
        keys = sorted({folding.key(mention) for mention in mentions})
        await connection.execute(
            "delete from entity_aliases where bank = $1 and entity_no = $2 and name_key <> all($3)",
            bank,
            number,
            keys,
        )
        ended += await connection.fetch(
            "delete from entities where bank = $1 and merged_into = $2 and name_key <> all($3)"
            " returning entity_no, id",
            bank,
            number,
            keys,
        )
        renamed += await _renamed(change, number, mentions, keys)
    every = [row["entity_no"] for row in ended]
    await connection.execute(
        "delete from entity_cooccurrences where bank = $1 and (a = any($2) or b = any($2))",
        bank,
        every,
    )
    await merging.recount(connection, bank, list(said))
    return Forgotten(every, [row["id"] for row in ended], renamed)


async def _renamed(
    change: Change, number: int, mentions: Counter[str], keys: Sequence[str]
) -> bool:
    """Gives an entity whose name came from what is gone the name that most memories say."""
    held = await change.connection.fetchval(
        "select name_key from entities where bank = $1 and entity_no = $2", change.bank, number
    )
    if held is None or held in keys:
        return False
    for mention, _ in mentions.most_common():
        key = folding.key(mention)
        done = await change.connection.fetchval(
            "update entities set canonical_name = $3, name_key = $4, plain_key = $5, version = $6"
            " where bank = $1 and entity_no = $2 and not exists (select from entities o"
            "  where o.bank = $1 and o.name_key = $4) returning true",
            change.bank,
            number,
            mention,
            key,
            plain_key(key),
            change.version,
        )
        if done:
            return True
    return False
