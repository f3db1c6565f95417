"""The window that an event gives, and which memory the event is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.keyword.analyser import Query
from retrieval.keyword.bm25 import ScoredMatches, scores
from retrieval.recall import event
from retrieval.timex.expression import Relation
from retrieval.types import NO_TIME, FactType, Window, microseconds
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory

pytestmark = pytest.mark.unit

NINE = datetime(2024, 2, 29, 9, tzinfo=UTC)
TEN = NINE + timedelta(hours=1)
DAY = NINE.replace(hour=0)
TICK = timedelta(microseconds=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
QUESTION = np.eye(DIMENSION, dtype=np.float32)[0]


@pytest.mark.parametrize(
    ("relation", "start", "end", "window"),
    [
        ("before", NINE, TEN, Window(None, NINE - TICK)),
        ("until", NINE, TEN, Window(None, TEN)),
        ("after", NINE, TEN, Window(TEN + TICK, None)),
        ("since", NINE, TEN, Window(NINE, None)),
        ("during", NINE, TEN, Window(NINE, TEN)),
        ("during", NINE, NINE, Window(DAY, DAY + timedelta(1) - TICK)),
        ("before", NINE, NINE, Window(None, NINE)),
        ("after", NINE, NINE, Window(NINE, None)),
        ("before", FIRST, FIRST, Window(None, FIRST)),
        ("after", LAST, LAST, Window(LAST, None)),
        ("during", LAST, LAST, Window(LAST - timedelta(1) + TICK, LAST)),
    ],
)  # fmt: skip
def test_windows(relation: Relation, start: datetime, end: datetime, window: Window) -> None:
    assert event.window(event.Event(0, start, end, 1.0), relation) == window


def dated_event(name: bytes, similarity: float, *terms: int, dated: bool = True) -> Memory:
    rest = float(np.sqrt(1 - similarity**2))
    start = microseconds(NINE) if dated else NO_TIME
    vector = (similarity, rest, *([0.0] * (DIMENSION - 2)))
    return Memory(name * 16, terms=terms, vector=vector, occurred_start=start)


def find(*memories: Memory, terms: tuple[int, ...] = (1, 2)) -> event.Event | None:
    bank = bank_of(*memories)
    return event.find(bank, bank.vectors.scan(QUESTION), matches(bank, terms), bank.live)


def bank_of(*memories: Memory) -> ResidentBank:
    ledger = Ledger()
    ledger.write(memories)
    return next_snapshot(None, ledger.delta(None), FlatBackend())


def matches(bank: ResidentBank, terms: tuple[int, ...]) -> ScoredMatches:
    asked = Query(np.array(terms, np.uint64), np.ones(len(terms), np.float32))
    return scores(bank.postings, asked, bank.live, k1=1.2, b=0.75)


def test_similar_alone_or_less_so_with_its_words() -> None:
    far, near = dated_event(b"a", 0.5), dated_event(b"b", 0.7)
    worded = dated_event(b"c", 0.5, 1, 2)
    assert find(far) is None
    for memory in (near, worded):
        found = find(far, memory)
        assert found is not None
        assert (found.ordinal, found.start, found.end) == (1, NINE, NINE)
        assert 0.3 < found.confidence <= 1.0
    assert find(dated_event(b"d", 0.4, 1, 2)) is None


def test_words_decide_between_similar_events() -> None:
    found = find(dated_event(b"a", 0.72), dated_event(b"b", 0.7, 1, 2))
    assert found is not None
    assert found.ordinal == 1


def test_only_what_has_a_date_and_is_allowed() -> None:
    undated, dated = dated_event(b"a", 0.9, 1, 2, dated=False), dated_event(b"b", 0.7)
    found = find(undated, dated)
    assert found is not None
    assert found.ordinal == 1
    bank = bank_of(undated, dated)
    nobody = np.zeros(bank.size, np.bool_)
    assert event.find(bank, bank.vectors.scan(QUESTION), matches(bank, (1,)), nobody) is None


def test_an_event_may_be_of_any_type() -> None:
    assert find(replace(dated_event(b"a", 0.9), fact_type=FactType.EXPERIENCE)) is not None
