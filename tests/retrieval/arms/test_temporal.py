"""The temporal arm over a real snapshot, and its parts over arrays."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from retrieval.arms import temporal
from retrieval.bank.filters import WindowBounds
from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.blind import Blind
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.types import NO_TIME, FactType, LinkType, microseconds
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory

pytestmark = pytest.mark.unit

DAY = 86_400_000_000
MARCH = datetime(2024, 3, 1, tzinfo=UTC)


def instants(low: int | None, high: int | None) -> WindowBounds:
    """A window of UTC."""
    return WindowBounds(low, high, low, high)


WINDOW = instants(
    microseconds(MARCH),
    microseconds(datetime(2024, 5, 31, 23, 59, 59, 999999, tzinfo=UTC)),
)
QUESTION = np.eye(DIMENSION, dtype=np.float32)[0]


def at(day: datetime) -> int:
    return microseconds(day)


def similar(value: float) -> tuple[float, ...]:
    """A vector whose cosine with QUESTION is `value`."""
    return (value, float(np.sqrt(1 - value * value)), *([0.0] * (DIMENSION - 2)))


def bank_of(*memories: Memory) -> ResidentBank:
    ledger = Ledger()
    ledger.write(memories)
    return next_snapshot(None, ledger.delta(None), FlatBackend())


def ids(n: int) -> list[bytes]:
    return [bytes([i + 1]) * 16 for i in range(n)]


def search(
    bank: ResidentBank, window: WindowBounds = WINDOW, limit: int = 300
) -> temporal.TemporalHits:
    return temporal.search(
        bank,
        bank.vectors.scan(QUESTION),
        bank.live,
        temporal.touching(bank, bank.live, window),
        FactType.WORLD,
        window,
        limit=limit,
        min_similarity=0.1,
    )


def test_only_what_touches_the_window_and_the_question_enters() -> None:
    inside = Memory(b"a" * 16, occurred_start=at(MARCH), vector=similar(0.8))
    mentioned = Memory(b"b" * 16, mentioned_at=at(MARCH), vector=similar(0.7))
    outside = Memory(b"c" * 16, occurred_start=at(MARCH) - DAY, vector=similar(0.9))
    unlike = Memory(b"d" * 16, occurred_start=at(MARCH), vector=similar(0.05))
    bank = bank_of(inside, mentioned, outside, unlike)
    # The day before the window comes as a neighbour in time (24 h), with no proximity of its own.
    got = dict(zip(search(bank).ordinals.tolist(), search(bank).proximity.tolist(), strict=True))
    assert set(got) == {0, 1, 2}
    assert got[2] == 0.0
    assert search(bank).ordinals.tolist()[:2] == [0, 1]


def test_an_open_side_reaches_to_the_end_of_time() -> None:
    dates = [datetime(y, 1, 1, tzinfo=UTC) for y in (1990, 2010, 2030)]
    bank = bank_of(
        *(
            Memory(i, occurred_start=at(d), vector=similar(0.5))
            for i, d in zip(ids(3), dates, strict=True)
        )
    )
    since = search(bank, instants(at(datetime(2000, 1, 1, tzinfo=UTC)), None))
    assert sorted(since.ordinals.tolist()) == [1, 2]
    assert since.proximity.tolist() == [1.0, 1.0]
    before = search(bank, instants(None, at(datetime(2000, 1, 1, tzinfo=UTC))))
    assert before.ordinals.tolist() == [0]


def test_every_part_of_the_window_speaks() -> None:
    """Forty similar memories in March do not silence the two of May."""
    march = [
        Memory(i, occurred_start=at(MARCH) + n * 60_000_000, vector=similar(0.9 - n / 1000))
        for n, i in enumerate(ids(40))
    ]
    may = [
        Memory(bytes([100 + n]) * 16, occurred_start=at(MARCH) + 80 * DAY, vector=similar(0.3))
        for n in range(2)
    ]
    got = search(bank_of(*march, *may)).ordinals[: temporal.ENTRY_POINTS].tolist()
    assert got[:2] == [0, 40]
    assert 41 in got


def test_buckets() -> None:
    days = [MARCH, MARCH + timedelta(14), MARCH + timedelta(46), MARCH + timedelta(91)]
    dates = np.array([at(d) for d in days] * 3 + [NO_TIME], np.int64)
    similarity = np.linspace(0.9, 0.3, 13).astype(np.float32)
    assert temporal.cover(dates, similarity, WINDOW).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    one_day = np.full(12, at(MARCH), np.int64)
    assert temporal.cover(one_day, similarity[:12], WINDOW).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("type_", "weight", "score"),
    [
        (LinkType.CAUSED_BY, 0.9, 1.0),
        (LinkType.ENABLES, 0.6, 0.63),
        (LinkType.TEMPORAL, 0.5, 0.35),
        (LinkType.CAUSED_BY, 0.05, None),
    ],
)
def test_relevance_spreads_along_links(type_: LinkType, weight: float, score: float | None) -> None:
    far = Memory(b"f" * 16, occurred_start=at(MARCH) - 400 * DAY, vector=similar(0.5))
    entry = Memory(
        b"e" * 16,
        occurred_start=at(MARCH) + 46 * DAY,
        vector=similar(0.9),
        links=((0, type_, weight),),
    )
    hits = search(bank_of(far, entry))
    if score is None:
        assert hits.ordinals.tolist() == [1]
    else:
        assert hits.ordinals.tolist() == [1, 0]
        assert hits.scores[1] == pytest.approx(score, abs=1e-5)
        assert hits.proximity[1] == 0.0


def test_the_limit_holds_and_entry_points_always_come() -> None:
    story = [
        Memory(i, occurred_start=at(MARCH) + n * 3_600_000_000, vector=similar(0.9 - n / 200))
        for n, i in enumerate(ids(60))
    ]
    bank = bank_of(*story)
    assert len(search(bank, limit=25)) == 25
    assert len(search(bank, limit=3)) == temporal.ENTRY_POINTS
    every = search(bank)
    assert len(set(every.ordinals.tolist())) == len(every)


def test_dead_and_filtered_memories_are_no_bridge() -> None:
    ledger = Ledger()
    start = at(MARCH) + 46 * DAY
    ledger.write(
        [
            Memory(i, occurred_start=start + n * DAY, vector=similar(0.5))
            for n, i in enumerate(ids(3))
        ]
    )
    ledger.write(dead=[1])
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    assert sorted(search(bank).ordinals.tolist()) == [0, 2]


def test_without_a_vector_dates_still_find() -> None:
    bank = bank_of(Memory(b"a" * 16, occurred_start=at(MARCH), vector=similar(0.8)))
    inside = temporal.touching(bank, bank.live, WINDOW)
    hits = temporal.search(
        bank, Blind(), bank.live, inside, FactType.WORLD, WINDOW, limit=10, min_similarity=0.1
    )
    assert hits.ordinals.tolist() == [0]


def test_types_merge_rank_by_rank() -> None:
    def part(*ordinals: int) -> temporal.TemporalHits:
        n = len(ordinals)
        return temporal.TemporalHits(
            np.array(ordinals, np.int32), np.zeros(n, np.float32), np.zeros(n)
        )

    merged = temporal.merge(
        [part(1, 2, 3), part(7, 8)],
        [np.array([0.2, 0.9, 0.1], np.float32), np.array([0.5, 0.3], np.float32)],
    )
    assert merged.ordinals.tolist() == [7, 1, 2, 8, 3]


def test_what_holds_all_through_a_window_leads_nowhere() -> None:
    """Its neighbours in time lie where it began."""
    begun = at(MARCH) - 400 * DAY
    story = Memory(b"n" * 16, occurred_start=begun + 3_600_000_000, vector=similar(0.5))
    state = Memory(b"s" * 16, occurred_start=begun, valid_from=begun, vector=similar(0.9))
    assert search(bank_of(story, state)).ordinals.tolist() == [1]
    over = replace(state, valid_until=at(MARCH) + DAY)
    assert search(bank_of(story, over)).ordinals.tolist() == [1, 0]
    since = replace(over, valid_until=NO_TIME)
    assert search(bank_of(story, since), WINDOW._replace(low=None)).ordinals.tolist() == [1, 0]
