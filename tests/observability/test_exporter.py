"""The exporter shows every process of a node, and `top` reads it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from serve.cli.monitor import parsed, shown
from serve.metrics import MULTIPROCESS

pytestmark = pytest.mark.unit

WORK = """
from serve import metrics
with metrics.measured("recall"):
    pass
metrics.BANKS.set(2)
metrics.HOP_SECONDS.labels("retriever").observe(0.1)
print(metrics.os.getpid(), flush=True)
input()
"""


def _process(folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, MULTIPROCESS: str(folder), "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        [sys.executable, "-c", WORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        text=True,
    )


def test_all_processes_are_shown_and_counters_never_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serve import exporter

    monkeypatch.setenv(MULTIPROCESS, str(tmp_path))
    with exporter.server("127.0.0.1", 0) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            with _process(tmp_path) as first, _process(tmp_path) as second:
                pids = set()
                for process in (first, second):
                    assert process.stdout is not None
                    pids.add(process.stdout.readline().strip())
                both = parsed(httpx.get(f"{url}/metrics").text)
                held = {dict(of)["pid"] for name, of in both if name == "fourfold_banks_resident"}
                assert held == pids
                recalls = frozenset({("operation", "recall"), ("outcome", "ok")})
                assert both["fourfold_requests_total", recalls] == 2
                first.kill()
                first.wait()
                one = parsed(httpx.get(f"{url}/metrics").text)
                assert one["fourfold_requests_total", recalls] == 2
                assert sum(name == "fourfold_banks_resident" for name, _ in one) == 1
                second.kill()
                text = "\n".join(shown(both, one, 2.0))
                assert "recall" in text
                assert "2 held" in text
            assert httpx.get(f"{url}/other").status_code == 404
        finally:
            server.shutdown()
            serving.join()


def test_what_a_pod_shows_is_bounded() -> None:
    """Labels are from closed sets: with every value that the code writes, a pod of twelve processes
    stays below two thousand series."""
    from tests.observability.test_rules import registered

    sizes = {
        "operation": 5,
        "outcome": 6,
        "stage": 20,
        "part": 8,
        "reason": 6,
        "model": 2,
        "event": 8,
        "controller": 3,
        "door": 3,
        "memory": 2,
        "member": 4,
        "work": 2,
        "kind": 4,
        "rank": 2,
        "version": 1,
        "le": 14,
        "instance": 1,
        "pid": 1,
    }
    processes = {"fourfold_banks_resident", "fourfold_banks_bytes", "fourfold_banks_budget_bytes",
                 "fourfold_process_memory_bytes"}  # fmt: skip
    total = 0
    for name, labels in registered().items():
        count = 12 if name in processes else 1
        for label in labels:
            count *= sizes[label]
        total += count
    assert total < 2000


def test_a_look_at_nothing_is_no_error() -> None:
    assert shown({}, {}, 1.0)
