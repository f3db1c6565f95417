"""The rule that turns a queue of tokens into replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.cluster.autoscaling import config, replicas_needed
from serve.settings.model import Autoscale

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("queued", "speed", "busy", "replicas", "needed"),
    [
        (0, 0, 0.0, 1, 1),  # nothing has run
        (0, 1000, 0.1, 4, 1),  # idle: down
        (0, 1000, 0.7, 2, 2),  # comfortable
        (0, 1000, 0.95, 2, 3),  # busy without a queue
        (5000, 1000, 1.0, 1, 7),  # five seconds of work wait, beside a full load
        (10, 0, 0.0, 1, 2),  # work waits and the speed is unknown
    ],
)
def test_rule(queued: float, speed: float, busy: float, replicas: int, needed: int) -> None:
    assert replicas_needed(queued, speed, busy, replicas, drain_s=1.0) == needed


@given(
    st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1), st.integers(1, 64), st.floats(0.01, 60)
)
def test_more_work_never_asks_for_less(
    queued: float, speed: float, busy: float, replicas: int, drain: float
) -> None:
    fewer = replicas_needed(queued / 2, speed, busy / 2, replicas, drain)
    if speed > 1:
        assert 1 <= fewer <= replicas_needed(queued, speed, busy, replicas, drain)


def test_serve_accepts_the_policy() -> None:
    found = config(Autoscale(max_replicas=3))
    assert found.policy.get_policy().__name__ == "QueuedTokens"
    assert found.max_replicas == 3
