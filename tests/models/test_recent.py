"""Vectors of recent questions: bounded in number and bytes, each for its tenant."""

from __future__ import annotations

import numpy as np
import pytest

from models.recent import LONGEST_CHARS, RecentVectors

pytestmark = pytest.mark.unit

VECTOR = np.ones(384, np.float32)


def test_entries_belong_to_their_tenant() -> None:
    recent = RecentVectors(10)
    recent.put("a", "one", VECTOR)
    assert recent.get("b", "one") is None
    assert recent.get("", "one") is None
    found = recent.get("a", "one")
    assert found is not None
    np.testing.assert_array_equal(found, VECTOR)
    assert found is not VECTOR


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent = RecentVectors(2)
    for text in ("one", "two"):
        recent.put("a", text, VECTOR)
    recent.get("a", "one")
    recent.put("a", "three", VECTOR)
    assert recent.get("a", "two") is None
    assert recent.get("a", "one") is not None


def test_bytes_are_bounded_and_given_back() -> None:
    recent = RecentVectors(1 << 20, most_bytes=100_000)
    for at in range(1000):
        recent.put("a", f"{at} " + "x" * (at % 500), VECTOR)
        assert recent.bytes <= 100_000
    for _ in range(3):
        recent.put("a", "same", VECTOR)
    before = recent.bytes
    recent.put("a", "same", VECTOR)
    assert recent.bytes == before
    small = RecentVectors(10, most_bytes=10)
    small.put("a", "one", VECTOR)
    assert small.bytes == 0
    assert small.get("a", "one") is None


def test_nothing_is_kept_of_long_texts_or_without_room() -> None:
    recent = RecentVectors(10)
    recent.put("a", "x" * (LONGEST_CHARS + 1), VECTOR)
    assert recent.bytes == 0
    none = RecentVectors(0)
    none.put("a", "one", VECTOR)
    assert none.get("a", "one") is None
