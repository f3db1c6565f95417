"""The real policies at a hundred replicas in virtual time; `python -m tests.sim` shows more."""

from __future__ import annotations

import pytest

from tests.sim import admitting, banks, scaling, table

pytestmark = pytest.mark.unit


NOT_JUDGED = ("router: CPU", "replicas that serve it")
"""The first depends on the machine; the second is what a full replica's neighbours take over."""


def _check(figures: list[table.Figure]) -> None:
    judged = [figure for figure in figures if not figure.name.startswith(NOT_JUDGED)]
    missed = [f"{figure.name}: {figure.value:.3f}" for figure in judged if not figure.reached]
    assert not missed


def test_banks_lie_evenly_and_stay() -> None:
    _check(list(table.placed(banks.made(20_000), 30)))


def test_recalls_are_spread() -> None:
    found = list(table.routed(banks.made(20_000), 30))
    _check(found)


def test_replicas_follow_the_load() -> None:
    _check(list(table.scaled(100)))


def test_the_old_rule_s_runaway_is_gone() -> None:
    """One slow call a second never asks for more than it needs."""
    trace = scaling.run(lambda _: 0.75, 600.0, 1, 50)
    assert max(trace.wanted) <= 3


def test_a_hot_bank_is_spread_and_gathered() -> None:
    _check(list(table.heated(banks.made(2_000), 12)))


def test_a_flood_waits_behind_itself() -> None:
    _check(list(table.admitted()))
    assert admitting.run(0.0, seconds=20.0).refused == 0
