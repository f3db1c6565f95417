"""Rows are shown by the same rule by which ordinals are ranked."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.bank import filters
from retrieval.bank.loader import next_snapshot
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.store.metadata import compiled, holds
from retrieval.store.visibility import Seen, Visibility
from retrieval.types import (
    NO_TIME,
    Filters,
    TagAll,
    TagAny,
    TagLeaf,
    TagNot,
    TagsMatch,
    microseconds,
)
from tests.retrieval.bank.model import Ledger, Memory

pytestmark = pytest.mark.unit

TAGS = ("a", "b", "c")
YEARS = (None, 2023, 2024, 2025)
HELD = [(), ("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "b", "c")]
MEMORIES = [
    Seen(
        str(UUID(int=i + 1)),
        tags,
        datetime(year, 1, 1, tzinfo=UTC) if year else None,
        {"n": str(i % 3)},
    )
    for i, (tags, year) in enumerate((tags, year) for tags in HELD for year in YEARS)
]

names = st.lists(st.sampled_from([*TAGS, "z"]), max_size=3).map(tuple)
leaves = st.builds(TagLeaf, names, st.sampled_from(TagsMatch))
groups = st.recursive(
    leaves,
    lambda part: st.one_of(
        st.builds(TagNot, part),
        st.lists(part, min_size=1, max_size=3).map(tuple).map(TagAll),
        st.lists(part, min_size=1, max_size=3).map(tuple).map(TagAny),
    ),
    max_leaves=5,
)
wanted = st.builds(
    Filters,
    tags=st.none() | names,
    tags_match=st.sampled_from(TagsMatch),
    tag_groups=st.none() | st.lists(groups, max_size=2).map(tuple),
    metadata=st.sampled_from([None, {}, {"n": {"eq": "1"}}, {"n": {"lt": 2}}]),
    as_of=st.sampled_from(
        [None, *(datetime(year, 1, 1, tzinfo=UTC) for year in YEARS[1:] if year)]
    ),
    exclude_ids=st.lists(st.sampled_from([UUID(m.id).bytes for m in MEMORIES]), max_size=3).map(
        tuple
    ),
)


def ledger() -> Ledger:
    made = Ledger()
    made.write(
        [
            Memory(
                UUID(memory.id).bytes,
                tags=tuple(TAGS.index(tag) for tag in memory.tags),
                mentioned_at=NO_TIME
                if memory.mentioned_at is None
                else microseconds(memory.mentioned_at),
            )
            for memory in MEMORIES
        ],
        tags=dict(enumerate(TAGS)),
    )
    return made


BANK = next_snapshot(None, ledger().delta(None), FlatBackend())


@given(wanted)
def test_rows_and_ordinals_agree(asked: Filters) -> None:
    found = None
    if asked.metadata is not None:
        predicates = compiled(asked.metadata)
        found = np.array(
            [i for i, m in enumerate(MEMORIES) if holds(predicates, m.metadata)], np.int32
        )
    visibility = Visibility(asked)
    shown = [visibility.passes(memory) for memory in MEMORIES]
    assert shown == filters.visible(BANK, asked, found).tolist()
    assert not visibility.everything or all(shown)


def test_nothing_asked_shows_everything() -> None:
    assert Visibility(Filters(tags=(), tag_groups=(), metadata={})).everything
    assert not Visibility(Filters(tags_match=TagsMatch.EXACT)).everything
    assert not Visibility(Filters(exclude_ids=(bytes(16),))).everything
