"""Known inputs and outputs of the ranking stage, to six decimals."""

from datetime import UTC, datetime

import numpy as np
import pytest

from retrieval.arms.proximity import proximity
from retrieval.ranking import boosts, budgets, fusion, packing, scoring
from retrieval.ranking.document import document
from retrieval.settings import RecallSettings
from retrieval.types import NO_TIME, Budget, Hits

pytestmark = pytest.mark.unit


def hits(*ordinals: int) -> Hits:
    return Hits(np.array(ordinals, np.int32), np.linspace(1, 0.5, len(ordinals)).astype(np.float32))


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


def ranks(*row: int) -> np.ndarray:
    return np.array([row], np.int32)


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ((1, 5, 0, 0), 0.031778),
        ((1, 0, 0, 0), 0.016393),
        ((3, 2, 10, 1), 0.062681),
        ((1, 1, 1, 1), 0.065574),
        ((0, 300, 0, 0), 0.002778),
    ],
)
def test_rrf(row: tuple[int, ...], score: float) -> None:
    assert fusion.rank_scores(ranks(*row))[0] == pytest.approx(score, abs=5e-7)


@pytest.mark.parametrize(
    ("setting", "row", "score"),
    [
        ("graph:low", (0, 0, 8, 0), 0.015625),
        ("graph", (0, 0, 8, 0), 0.016129),
        ("Graph:HIGH", (0, 0, 8, 0), 0.016393),
        ("graph:low", (10, 0, 8, 0), 0.029911),
        ("graph:medium", (10, 0, 8, 0), 0.030415),
        ("graph:high", (10, 0, 8, 0), 0.030679),
        ("graph:high", (0, 0, 15, 0), 0.016162),
        ("graph:high", (0, 0, 16, 0), 0.016129),
        ("graph:high", (0, 0, 17, 0), 0.016097),
    ],
)
def test_boosted_key(setting: str, row: tuple[int, ...], score: float) -> None:
    divisors = boosts.parse(setting).divisors
    assert fusion.rank_scores(ranks(*row), divisors)[0] == pytest.approx(score, abs=5e-7)


@pytest.mark.parametrize(
    ("setting", "order"),
    [
        ("", "adfebc"),
        ("graph:low", "adfebc"),
        ("graph:high", "adfceb"),
        ("graph:medium,bm25:low", "adfebc"),
    ],
)
def test_boosts_order_the_pool_above_the_cap(setting: str, order: str) -> None:
    names = "abcdef"
    pool = {
        "a": (1, 4, 0, 0),
        "b": (2, 0, 0, 0),
        "c": (0, 0, 8, 0),
        "d": (0, 0, 20, 3),
        "e": (0, 1, 0, 0),
        "f": (9, 0, 16, 0),
    }
    table = np.array([pool[name] for name in names], np.int32)
    found = fusion.Candidates(
        np.arange(6, dtype=np.int32),
        table,
        np.zeros((6, 4), np.float32),
        fusion.rank_scores(table),
    )
    key = fusion.rank_scores(table, boosts.parse(setting).divisors)
    best = "".join(names[i] for i in np.argsort(-key, kind="stable"))
    assert best == order
    if setting:
        kept = boosts.cut(found, boosts.parse(setting), 5)
        assert "".join(names[i] for i in kept.ordinals) == order[:5]


def test_what_stays_only_where_there_is_room() -> None:
    """The first of both arms goes, the order of what stays does not change."""
    found = fusion.rrf([hits(3, 1, 2, 4), hits(3, 9)])
    last = found.ordinals == 3
    assert boosts.cut(found, boosts.parse(""), 4, last=last).ordinals.tolist() == [1, 9, 2, 4]
    kept = boosts.cut(fusion.rrf([hits(3, 1, 2)]), boosts.parse(""), 2, last=np.arange(3) == 1)
    assert kept.ordinals.tolist() == [3, 2]


def test_a_pool_within_the_cap_is_left_alone() -> None:
    found = fusion.rrf([hits(3, 1, 2), hits(2, 9)])
    assert boosts.cut(found, boosts.parse("bm25:high"), 10) is found


def test_boosts_of_a_list_that_ranks_did_not_order() -> None:
    """Rank r of a boosted arm beats place s exactly when r < divisor * s."""
    graph = np.array([0, 0, 0, 8, 7, 33, 31], np.int32)
    table = np.zeros((7, 4), np.int32)
    table[:, 0], table[:, 2] = np.arange(7, 0, -1), graph
    scores = np.linspace(1.0, 0.4, 7)
    found = fusion.by_score(
        fusion.Candidates(
            np.arange(7, dtype=np.int32), table, np.zeros((7, 4), np.float32), scores
        ),
        scores,
    )
    high = boosts.parse("graph:high")
    # By key: 7/8 < place 1 = 8/8 < place 2 < place 3 < 31/8 < 33/8.
    assert boosts.cut(found, high, 6, by_rank=False).ordinals.tolist() == [4, 0, 3, 1, 2, 6]
    # The last is the first of the semantic arm.
    assert boosts.cut(found, boosts.parse(""), 3, by_rank=False).ordinals.tolist() == [0, 1, 6]


def test_bad_boosts_are_skipped_and_the_last_wins(caplog: pytest.LogCaptureFixture) -> None:
    parsed = boosts.parse(" graph:low , nonsense:high, bm25:huge,, GRAPH:high ")
    assert parsed.levels == {"graph": "high"}
    assert len(caplog.records) == 2


def test_stage_two_adds_once_per_arm_that_surfaced_it() -> None:
    found = fusion.rrf([hits(1), hits(), hits(2), hits()])
    high = boosts.addends(found, boosts.parse("graph:high"))
    assert dict(zip(found.ordinals.tolist(), high.tolist(), strict=True)) == {1: 0.0, 2: 0.5}


def test_sigmoid() -> None:
    x = np.array([-11.2, -4.3, -1.5, 0, 0.7, 2.4, 8.9, -1000, np.inf, -np.inf])
    want = [0.000014, 0.013387, 0.182426, 0.5, 0.668188, 0.916827, 0.999864, 0, 1, 0]
    assert scoring.sigmoid(x) == pytest.approx(want, abs=5e-7)


@pytest.mark.parametrize(
    ("batch", "want"),
    [
        ([0.2, 0.9, 0.0], [0.2, 0.9, 0.0]),
        ([0.7, 2.4, -1.5], [0.668188, 0.916827, 0.182426]),
        ([np.nan, 0.5, 1.0], [0.0, 0.5, 1.0]),
        ([0.5, np.nan, 1.0], [0.5, 0.0, 1.0]),
        ([np.nan, np.nan], [0.0, 0.0]),
        ([np.inf, -np.inf, 2.0], [1.0, 0.0, 0.880797]),
    ],
)
def test_normalise(batch: list[float], want: list[float]) -> None:
    done = scoring.normalise(np.array(batch))
    assert done.normalised == pytest.approx(want, abs=5e-7)
    assert np.isfinite(done.raw).all()


def test_a_declared_scale_is_not_guessed() -> None:
    one = np.array([0.7])
    assert scoring.normalise(one).normalised[0] == 0.7
    assert scoring.normalise(one, "logit").normalised[0] == pytest.approx(0.668188, abs=5e-7)


def recent(days: float, function: str = "linear") -> float:
    now = us("2025-06-18")
    start = np.array([now - int(days * 86_400_000_000)], np.int64)
    none = np.full(1, NO_TIME)
    return float(scoring.recency(start, none, none, now, function=function)[0])


def test_recency_functions() -> None:
    linear = [recent(d) for d in (0, 30, 91.25, 182.5, 328.5, 365, 1000, -10)]
    assert linear == pytest.approx([1, 0.917808, 0.75, 0.5, 0.1, 0.1, 0.1, 1], abs=5e-7)
    halving = [recent(d, "exponential") for d in (0, 30, 91.25, 180, 365, -10)]
    assert halving == pytest.approx([1, 0.793701, 0.495210, 0.25, 0.060139, 1], abs=5e-7)
    assert recent(3, "none") == 0.5


@pytest.mark.parametrize(
    ("start", "end", "signal", "factor"),
    [
        ("2015-01-01", "2015-12-31", 0.1, 0.92),
        ("2024-01-01", "2024-12-31", 0.5, 1.0),
        ("2025-01-01", "2025-12-31", 0.5, 1.0),
        ("2024-10-01", "2024-10-31", 0.369863, 0.973973),
        ("2025-05-01", "2025-05-31", 0.5, 1.0),
        ("2024-02-01", "2024-02-29T23:59:59", 0.1, 0.92),
        ("2025-06-10", "2025-06-14", 0.978082, 1.095616),
        ("2024-12-18", "2024-12-18", 0.501370, 1.000274),
    ],
)
def test_whole_periods_date_from_their_end(
    start: str, end: str, signal: float, factor: float
) -> None:
    got = scoring.recency(
        np.array([us(start)]), np.array([us(end)]), np.array([NO_TIME]), us("2025-06-18")
    )
    assert got[0] == pytest.approx(signal, abs=5e-7)
    assert scoring.boost(got, scoring.ALPHA_RECENCY)[0] == pytest.approx(factor, abs=5e-7)


def test_proof() -> None:
    counts = np.array([1, 2, 3, 10, 50, 148, 149, 150, 0, -1], np.int32)
    want = [0.5, 0.569315, 0.609861, 0.730259, 0.891202, 0.999721, 1.0, 1.0, 0.5, 0.5]
    assert scoring.proof(counts) == pytest.approx(want, abs=5e-7)
    factors = scoring.boost(scoring.proof(np.array([3, 10, 50, 150])), scoring.ALPHA_PROOF)
    assert factors == pytest.approx([1.010986, 1.023026, 1.039120, 1.05], abs=5e-7)


def test_proximity() -> None:
    window = (us("2024-03-01"), us("2024-05-31T23:59:59.999999"))
    days = ["2024-04-16", "2024-03-01", "2024-04-01", "2024-05-15T12:00:00", "2024-07-01"]
    start = np.array([us(d) for d in days])
    none = np.full(len(days), NO_TIME)
    got = proximity(start, none, none, window)
    assert got == pytest.approx([1, 0, 0.673913, 0.358696, 0], abs=5e-7)
    assert proximity(start[:1], none[:1], none[:1], (5, 5))[0] == 1.0
    assert np.isnan(proximity(none[:1], none[:1], none[:1], window)[0])
    since = proximity(start, none, none, (us("2024-04-10"), None))
    assert since.tolist() == [1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("ce", "recency", "near", "proven", "want"),
    [
        (0.8, 1.0, 0.5, 0.5, 0.88),
        (0.8, 0.1, 0.5, 0.5, 0.736),
        (1.0, 1.0, 1.0, 1.0, 1.2705),
        (1.0, 0.1, 0.0, 0.5, 0.828),
        (0.916827, 0.917808, 0.5, 0.5, 0.993439),
        (0.42, 0.1, 0.5, 0.730259, 0.395297),
        (0.9, 1.0, 0.0, 0.5, 0.891),
        (0.75, 0.835616, 0.9, 0.638629, 0.876353),
        (0.55, 0.25, 0.5, 0.609861, 0.528240),
    ],
)
def test_combined(ce: float, recency: float, near: float, proven: float, want: float) -> None:
    args = (np.array([v]) for v in (ce, recency, near, proven))
    assert scoring.steps(*args)[-1][1][0] == pytest.approx(want, abs=1e-6)


def test_passthrough_keeps_the_order_under_boosts() -> None:
    assert scoring.passthrough(5) == pytest.approx([1.0, 0.775, 0.55, 0.325, 0.1])
    assert scoring.passthrough(1).tolist() == [1.0]
    half = np.full(4, 0.5)
    recent = np.array([0.1, 1, 0.5, 1])
    _, got = scoring.steps(scoring.passthrough(4), recent, half, half)[-1]
    assert got == pytest.approx([0.92, 0.77, 0.40, 0.11])


def test_interleave() -> None:
    a, b, c, d, e = range(5)
    merged = fusion.interleave([hits(a, b, c), hits(b, d), hits(e), hits()])
    assert merged.ordinals.tolist() == [a, b, e, d, c]
    assert merged.rrf.tolist() == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("tokens", "limit", "kept", "used"),
    [
        ([50, 120, 30, 200, 10], 100, [0, 2, 4], 90),
        ([50, 120, 30], 20, [0], 50),
        ([50, 120, 30], 0, [], 0),
        ([50, 120, 30], -5, [], 0),
        ([50, 120, 30], 200, [0, 1, 2], 200),
        ([], 10, [], 0),
    ],
)
def test_packing(tokens: list[int], limit: int, kept: list[int], used: int) -> None:
    packed = packing.pack(np.array(tokens, np.int32), limit)
    assert packed.kept.tolist() == kept
    assert packed.tokens == used
    assert packed.truncated == (len(kept) < len(tokens))


def test_an_arm_that_is_no_list_of_hits_is_named() -> None:
    with pytest.raises(TypeError, match="graph"):
        fusion.rrf([hits(1), hits(2), (3, 0.5), hits()])  # type: ignore[list-item]


def test_ties_keep_insertion_order() -> None:
    found = fusion.rrf([hits(7, 5), hits(9, 4)])
    assert found.ordinals.tolist() == [7, 9, 5, 4]


def test_what_the_reranker_reads() -> None:
    at = datetime(2022, 6, 5, 23, tzinfo=UTC)
    assert document("Alice shipped the release", "team meeting", at) == (
        "[Date: June 5, 2022 (2022-06-05)] team meeting: Alice shipped the release"
    )
    assert document("Alice shipped", None, None) == "Alice shipped"


@pytest.mark.parametrize(
    ("max_tokens", "low", "mid", "high"),
    [
        (200, 20, 20, 50),
        (1024, 26, 77, 256),
        (4096, 102, 307, 1024),
        (8192, 205, 614, 2000),
        (40000, 1000, 2000, 2000),
    ],
)
def test_adaptive_budgets(max_tokens: int, low: int, mid: int, high: int) -> None:
    adaptive = RecallSettings(recall_budget_function="adaptive")
    got = [budgets.recall_budget(adaptive, b, max_tokens) for b in Budget]
    assert got == [low, mid, high]
    assert [budgets.recall_budget(RecallSettings(), b, max_tokens) for b in Budget] == [
        100,
        300,
        1000,
    ]


def test_a_budget_has_its_own_cap() -> None:
    settings = RecallSettings(reranker_max_candidates_low=50)
    assert [budgets.reranker_cap(settings, b) for b in Budget] == [50, 300, 300]
