"""Failures that users of such systems reported, as small inputs, through the real application.

The cases lie outside the repository: `cases/given*.json` of the evaluation data, or other files of
the same kind, one or several, named by FOURFOLD_CASES and divided as PATH is. Without them these
tests are skipped; the values that matter are tests of their own elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.bench.sets import DataMissing, folder
from tests.cases import case, checks
from tests.cases.ground import CannotSetUp, Ground, Server, own_ground, server
from tests.cases.player import play, play_window

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


def _files() -> list[Path]:
    named = os.environ.get("FOURFOLD_CASES")
    if named:
        return [Path(one) for one in named.split(os.pathsep) if one]
    try:
        return sorted((folder() / "cases").glob("given*.json"))
    except DataMissing:
        return []


def _params(kind: str) -> list[Any]:
    files = _files()
    if not files:
        why = pytest.mark.skip(reason="no cases here: set FOURFOLD_CASES or FOURFOLD_SHARED")
        return [pytest.param(None, marks=why, id="none")]
    rows = [row for file in files for row in case.read(file)[kind == "recall"]]
    return [pytest.param(row, id=row.id) for row in rows]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base() -> AsyncIterator[Ground]:
    async with own_ground() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(base: Ground) -> AsyncIterator[Server]:
    async with server(base) as made:
        yield made


@pytest.fixture(params=["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone that the server's machine is in, which must not matter."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("window", _params("window"))
async def test_window(window: case.WindowCase, plain: Server, local_zone: str) -> None:
    try:
        await play_window(window, plain)
    except AssertionError as failed:
        if window.stretch:
            pytest.skip(f"nice to have, not met: {failed}")
        raise


@pytest.mark.parametrize("recall", _params("recall"))
async def test_recall(recall: case.RecallCase, base: Ground) -> None:
    try:
        await play(recall, base)
    except CannotSetUp as lacking:
        pytest.skip(f"cannot be set up here: {lacking}")


async def test_every_expectation_has_a_check() -> None:
    recalls = [row for file in _files() for row in case.read(file)[1]]
    if not recalls:
        pytest.skip("no cases here")
    asked = {part["kind"] for row in recalls for part in checks.flatten(row.expect)}
    assert asked <= checks.kinds()
