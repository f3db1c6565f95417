"""The file that remembers what was deleted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from retrieval.lifecycle.erasure.ledger import Ledger, entries, replay
from retrieval.store import banks
from retrieval.store.database.pool import Pool, write
from retrieval.store.erasure import ErasureEntry

NOW = datetime(2026, 5, 6, 7, 8, tzinfo=UTC)


def entry(name: str = "b") -> ErasureEntry:
    return ErasureEntry("default", name, NOW, [uuid4()], ["d"])


@pytest.mark.unit
async def test_what_a_crash_cut_off_spoils_nothing_after_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first, second = entry("one"), entry("two")
    await Ledger(path)(first)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"version": 1, "tenant": "def')
    await Ledger(path)(second)
    assert [one.bank_id for one in entries(path)] == ["one", "two"]


@pytest.mark.unit
async def test_a_write_that_stops_half_way_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, given = tmp_path / "ledger", os.write
    monkeypatch.setattr(os, "write", lambda file, data: given(file, data[:7]))
    await Ledger(path)(entry())
    assert [one.bank_id for one in entries(path)] == ["b"]


@pytest.mark.integration
async def test_a_bank_that_came_back_is_another_one(pool: Pool, tmp_path: Path) -> None:
    """It has the age of the one that was deleted, since it was made of its archive."""
    ledger, name = Ledger(tmp_path / "ledger"), uuid4().hex
    await banks.put(pool, "default", name, {})
    await banks.delete(pool, "default", name, note=ledger)
    await banks.put(pool, "default", name, {})
    old = datetime.now(UTC) - timedelta(days=9)
    await write(
        pool, lambda c: c.execute("update banks set created_at = $1 where bank_id = $2", old, name)
    )
    assert (await replay(pool, tmp_path / "ledger")).banks == ()
    assert (await banks.head(pool, "default", name)).bank_id == name


@pytest.mark.integration
async def test_a_bank_that_a_restore_brought_back_goes(pool: Pool, tmp_path: Path) -> None:
    ledger, name = Ledger(tmp_path / "ledger"), uuid4().hex
    await banks.put(pool, "default", name, {})
    number = (await banks.head(pool, "default", name)).bank
    await ledger(ErasureEntry("default", name, datetime.now(UTC), whole=True, bank=number))
    assert (await replay(pool, tmp_path / "ledger")).banks == (name,)
