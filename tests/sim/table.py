"""The figures of the simulation beside what they should be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sim import admitting, banks, heating, placing, routing, scaling

ROUTERS = {30: 6, 100: 20, 300: 60, 1000: 120}
SECONDS = {30: 12.0, 100: 24.0, 300: 9.0, 1000: 4.5}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    replicas: int
    value: float
    goal: float
    """At most this, or at least where `least`."""
    least: bool = False

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.least else self.value <= self.goal


def placed(there: banks.Banks, replicas: int) -> Iterator[Figure]:
    added, lost, replaced = placing.moved(there, replicas)
    yield Figure("bytes: max/mean", replicas, placing.bytes_spread(there, replicas), 1.25)
    yield Figure("banks moved by one more replica, of a fair share", replicas, added, 1.1)
    yield Figure("banks moved by a lost replica beyond its own", replicas, lost, 0.0)
    yield Figure("banks moved by a replaced replica", replicas, replaced, 0.0)
    yield Figure("loads a bank in a roll", replicas, placing.roll(there, replicas), 1.1)


def routed(there: banks.Banks, replicas: int, exponent: float = 1.0) -> Iterator[Figure]:
    found = routing.run(there, replicas, ROUTERS[replicas], exponent, SECONDS[replicas])
    zipf = f" (Zipf {exponent})"
    yield Figure("load: max/mean" + zipf, replicas, found.load_spread, 1.3)
    yield Figure("copies of the hottest bank over the ideal" + zipf, replicas, found.hot_copies, 1)
    yield Figure("replicas that serve it over the ideal" + zipf, replicas, found.hot_spilled, 1)
    yield Figure(
        "changes of its copies a minute" + zipf, replicas, found.copies_changes_a_minute, 2
    )
    yield Figure("router: CPU ms a recall" + zipf, replicas, found.router_ms, 0.1)


def scaled(replicas: int) -> Iterator[Figure]:
    day = scaling.day(replicas)
    yield Figure("replica-seconds over an oracle, a day", replicas, day.over_oracle(), 1.25)
    yield Figure("share of the day above a use of 0.8", replicas, day.crowded(), 0.01)
    noisy = scaling.noisy(replicas)
    yield Figure("changes of direction an hour, 20 % noise", replicas, noisy.turns_an_hour(), 2)
    step = scaling.step(replicas)
    limit = scaling.COLD_START_S + 15
    yield Figure("load x 3: seconds to 90 % goodput", replicas, step.served_after_s, limit)
    yield Figure("load x 3: most wanted over needed", replicas, step.overshoot, 1.3)
    surge = scaling.surge(replicas)
    twice = 2 * scaling.COLD_START_S + 10
    yield Figure(
        "load x 4 for 60 s: seconds until more are wanted", replicas, surge.asked_after_s, 10
    )
    yield Figure("load x 4: seconds until enough run", replicas, surge.enough_after_s, twice)
    yield Figure("load x 4: goodput from then on", replicas, surge.goodput, 0.9, least=True)
    yield Figure("load x 4, then none: changes of direction", replicas, surge.turns, 1)
    yield Figure("load x 4, then none: replicas left", replicas, surge.left, 1)


def heated(there: banks.Banks, replicas: int) -> Iterator[Figure]:
    found = heating.run(there, replicas, routers=max(3, replicas // 3))
    yield Figure("half of all traffic: seconds until spread", replicas, found.spread_s, 5)
    yield Figure("half of all traffic: seconds until gathered", replicas, found.gathered_s, 60)


def admitted() -> Iterator[Figure]:
    usual, flooded = admitting.run(0.0), admitting.run(20.0)
    yield Figure("others' p99 beside a flood of 20 x", 1, flooded.p99_s / usual.p99_s, 1.5)
    yield Figure("others refused beside a flood", 1, flooded.refused, 0)


def everything() -> Iterator[Figure]:
    there = banks.made()
    for replicas in (100, 300, 1000):
        yield from placed(there, replicas)
        yield from routed(there, replicas)
        yield from scaled(replicas)
    for exponent in (0.8, 1.2):
        yield from routed(there, 100, exponent)
    for replicas in (6, 12, 30):
        yield from heated(banks.made(20_000), replicas)
    yield from admitted()


def show() -> None:
    begin = time.monotonic()
    print(f"{'':2} {'replicas':>8} {'figure':56} {'value':>9} {'goal':>8}")
    for figure in everything():
        sign = ">=" if figure.least else "<="
        print(
            f"{'ok' if figure.reached else '--'} {figure.replicas:8} {figure.name:56}"
            f" {figure.value:9.3f} {sign}{figure.goal:6.2f}",
            flush=True,
        )
    print(f"{time.monotonic() - begin:.0f} s")
