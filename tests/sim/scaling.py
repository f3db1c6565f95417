"""A stage under changing load, scaled by the real rule behind Serve's own delays, in virtual time.

Work is a fluid: tokens come, wait in one line and are worked off. Reports are two seconds old at
most, new replicas take a cold start.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
from ray.serve import autoscaling_policy

from serve.cluster.autoscaling import (
    ARRIVING,
    CALL,
    LONGEST,
    LOOK_BACK_S,
    POLICIES,
    QUEUED,
    SPEED,
    config,
)
from serve.settings.model import Autoscale

STEP_S = 0.5
REPORT_S = 2.0
COLD_START_S = 15.0
SPEED_TOKENS = 16_000.0
CALL_TOKENS = 400.0
COMFORT = 0.8


@dataclass(slots=True)
class Trace:
    """Of each step: tokens that came, that were worked off, replicas that ran and were wanted."""

    came: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)

    def over_oracle(self) -> float:
        """Replica-seconds over those of one who knows the load and keeps replicas at 70 %."""
        best = sum(max(1, math.ceil(c / (0.7 * SPEED_TOKENS * STEP_S))) for c in self.came)
        return sum(self.running) / best

    def crowded(self) -> float:
        """Share of time above a use of 0.8, seen over 12 s as people see it."""
        use = np.asarray(self.came) / (np.asarray(self.running) * SPEED_TOKENS * STEP_S)
        window = int(LOOK_BACK_S / STEP_S)
        smooth = np.convolve(use, np.ones(window) / window, mode="valid")
        return float((smooth > COMFORT).mean())

    def turns(self) -> int:
        """Changes of direction of the wanted number."""
        steps = [b - a for a, b in itertools.pairwise(self.wanted) if a != b]
        return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))

    def turns_an_hour(self) -> float:
        return self.turns() * 3600.0 / (len(self.wanted) * STEP_S)


def run(
    load: Callable[[float], float],
    seconds: float,
    start: int,
    most: int,
    *,
    noise: float = 0.0,
    seed: int = 3,
    settings: Autoscale | None = None,
) -> Trace:
    """`load` gives replicas' worth of tokens at a time: 1.0 keeps one busy."""
    wanted = settings or Autoscale(min_replicas=1, max_replicas=most)
    wanted = wanted.model_copy(update={"max_replicas": most})
    serve_config = config("Embedder", wanted)
    policy = autoscaling_policy._apply_autoscaling_config(
        POLICIES["Embedder"](wanted.drain_s, wanted.downscale_delay_s)
    )
    rng, trace = np.random.default_rng(seed), Trace()
    running, target, state = start, start, cast(dict[str, Any], {})
    coming: list[float] = []
    waiting = 0.0
    series: list[tuple[float, float, float]] = []  # time, arriving per s, waiting
    factor, now = 1.0, 0.0
    clock = SimpleNamespace(time=lambda: now)
    with mock.patch.object(autoscaling_policy, "time", clock):
        for step in range(int(seconds / STEP_S)):
            now = step * STEP_S
            if noise and step % int(10 / STEP_S) == 0:
                factor = float(max(0.1, rng.normal(1.0, noise)))
            came = load(now) * factor * SPEED_TOKENS * STEP_S
            running += sum(at <= now for at in coming)
            coming = [at for at in coming if at > now]
            done = min(waiting + came, running * SPEED_TOKENS * STEP_S)
            waiting += came - done
            trace.came.append(came)
            trace.done.append(done)
            trace.running.append(running)
            if now % REPORT_S == 0:
                recent = trace.came[-int(REPORT_S / STEP_S) :]
                series.append((now, sum(recent) / (len(recent) * STEP_S), waiting))
                series = [each for each in series if each[0] > now - LOOK_BACK_S]
            context = _context(series, running, target, state, serve_config, now)
            decided, state = policy(context)
            target = max(wanted.min_replicas, min(most, int(decided)))
            trace.wanted.append(target)
            if target > running + len(coming):
                coming += [now + COLD_START_S] * (target - running - len(coming))
            elif target < running + len(coming):
                excess = running + len(coming) - target
                coming, excess = coming[: len(coming) - excess], max(0, excess - len(coming))
                running = max(1, running - excess)
    return trace


def _context(
    series: list[tuple[float, float, float]],
    running: int,
    target: int,
    state: dict[str, Any],
    serve_config: Any,
    now: float,
) -> Any:
    def points(values: list[float]) -> list[Any]:
        return [SimpleNamespace(timestamp=at, value=v) for at, v in zip(times, values, strict=True)]

    times = [each[0] for each in series]
    raw = {
        ARRIVING: {"all": points([each[1] for each in series])},
        QUEUED: {"all": points([each[2] for each in series])},
        SPEED: {"all": points([SPEED_TOKENS] * len(series))},
        CALL: {"all": points([CALL_TOKENS] * len(series))},
        LONGEST: {"all": points([CALL_TOKENS] * len(series))},
    }
    return SimpleNamespace(
        raw_metrics=raw,
        total_queued_requests=0.0,
        total_num_requests=1.0,
        current_num_replicas=running,
        target_num_replicas=target,
        policy_state=state,
        config=serve_config,
        current_time=now,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """After the load rose threefold: seconds until 90 % of it was served, and how many replicas
    were wanted at most over what it needs."""

    served_after_s: float
    overshoot: float


def step(replicas: int) -> Step:
    third = 0.6 * replicas / 3
    at_s = 120.0
    trace = run(
        lambda now: third if now < at_s else 3 * third, 300.0, math.ceil(third / 0.6), 4 * replicas
    )
    begin = int(at_s / STEP_S)
    came, done = np.asarray(trace.came), np.asarray(trace.done)
    short = np.flatnonzero(done[begin:] < 0.9 * came[begin:])
    needed = math.ceil(3 * third / 0.7)
    return Step(
        (int(short[-1]) + 1) * STEP_S if len(short) else 0.0, max(trace.wanted[begin:]) / needed
    )


@dataclass(frozen=True, slots=True)
class Surge:
    """Four times the load for a minute, then none."""

    asked_after_s: float
    """Until more replicas were wanted."""
    enough_after_s: float
    """Until as many ran as it keeps at a use of 0.8. They are doubled at most, so it takes two
    cold starts."""
    goodput: float
    """From then on, the share of what came that was worked off at once."""
    turns: int
    """Changes of direction of the wanted number, down again included."""
    left: int
    """Replicas that are wanted in the end."""


def surge(replicas: int) -> Surge:
    usual, at_s, lasts_s = 0.6 * replicas / 4, 120.0, 60.0

    def load(now: float) -> float:
        if now < at_s:
            return usual
        return 4 * usual if now < at_s + lasts_s else 0.0

    trace = run(load, 1800.0, math.ceil(usual / 0.6), 4 * replicas)
    begin, end = int(at_s / STEP_S), int((at_s + lasts_s) / STEP_S)
    before = trace.wanted[begin - 1]
    asked = next(n for n, wanted in enumerate(trace.wanted[begin:]) if wanted > before)
    needed = math.ceil(4 * usual / COMFORT)
    enough = next(n for n, running in enumerate(trace.running[begin:]) if running >= needed)
    came, done = np.asarray(trace.came), np.asarray(trace.done)
    served = np.minimum(came, done)[begin + enough : end]
    return Surge(
        asked * STEP_S,
        enough * STEP_S,
        float(served.sum() / came[begin + enough : end].sum()),
        trace.turns(),
        trace.wanted[-1],
    )


def day(replicas: int, seconds: float = 8 * 3600.0) -> Trace:
    """From a quarter of the load to all of it and back; a day in eight hours."""

    def load(now: float) -> float:
        return 0.7 * replicas * (0.625 - 0.375 * math.cos(2 * math.pi * now / seconds))

    return run(load, seconds, max(1, replicas // 4 + 1), 2 * replicas)


def noisy(replicas: int) -> Trace:
    return run(lambda _: 0.6 * replicas, 2 * 3600.0, replicas, 3 * replicas, noise=0.2)
