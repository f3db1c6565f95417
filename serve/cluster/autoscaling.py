"""How many replicas a stage needs, from what its replicas report. Rules as pure functions, and
Serve's seam for them; delays and bounds are applied by Serve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve.settings.model import Autoscale

QUEUED, ARRIVING, SPEED = "queued_tokens", "arriving_tokens_per_s", "tokens_per_s"
CALL, LONGEST = "tokens_of_a_call", "tokens_of_the_longest_call"
"""Of a model: tokens that wait, that came per second, that it works off per second while it is
busy; tokens of a call, the mean and the largest lately."""
BUSY = "busy_loop_share"
"""Share of time in which the event loop of a process had something to do."""
LINE_S = "line_seconds"
"""For how long requests have been waiting for admission."""
WANTED, BUDGET = "wanted_bytes", "budget_bytes"
"""Bytes of banks that a replica holds, and of those that it lately missed for want of room; what
it may hold."""
OLDEST_S, WAITING_WRITES = "oldest_operation_s", "waiting_writes"

LOOK_BACK_S = 12.0
"""Means are taken over this time. Never above the delays of scaling down, or figures swing."""

COMFORTABLE = 0.7
"""Above this share of busy time a replica's queue begins to show in latencies (M/D/1: the mean
wait passes one service time at 2/3)."""
COMFORTABLE_LOOP = 0.6
"""The same for an event loop, which also answers probes."""
ROOM = 1.3
"""Memory to have for each byte of banks that are wanted: hashing spreads them unevenly."""
FULL = 0.85
"""Replicas that hold banks are given up only while the rest stays under this share of its room."""
BACKLOG_SHARE = 0.25
"""Replicas for a backlog, of those for what arrives: while new ones start it grows, and all of them
would come when it is nearly gone."""
SMALL_CHANGE = 0.75
"""Replicas are given up only where so small a share of them was enough all the while."""
UNSEEN_S = 0.1
"""A backlog of so much work is what any moment shows, and calls for nobody."""
LINE_LIMIT_S = 2.0
OPERATION_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class TokenLoad:
    """Of all replicas: tokens that arrive per second (mean) and that wait (last, with those of
    calls that wait for a replica); speed of one busy replica; tokens of the longest call."""

    arriving: float
    waiting: float
    speed: float
    longest: float


def needed_by_work(work: TokenLoad, replicas: int, drain_s: float) -> int:
    """Enough replicas for what arrives, and to work off in time what waits beside it.

    A call that takes longer than `drain_s` gets twice its own time: more replicas would not make it
    shorter. Unknown speed (nothing has run yet) adds one replica while something waits.
    """
    if work.speed <= 0:
        return max(1, replicas + (work.waiting > 0))
    for_load = math.ceil(work.arriving / (COMFORTABLE * work.speed))
    in_time = max(drain_s, 2.0 * work.longest / work.speed)
    backlog = max(0.0, work.waiting - UNSEEN_S * work.speed * max(1, replicas))
    for_backlog = math.ceil(backlog / (work.speed * in_time))
    return max(1, for_load + min(for_backlog, max(1, math.ceil(BACKLOG_SHARE * for_load))))


def needed_by_loops(busy: float, line_s: float, replicas: int) -> int:
    """`busy` is the sum of the loops' shares. A lasting line for admission calls for one more."""
    wanted = max(1, math.ceil(round(busy / COMFORTABLE_LOOP, 6)))
    return max(wanted, replicas + 1) if line_s >= LINE_LIMIT_S else wanted


def needed_by_bytes(wanted: float, budget: float, replicas: int) -> int:
    """Room for all wanted banks; down one at a time, and only to where the rest is not full."""
    if budget <= 0:
        return max(1, replicas)
    needed = max(1, math.ceil(ROOM * wanted / budget))
    if needed >= replicas:
        return needed
    fewer = replicas - 1
    return fewer if wanted <= FULL * budget * fewer else replicas


def needed_by_operations(oldest_s: float, waiting: float, replicas: int) -> int:
    """One more while operations grow old or writes stand in line; else one less."""
    if oldest_s > OPERATION_LIMIT_S or waiting > 0:
        return replicas + 1
    return max(1, replicas - 1)


NEEDED = "needed"
"""What was needed lately, in the state that Serve keeps for a policy: (seconds, replicas)."""


class _Policy:
    """Turns Serve's context into figures. At most doubles the replicas at a step: figures that
    lag behind what a step brought would call for more and more. Gives up what was not needed at
    any time of `down_s`, as Serve's own delay does not: that takes what is needed at its end."""

    def __init__(self, drain_s: float = 1.0, down_s: float = 0.0) -> None:
        self._drain_s = drain_s
        self._down_s = down_s

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        running = max(1, context.current_num_replicas)
        needed = min(self.needed(Reports(context), running), 2 * running)
        if not self._down_s:
            return needed, {}
        now = context.current_time or 0.0
        lately = [*context.policy_state.get(NEEDED, ()), (now, needed)]
        # One before the time, so that it is known to be covered; of others, those that count.
        while len(lately) > 1 and lately[1][0] <= now - self._down_s:
            del lately[0]
        most = max(replicas for at, replicas in lately if at > now - self._down_s)
        target = max(1, context.target_num_replicas)
        covered = lately[0][0] <= now - self._down_s
        if needed < target and not (covered and most <= SMALL_CHANGE * target):
            return target, {NEEDED: _peaks(lately)}
        return max(needed, most) if needed < target else needed, {NEEDED: _peaks(lately)}

    def needed(self, reports: Reports, replicas: int) -> int:
        raise NotImplementedError


class Reports:
    """What replicas reported; a name that nobody reported is empty."""

    def __init__(self, context: AutoscalingContext) -> None:
        self._series: Mapping[str, Mapping[Any, Any]] = context.raw_metrics or {}
        self._context = context

    def last(self, name: str) -> list[float]:
        """Of each replica, the newest value."""
        return [float(each[-1].value) for each in self._series.get(name, {}).values() if each]

    def means(self, name: str) -> list[float]:
        """Of each replica, the mean over the look-back."""
        return [
            sum(point.value for point in each) / len(each)
            for each in self._series.get(name, {}).values()
            if each
        ]

    @property
    def waiting_calls(self) -> float:
        """Calls that wait in handles for a replica."""
        return float(self._context.total_queued_requests or 0.0)


class WorkPolicy(_Policy):
    """Of the two models."""

    def needed(self, reports: Reports, replicas: int) -> int:
        speeds = [speed for speed in reports.last(SPEED) if speed > 0]
        waiting = sum(reports.last(QUEUED))
        waiting += reports.waiting_calls * _mean(reports.last(CALL), 1.0)
        work = TokenLoad(
            sum(reports.means(ARRIVING)),
            waiting,
            _mean(speeds),
            max(reports.last(LONGEST), default=0.0),
        )
        return needed_by_work(work, replicas, self._drain_s)


class LoopPolicy(_Policy):
    """Of the ingress."""

    def needed(self, reports: Reports, replicas: int) -> int:
        line_s = max(reports.last(LINE_S), default=0.0)
        return needed_by_loops(sum(reports.means(BUSY)), line_s, replicas)


class BanksPolicy(_Policy):
    """Of those who hold banks or ranges of them: the larger of what loops and bytes call for."""

    def needed(self, reports: Reports, replicas: int) -> int:
        by_bytes = needed_by_bytes(sum(reports.last(WANTED)), _mean(reports.last(BUDGET)), replicas)
        return max(by_bytes, needed_by_loops(sum(reports.means(BUSY)), 0.0, replicas))


class OperationsPolicy(_Policy):
    """Of those who write."""

    def needed(self, reports: Reports, replicas: int) -> int:
        oldest = max(reports.last(OLDEST_S), default=0.0)
        return needed_by_operations(oldest, sum(reports.last(WAITING_WRITES)), replicas)


POLICIES: dict[str, type[_Policy]] = {
    "Recall": LoopPolicy,
    "Retriever": BanksPolicy,
    "Ranges": BanksPolicy,
    "Embedder": WorkPolicy,
    "Reranker": WorkPolicy,
    "Ingest": OperationsPolicy,
}
"""By the name of the deployment."""


def config(stage: str, wanted: Autoscale) -> AutoscalingConfig:
    """Serve's configuration for a stage that scales itself."""
    policy = POLICIES[stage]
    return AutoscalingConfig(
        min_replicas=wanted.min_replicas,
        initial_replicas=wanted.min_replicas,
        max_replicas=wanted.max_replicas,
        upscale_delay_s=wanted.upscale_delay_s,
        downscale_delay_s=LOOK_BACK_S,  # the policy waits for the rest
        look_back_period_s=LOOK_BACK_S,
        aggregation_function="mean",
        policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
            policy_function=f"{__name__}:{policy.__name__}",
            policy_kwargs={"drain_s": wanted.drain_s, "down_s": wanted.downscale_delay_s},
        ),
    )


def _peaks(lately: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The first, and of the rest only what later ones do not exceed: enough for every maximum."""
    kept: list[tuple[float, int]] = []
    for each in lately:
        while len(kept) > 1 and kept[-1][1] <= each[1]:
            kept.pop()
        kept.append(each)
    return kept


def _mean(values: list[float], otherwise: float = 0.0) -> float:
    return sum(values) / len(values) if values else otherwise
