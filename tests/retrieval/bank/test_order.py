"""Neighbours in time and in a document."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.types import NO_TIME, FactType, LinkType
from tests.retrieval.bank.model import Ledger, Memory

pytestmark = pytest.mark.unit

HOUR = 3_600_000_000


def bank(*hours: float | None, types: dict[int, FactType] | None = None) -> ResidentBank:
    ledger = Ledger()
    ledger.write(
        [
            Memory(
                id=n.to_bytes(16, "big"),
                fact_type=(types or {}).get(n, FactType.WORLD),
                occurred_start=NO_TIME if at is None else int(at * HOUR),
                document=0,
                position=len(hours) - n,
            )
            for n, at in enumerate(hours)
        ]
    )
    return next_snapshot(None, ledger.delta(None), FlatBackend())


def asked(*ordinals: int) -> np.typing.NDArray[np.int32]:
    return np.array(ordinals, np.int32)


@pytest.mark.parametrize(
    ("hours", "weight"),
    [(0, 1.0), (1, 0.958333), (6, 0.75), (12, 0.5), (16.8, 0.3), (24, 0.3), (24.1, None)],
)
def test_the_weight_falls_with_the_hours_between(hours: float, weight: float | None) -> None:
    near = bank(0, hours).temporal_neighbours(asked(0))
    assert near.target.tolist() == ([] if weight is None else [1])
    if weight is not None:
        assert near.weight[0] == pytest.approx(weight, abs=1e-6)
        assert near.type.tolist() == [LinkType.TEMPORAL]


def test_nearest_first_of_the_same_type_and_no_more_than_asked_for() -> None:
    snapshot = bank(10, 11, 9.5, 12, 10, None, 30, types={3: FactType.EXPERIENCE})
    near = snapshot.temporal_neighbours(asked(0, 5, 3, 6))
    assert near.row.tolist() == [0, 0, 0, 0, 3, 3, 3, 3]
    assert near.target.tolist() == [4, 2, 1, 6, 1, 4, 0, 2]
    assert snapshot.temporal_neighbours(asked(0), limit=2).target.tolist() == [4, 2]


def test_many_memories_of_one_instant_cost_no_more_than_the_limit() -> None:
    snapshot = bank(*[5.0] * 500)
    near = snapshot.temporal_neighbours(asked(250, 499), limit=20)
    assert len(near) == 40
    assert near.weight.tolist() == [1.0] * 40
    assert 250 not in near.target[near.row == 0]


def test_documents_are_chained_by_position() -> None:
    snapshot = bank(None, None, None)
    assert snapshot.next.tolist() == [-1, 0, 1]
    assert snapshot.previous.tolist() == [1, 2, -1]
