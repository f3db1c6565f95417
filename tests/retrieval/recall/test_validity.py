"""What no longer holds, over a real snapshot."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from retrieval.bank.loader import next_snapshot
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.recall import validity
from retrieval.types import NO_TIME, LinkType, microseconds
from tests.retrieval.bank.model import Ledger, Memory

pytestmark = pytest.mark.unit


def year(number: int) -> int:
    return microseconds(datetime(number, 1, 1, tzinfo=UTC))


ANNA, BO = 0, 1
ALIKE = ((0, int(LinkType.SEMANTIC), 0.8),)


@pytest.mark.parametrize(
    ("later", "over"),
    [
        (Memory(b"b" * 16, occurred_start=year(2021), entities=(ANNA,), links=ALIKE), True),
        (Memory(b"b" * 16, mentioned_at=year(2021), entities=(ANNA,), links=ALIKE), True),
        (Memory(b"b" * 16, occurred_start=year(2021), entities=(BO,), links=ALIKE), False),
        (Memory(b"b" * 16, occurred_start=year(2021), links=ALIKE), False),
        (Memory(b"b" * 16, occurred_start=year(2021), entities=(ANNA,)), False),
        (Memory(b"b" * 16, occurred_start=year(2020), entities=(ANNA,), links=ALIKE), False),
        (Memory(b"b" * 16, occurred_start=year(2019), entities=(ANNA,), links=ALIKE), False),
        (Memory(b"b" * 16, occurred_start=year(2030), entities=(ANNA,), links=ALIKE), False),
        (Memory(b"b" * 16, entities=(ANNA,), links=ALIKE), False),
    ],
)
def test_a_later_memory_that_says_nearly_the_same_supersedes(later: Memory, over: bool) -> None:
    first = Memory(b"a" * 16, occurred_start=year(2020), entities=(ANNA,))
    ledger = Ledger()
    ledger.write([first, later])
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    assert validity.superseded(bank, np.array([0], np.int32), year(2024), bank.live).tolist() == [
        over
    ]


def test_what_begins_later_does_not_hold_yet() -> None:
    ledger = Ledger()
    ledger.write([Memory(b"a" * 16, occurred_start=year(2025)), Memory(b"b" * 16)])
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    ordinals = np.array([0, 1], np.int32)
    assert validity.superseded(bank, ordinals, year(2024), bank.live).tolist() == [True, False]
    assert validity.superseded(bank, ordinals, NO_TIME + 1, bank.live).tolist() == [True, False]
    assert validity.superseded(bank, ordinals, year(2026), bank.live).tolist() == [False, False]


def test_what_may_not_be_shown_supersedes_nothing() -> None:
    ledger = Ledger()
    ledger.write(
        [
            Memory(b"a" * 16, occurred_start=year(2020), entities=(ANNA,)),
            Memory(b"b" * 16, occurred_start=year(2021), entities=(ANNA,), links=ALIKE),
        ]
    )
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    first, now = np.array([0], np.int32), year(2024)
    assert validity.superseded(bank, first, now, bank.live).tolist() == [True]
    assert validity.superseded(bank, first, now, np.array([True, False])).tolist() == [False]
