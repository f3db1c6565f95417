"""How banks are: which of them want merging, compacting, pruning, or their postings rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.ingest.context import WriteContext
from retrieval.store import banks
from retrieval.store.database.pool import Connection, read
from retrieval.store.heads import BankHead
from retrieval.store.operations import DEATHS_MOST
from retrieval.store.rebuilds import REEMBED, REINDEX
from retrieval.store.segments.table import COMPACT_LEAST, COMPACT_SHARE, MERGE_FAN

LATELY = 50
"""Banks written last that every look takes in, before it goes on through all the others."""


@dataclass(frozen=True, slots=True)
class BankHealth:
    """fragmented: has enough small segments to merge. sparse: enough dead ordinals to compact.
    buried: version of the newest tombstone, -1 without any. erases: what was deleted is to be gone
    by now. work: the long job that it needs,
    one of KINDS, or ""."""

    head: BankHead
    fragmented: bool
    sparse: bool
    buried: int
    erases: bool
    work: str


_SELECT = f"""
select {banks.HEAD_COLUMNS},
    exists (select from segments s where s.bank = b.bank group by s.kind having count(*) >= $3)
        as fragmented,
    coalesce((select max(t.version) from tombstones t where t.bank = b.bank), -1) as buried,
    (select count(*) from tombstones t where t.bank = b.bank) as dead,
    coalesce(erase_since <= now() - $4 * interval '1 second', false) as erases,
    next_ordinal > (select coalesce(sum(s.count), 0) from segments s
        where s.bank = b.bank and s.kind = 'postings:' || b.analyser) as unlisted,
    next_ordinal > (select coalesce(sum(s.count), 0) from segments s
        where s.bank = b.bank and s.kind = 'vectors:' || b.vector_set) as unseen,
    exists (select from operations o where o.bank = b.bank and o.type = '{REEMBED}'
        and o.status in ('pending', 'processing')) as moving,
    array(select o.type || ' ' || (o.payload->>'target') from operations o
        where o.bank = b.bank and o.status = 'failed' and o.deaths >= {DEATHS_MOST}
        and not exists (select from operations l where l.bank = o.bank and l.type = o.type
            and l.payload->>'target' = o.payload->>'target' and l.created_at > o.created_at)
        ) as fatal
from banks b where b.bank = any($1) and b.bank <> all($2) and b.state = 'open'
"""


async def lately(connection: Connection, share: tuple[int, int]) -> list[int]:
    """The banks written last. `share`: (rank, size): only those whose number, divided by the size,
    leaves the rank."""
    rank, size = share
    rows = await connection.fetch(
        "select bank from banks where last_write_at is not null and bank % $2 = $3"
        " order by last_write_at desc limit $1",
        LATELY,
        size,
        rank,
    )
    return [row["bank"] for row in rows]


async def examine(
    deps: WriteContext,
    written: Sequence[int],
    after: int,
    page: int,
    skip: Sequence[int] = (),
    erase_after_s: float = 86_400.0,
    share: tuple[int, int] = (0, 1),
) -> tuple[list[BankHealth], int]:
    """(banks that want something, where to go on): of those just `written` and of the `page`
    ones after number `after`; the way through all banks begins again at 0. `share`: as in
    `lately`."""
    rank, size = share

    async def work(connection: Connection) -> tuple[list[BankHealth], int]:
        following = await connection.fetch(
            "select bank from banks where bank > $1 and bank % $3 = $4 order by bank limit $2",
            after,
            page,
            size,
            rank,
        )
        numbers = dict.fromkeys((*written, *(row["bank"] for row in following)))
        rows = await connection.fetch(_SELECT, list(numbers), list(skip), MERGE_FAN, erase_after_s)
        found = [_health(deps, row) for row in rows]
        place = following[-1]["bank"] if len(following) == page else 0
        wanting = [c for c in found if _wants(c)]
        order = {bank: i for i, bank in enumerate(numbers)}
        return sorted(wanting, key=lambda c: order[c.head.bank]), place

    return await read(deps.pool, work)


def _wants(found: BankHealth) -> bool:
    return bool(found.fragmented or found.sparse or found.buried >= 0 or found.erases or found.work)


def _health(deps: WriteContext, row: Mapping[str, Any]) -> BankHealth:
    head = banks.as_head(row)
    return BankHealth(
        head,
        row["fragmented"],
        row["dead"] >= COMPACT_LEAST and row["dead"] > COMPACT_SHARE * head.next_ordinal,
        row["buried"],
        row["erases"],
        _work(deps, head, row["unlisted"], row["unseen"] and not row["moving"], row["fatal"]),
    )


def _work(
    deps: WriteContext, head: BankHead, unlisted: bool, unseen: bool, fatal: Sequence[str]
) -> str:
    """`fatal`: "kind target" of jobs that killed whoever worked on them. They are begun again by
    somebody's word only."""
    if not head.next_ordinal:
        return ""
    try:
        ours = deps.analyser(deps.settings.with_overrides(head.config)).version
    except InvalidInput:  # a segmenter that this process does not have
        ours = head.analyser
    if (unlisted or head.analyser != ours) and f"{REINDEX} {ours}" not in fatal:
        return REINDEX
    own = unseen and head.vector_set == deps.vector_set
    return REEMBED if own and f"{REEMBED} {head.vector_set}" not in fatal else ""
