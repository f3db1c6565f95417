"""Which memories satisfy a metadata filter: their rows, read and tested page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from retrieval.store.database.pool import Pool, read
from retrieval.store.memories import AS_NUMBERED
from retrieval.store.metadata import Predicate
from retrieval.types import Ints

_PAGE_OF_TESTS = 4_000
"""Values of metadata that are tested in one pass of the event loop."""


async def matching(
    pool: Pool, bank: int, predicates: Sequence[Predicate], generation: int | None = None
) -> Ints:
    """Ordinals, int32 ascending, of the live memories that satisfy every predicate; `generation`
    as in `memories.rows`. Read and tested in pages that hold the event loop for milliseconds."""
    values: list[Any] = []
    columns, where = [], ["bank = $1", "ordinal > $2"]
    for predicate in predicates:
        values.append(predicate.key)
        column = f"metadata ->> ${len(values) + 4}::text"
        columns.append(column)
        if predicate.texts is not None:
            values.append(list(predicate.texts))
            where.append(f"{column} = any(${len(values) + 4}::text[])")
        elif not predicate.absent:
            where.append(f"{column} is not null")
    statement = (
        f"select {', '.join(['ordinal', *columns])} from memory_units"
        f" where {' and '.join(where)}{AS_NUMBERED} order by ordinal limit $4"
    )
    size = max(1, _PAGE_OF_TESTS // max(1, sum(len(p.tests) for p in predicates)))
    hits: list[int] = []
    last = -1
    while True:
        page = await read(
            pool,
            lambda connection, last=last: connection.fetch(  # type: ignore[misc]
                statement, bank, last, generation, size, *values
            ),
        )
        hits += [
            ordinal
            for ordinal, *held in page
            if all(p.holds(value) for p, value in zip(predicates, held, strict=True))
        ]
        if len(page) < size:
            return np.array(hits, np.int32)
        last = page[-1][0]
