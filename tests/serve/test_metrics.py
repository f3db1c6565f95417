"""What is resident, as Prometheus sees it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from retrieval.bank.cache import ResidencyMetrics
from retrieval.maintenance.upkeep import UpkeepMetrics
from serve import metrics

pytestmark = pytest.mark.unit

NOW = ResidencyMetrics(
    resident_banks=3,
    resident_bytes=300,
    device_bytes=30,
    loading=0,
    hits=10,
    misses=4,
    deltas=2,
    delta_versions=5,
    evictions=1,
    abandoned=0,
    load_seconds=0.5,
    delta_seconds=0.25,
)


def _value(name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_counters_rise_by_what_happened_since_the_last_report() -> None:
    hits = _value("fourfold_banks_events_total", event="hit")
    seconds = _value("fourfold_banks_seconds_total", work="load")
    metrics.resident(NOW, None)
    later = dataclasses.replace(NOW, hits=17, resident_banks=2, load_seconds=0.75)
    metrics.resident(later, NOW)
    assert _value("fourfold_banks_events_total", event="hit") == hits + 17
    assert _value("fourfold_banks_seconds_total", work="load") == seconds + 0.75
    assert _value("fourfold_banks_resident") == 2
    assert _value("fourfold_banks_bytes", memory="device") == 30


def test_what_upkeep_did_is_counted() -> None:
    merged = _value("fourfold_upkeep_events_total", event="merged_segments")
    failed = _value("fourfold_upkeep_events_total", event="failures")
    spent = _value("fourfold_upkeep_seconds_total")
    first = UpkeepMetrics(merged_segments=5, work_seconds=0.5)
    metrics.kept_up(first, None)
    metrics.kept_up(dataclasses.replace(first, merged_segments=7, failures=1), first)
    assert _value("fourfold_upkeep_events_total", event="merged_segments") == merged + 7
    assert _value("fourfold_upkeep_events_total", event="failures") == failed + 1
    assert _value("fourfold_upkeep_seconds_total") == spent + 0.5


def test_a_dead_process_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(metrics.MULTIPROCESS, str(tmp_path))
    alive, dead = tmp_path / f"gauge_liveall_{os.getpid()}.db", tmp_path / "gauge_liveall_0.db"
    for file in (alive, dead):
        file.write_bytes(b"\0" * 64)
    # No process can have a number above the system's limit.
    dead = dead.rename(tmp_path / f"gauge_liveall_{2**22 + 1}.db")
    metrics.render()
    assert alive.exists()
    assert not dead.exists()
