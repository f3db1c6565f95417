"""Filters as masks: the tag table, groups, types, time."""

from datetime import UTC, datetime

import numpy as np
import pytest

from retrieval.bank.filters import allowed
from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.types import (
    FactType,
    Filters,
    TagAll,
    TagAny,
    TagGroup,
    TagLeaf,
    TagNot,
    TagsMatch,
    Window,
    microseconds,
)
from tests.retrieval.bank.model import Ledger, Memory

pytestmark = pytest.mark.unit

A, B, C = 0, 1, 2


@pytest.fixture(scope="module")
def bank() -> ResidentBank:
    """0: untagged, 1: a, 2: a b, 3: b c, 4: a b c"""
    ledger = Ledger()
    held = [(), (A,), (A, B), (B, C), (A, B, C)]
    ledger.write(
        [Memory(bytes([n + 1]) * 16, tags=tags) for n, tags in enumerate(held)],
        tags={A: "a", B: "b", C: "c"},
    )
    return next_snapshot(None, ledger.delta(None), FlatBackend())


def kept(bank: ResidentBank, filters: Filters) -> list[int]:
    return np.flatnonzero(allowed(bank, filters)).tolist()


@pytest.mark.parametrize(
    ("match", "tags", "want"),
    [
        (TagsMatch.ANY, ("a", "b"), [0, 1, 2, 3, 4]),
        (TagsMatch.ANY, ("c",), [0, 3, 4]),
        (TagsMatch.ANY_STRICT, ("a",), [1, 2, 4]),
        (TagsMatch.ALL, ("a", "b"), [0, 2, 4]),
        (TagsMatch.ALL_STRICT, ("a", "b"), [2, 4]),
        (TagsMatch.EXACT, ("b", "a"), [2]),
        (TagsMatch.EXACT, ("a", "a"), [1]),
        (TagsMatch.EXACT, (), [0]),
        (TagsMatch.ANY_STRICT, (), [0, 1, 2, 3, 4]),
        (TagsMatch.ANY, ("unknown",), [0]),
        (TagsMatch.ALL_STRICT, ("a", "unknown"), []),
        (TagsMatch.EXACT, ("unknown",), []),
        (TagsMatch.ANY_STRICT, ("A",), []),
    ],
)
def test_modes(
    bank: ResidentBank, match: TagsMatch, tags: tuple[str, ...], want: list[int]
) -> None:
    assert kept(bank, Filters(tags=tags, tags_match=match)) == want


def test_no_tags_means_no_filter_but_for_exact(bank: ResidentBank) -> None:
    assert kept(bank, Filters()) == [0, 1, 2, 3, 4]
    assert kept(bank, Filters(tags_match=TagsMatch.EXACT)) == [0]


@pytest.mark.parametrize(
    ("group", "want"),
    [
        (TagLeaf(("a",)), [1, 2, 4]),
        (TagNot(TagLeaf(("a",))), [0, 3]),
        (TagNot(TagLeaf(("a",), TagsMatch.ANY)), [3]),
        (TagAll((TagLeaf(("a",)), TagLeaf(("c",)))), [4]),
        (TagAny((TagLeaf(("a", "b"), TagsMatch.EXACT), TagLeaf(("c",)))), [2, 3, 4]),
        (TagLeaf((), TagsMatch.EXACT), [0]),
        (TagLeaf((), TagsMatch.ANY), [0]),
        (TagLeaf((), TagsMatch.ANY_STRICT), []),
        (TagLeaf((), TagsMatch.ALL), [0, 1, 2, 3, 4]),
        (TagLeaf((), TagsMatch.ALL_STRICT), [1, 2, 3, 4]),
    ],
)
def test_groups(bank: ResidentBank, group: TagGroup, want: list[int]) -> None:
    assert kept(bank, Filters(tag_groups=(group,))) == want


def test_groups_are_anded_and_exact_adds_untagged(bank: ResidentBank) -> None:
    both = (TagLeaf(("a",)), TagNot(TagLeaf(("c",))))
    assert kept(bank, Filters(tag_groups=both)) == [1, 2]
    assert kept(bank, Filters(tag_groups=both, tags_match=TagsMatch.EXACT)) == []


def test_types_times_ids_and_the_dead() -> None:
    day = microseconds(datetime(2024, 5, 1, tzinfo=UTC))
    ledger = Ledger()
    ledger.write(
        [
            Memory(b"a" * 16, mentioned_at=day),
            Memory(b"b" * 16, FactType.OBSERVATION, mentioned_at=day + 1),
            Memory(b"c" * 16, FactType.EXPERIENCE, occurred_start=day),
            Memory(b"d" * 16, mentioned_at=day),
        ]
    )
    ledger.write(dead=[3])
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    assert kept(bank, Filters()) == [0, 1, 2]
    assert kept(bank, Filters(types=(FactType.WORLD, FactType.EXPERIENCE))) == [0, 2]
    then = datetime(2024, 5, 1, tzinfo=UTC)
    assert kept(bank, Filters(as_of=then)) == [0, 2]
    assert kept(bank, Filters(window=Window(then, then))) == [0, 2]
    assert kept(bank, Filters(exclude_ids=(b"a" * 16, b"x" * 16))) == [1, 2]
    assert np.flatnonzero(allowed(bank, Filters(), np.array([1, 99], np.int32))).tolist() == [1]
