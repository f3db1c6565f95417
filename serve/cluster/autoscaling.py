"""How many replicas a queue of tokens needs."""

from __future__ import annotations

import math
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve.settings.model import Autoscale

QUEUED = "queued_tokens"
SPEED = "tokens_per_s"
BUSY = "busy_share"
"""What a replica reports: tokens that wait, tokens it works off per second, share of time busy."""

LOOK_BACK_S = 12.0
"""Serve demands more than its default push interval of 10 s; the largest value of that time counts,
so that a burst is seen with the first report."""

MOST = 1_000_000
"""Keeps the sum finite where a replica has hardly any speed."""

COMFORTABLE_BUSY = 0.7
"""Above this share of busy time a replica's queue begins to show in latencies (M/D/1: the mean
wait passes one service time at 2/3)."""


def replicas_needed(
    queued_tokens: float, tokens_per_s: float, busy: float, replicas: int, drain_s: float
) -> int:
    """Enough replicas to work off what waits within `drain_s`, beside what keeps them busy now.

    `tokens_per_s` is one replica's speed, `busy` the mean share over `replicas`. Unknown speed
    (nothing has run yet) adds one replica while something waits.
    """
    for_load = busy * replicas / COMFORTABLE_BUSY
    if queued_tokens <= 0:
        return max(1, math.ceil(for_load))
    in_time = tokens_per_s * drain_s
    if in_time <= 0:
        return replicas + 1
    return max(1, math.ceil(min(MOST, for_load + queued_tokens / in_time)))


class QueuedTokens:
    """Serve's seam for the rule above; delays and bounds are applied by Serve."""

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        reported = context.aggregated_metrics or {}
        speeds = [speed for speed in reported.get(SPEED, {}).values() if speed > 0]
        shares = list(reported.get(BUSY, {}).values())
        needed = replicas_needed(
            sum(reported.get(QUEUED, {}).values()),
            sum(speeds) / len(speeds) if speeds else 0.0,
            sum(shares) / len(shares) if shares else 0.0,
            max(1, context.current_num_replicas),
            self._drain_s,
        )
        return needed, {}


def config(wanted: Autoscale) -> AutoscalingConfig:
    return AutoscalingConfig(
        min_replicas=wanted.min_replicas,
        initial_replicas=wanted.min_replicas,
        max_replicas=wanted.max_replicas,
        upscale_delay_s=wanted.upscale_delay_s,
        downscale_delay_s=wanted.downscale_delay_s,
        look_back_period_s=LOOK_BACK_S,
        aggregation_function="max",
        policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
            policy_function="serve.cluster.autoscaling:QueuedTokens",
            policy_kwargs={"drain_s": wanted.drain_s},
        ),
    )
