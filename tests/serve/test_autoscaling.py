"""The rules that turn what replicas report into replicas."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve.config import AutoscalingContext

from models.types import Load
from serve.cluster import autoscaling as rules
from serve.cluster.autoscaling import POLICIES, TokenLoad, config
from serve.cluster.deployments import health_period_s
from serve.cluster.signals import LineGauge, ModelSignals
from serve.settings import SettingsError, parse
from serve.settings.model import Autoscale, StagePlacement

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("work", "replicas", "needed"),
    [
        (TokenLoad(0, 0, 0, 0), 1, 1),  # nothing has run
        (TokenLoad(0, 10, 0, 10), 1, 2),  # work waits and the speed is unknown
        (TokenLoad(100, 0, 1000, 10), 4, 1),  # idle: down
        (TokenLoad(1400, 0, 1000, 10), 2, 2),  # comfortable
        (TokenLoad(1900, 0, 1000, 10), 2, 3),  # busy without a queue
        (TokenLoad(700, 90, 1000, 10), 1, 1),  # what waits at any moment
        (TokenLoad(7000, 90_000, 1000, 10), 10, 13),  # a line: a quarter more, whatever its length
        (TokenLoad(700, 5000, 1000, 5000), 1, 2),  # that is one call: more would not shorten it
    ],
)
def test_work(work: TokenLoad, replicas: int, needed: int) -> None:
    assert rules.needed_by_work(work, replicas, drain_s=1.0) == needed


@given(
    st.floats(0, 1e9), st.floats(0, 1e9), st.floats(1, 1e9), st.integers(1, 64), st.floats(0.01, 60)
)
def test_more_work_never_asks_for_less(
    arriving: float, waiting: float, speed: float, replicas: int, drain: float
) -> None:
    fewer = rules.needed_by_work(TokenLoad(arriving / 2, waiting / 2, speed, 1), replicas, drain)
    assert (
        1 <= fewer <= rules.needed_by_work(TokenLoad(arriving, waiting, speed, 1), replicas, drain)
    )


def test_a_slow_call_does_not_run_away() -> None:
    """One call a second of 12,300 tokens on a cross-encoder that reads 16,000: two replicas."""
    work = TokenLoad(arriving=12_300, waiting=12_300, speed=16_000, longest=12_300)
    assert rules.needed_by_work(work, 1, drain_s=0.5) in (2, 3)
    assert rules.needed_by_work(work, 2, drain_s=0.5) in (2, 3)


def test_loops() -> None:
    assert rules.needed_by_loops(0.0, 0.0, 4) == 1
    assert rules.needed_by_loops(1.8, 0.0, 2) == 3
    assert rules.needed_by_loops(0.1, 1.9, 2) == 1
    assert rules.needed_by_loops(0.1, 2.0, 2) == 3  # somebody stands in line


def test_bytes() -> None:
    assert rules.needed_by_bytes(10.0, 10.0, 1) == 2
    assert rules.needed_by_bytes(0.0, 10.0, 4) == 3  # one at a time
    assert rules.needed_by_bytes(16.9, 10.0, 3) == 3  # two would be 85 % full
    assert rules.needed_by_bytes(10.0, 10.0, 3) == 2
    assert rules.needed_by_bytes(5.0, 0.0, 3) == 3  # nobody reported


def test_operations() -> None:
    assert rules.needed_by_operations(11.0, 0, 2) == 3
    assert rules.needed_by_operations(1.0, 1, 2) == 3
    assert rules.needed_by_operations(1.0, 0, 2) == 1


def _context(
    metrics: dict[str, dict[str, list[float]]],
    replicas: int,
    queued: float,
    now: float = 0.0,
    state: dict[str, Any] | None = None,
) -> Any:
    raw = {
        name: {
            each: [SimpleNamespace(timestamp=float(i), value=v) for i, v in enumerate(values)]
            for each, values in of.items()
        }
        for name, of in metrics.items()
    }
    return cast(
        AutoscalingContext,
        SimpleNamespace(
            raw_metrics=raw,
            current_num_replicas=replicas,
            target_num_replicas=replicas,
            total_queued_requests=queued,
            current_time=now,
            policy_state=state or {},
        ),
    )


def test_the_last_backlog_counts_and_calls_in_handles_do() -> None:
    policy = rules.WorkPolicy(drain_s=1.0)
    reports = {
        rules.QUEUED: {"a": [9000.0, 0.0], "b": [0.0, 0.0]},
        rules.ARRIVING: {"a": [700.0, 700.0], "b": [0.0, 0.0]},
        rules.SPEED: {"a": [1000.0, 1000.0], "b": [0.0, 0.0]},
        rules.CALL: {"a": [100.0, 100.0], "b": [100.0, 100.0]},
        rules.LONGEST: {"a": [100.0, 100.0]},
    }
    assert policy(_context(reports, 2, 0.0))[0] == 1
    assert policy(_context(reports, 2, 12.0))[0] == 2  # 1200 tokens, 200 of which any moment shows
    assert policy(_context(reports, 2, 1000.0))[0] == 2


def _arriving(replicas: float) -> dict[str, dict[str, list[float]]]:
    return {rules.ARRIVING: {"a": [700.0 * replicas]}, rules.SPEED: {"a": [1000.0]}}


def test_at_most_twice_as_many_at_a_step() -> None:
    policy = rules.WorkPolicy(drain_s=1.0)
    assert policy(_context(_arriving(50), 3, 0.0))[0] == 6


def test_replicas_are_kept_that_were_needed_lately() -> None:
    policy = rules.WorkPolicy(drain_s=1.0, down_s=300.0)
    state: dict[str, Any] = {}
    target = 20

    def decide(now: float, load: float) -> int:
        nonlocal state, target
        target, state = policy(_context(_arriving(load), target, 0.0, now, state))
        return target

    assert decide(0.0, 19.5) == 20
    assert [decide(float(now), 5) for now in range(2, 200, 2)] == [20] * 99
    assert len(state[rules.NEEDED]) < 5
    assert decide(200.0, 12) == 20
    assert decide(302.0, 5) == 12  # the most that was needed since
    assert decide(304.0, 30) == 24  # at once, twice as many as run at the most
    assert decide(306.0, 21.5) == 24


def test_after_a_controller_s_restart_nothing_is_given_up_at_once() -> None:
    policy = rules.WorkPolicy(drain_s=1.0, down_s=300.0)
    assert policy(_context(_arriving(1), 20, 0.0, 1e9))[0] == 20


@pytest.mark.parametrize("stage", POLICIES)
def test_every_stage_has_a_policy_that_serve_accepts(stage: str) -> None:
    found = config(stage, Autoscale(max_replicas=3))
    assert found.policy.get_policy() is POLICIES[stage]
    assert found.max_replicas == 3
    policy = POLICIES[stage](drain_s=1.0)
    assert policy(_context({}, 2, 0.0))[0] in (1, 2)  # without a report nothing runs away


def test_every_stage_has_a_rule() -> None:
    assert {name.lower() for name in POLICIES} == set(StagePlacement.model_fields)


@pytest.mark.parametrize("stage", ["retriever", "embedder", "reranker", "ingest", "ranges"])
def test_a_stage_without_replicas_cannot_scale(stage: str) -> None:
    with pytest.raises(SettingsError, match=rf"stages\.{stage}\.autoscale must be left out"):
        parse({"stages": {stage: {"autoscale": {"max_replicas": 2}}}}, {})
    scaled = {"placement": "deployment", "autoscale": {"max_replicas": 2}}
    assert parse({"stages": {stage: scaled}}, {}).stages is not None


def test_probes_grow_rare_with_many_replicas() -> None:
    assert [health_period_s(n) for n in (1, 100, 300, 1000)] == [2.0, 2.0, 6.0, 10.0]


def test_what_a_model_reports() -> None:
    now, load = 0.0, Load()
    signals = ModelSignals(lambda: load, lambda: now)
    signals.called(["x" * 400, "x" * 400])
    now, load = 2.0, Load(tokens=150, queued_tokens=50, tokens_per_s=300.0)
    report = signals.report()
    assert report[rules.ARRIVING] == 100.0
    assert report[rules.QUEUED] == 50.0
    assert report[rules.CALL] == 200.0
    assert math.isclose(report[rules.LONGEST], 196.0)
    now = 4.0
    assert signals.report()[rules.ARRIVING] == 0.0


def test_a_line_begins_anew_when_nobody_stands_in_it() -> None:
    now = 0.0
    line = LineGauge(lambda: now)
    assert line.seconds(1) == 0.0
    now = 3.0
    assert line.seconds(1) == 3.0
    assert line.seconds(0) == 0.0
    assert line.seconds(1) == 0.0
