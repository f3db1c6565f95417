"""What the cross-encoder reads of a memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import PathLink
from retrieval.text.months import MONTHS

LONGEST = 3
"""Memories of a path that are read."""

READ_OF_EACH = 200
"""Characters read of each: the memory itself must not be pushed out of the model's length."""

TELLING = (PathLink.ENTITY, PathLink.SUBJECT, PathLink.CAUSAL)
"""Links that say why a memory matters; the next turn or a similar text does not."""


def document(text: str, context: str | None, occurred_start: datetime | None) -> str:
    """ "[Date: June 5, 2022 (2022-06-05)] context: text"; the parts that are missing fall away.

    English month names whatever the locale, the day without a leading zero, dates in UTC.
    """
    read = f"{context}: {text}" if context else text
    if occurred_start is None:
        return read
    day = occurred_start.astimezone(UTC)
    return (
        f"[Date: {MONTHS[day.month - 1]} {day.day}, {day.year} "
        f"({day.year:04d}-{day.month:02d}-{day.day:02d})] {read}"
    )


def path_prefixed(
    texts: Sequence[str],
    documents: Sequence[str],
    source: NDArray[np.intp],
    link: NDArray[np.uint8],
) -> list[str]:
    """The documents, each with the texts of its path in front: "first; second; document".

    All of the candidates, in one order. source (c,): the place of the memory that each was reached
    from, -1 for none; link (c,): along what. Only TELLING links are read. A path ends where it
    would repeat itself.
    """
    parent = np.where(np.isin(link, TELLING), source, -1).tolist()
    read = []
    for i, document in enumerate(documents):
        path: list[int] = []
        at = parent[i]
        while at >= 0 and at != i and at not in path and len(path) < LONGEST:
            path.append(at)
            at = parent[at]
        read.append("; ".join([*(texts[p][:READ_OF_EACH] for p in reversed(path)), document]))
    return read
