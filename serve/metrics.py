"""Prometheus metrics of a process, or of all processes of a node that share a folder.

With PROMETHEUS_MULTIPROC_DIR set (the launcher sets it), every process writes its values there and
any of them can answer a scrape with the sum.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

registry = CollectorRegistry()

REQUESTS = Counter(
    "fourfold_requests_total", "Requests by operation and status", ("operation", "status"),
    registry=registry,
)  # fmt: skip
LATENCY = Histogram(
    "fourfold_request_seconds", "Duration of requests", ("operation",), buckets=_SECONDS,
    registry=registry,
)  # fmt: skip
STAGES = Histogram(
    "fourfold_recall_stage_seconds", "Duration of the stages of a recall", ("stage",),
    buckets=_SECONDS, registry=registry,
)  # fmt: skip
DEGRADED = Counter(
    "fourfold_recall_degraded_total", "Recalls that were answered without a part", ("part",),
    registry=registry,
)  # fmt: skip
RESULTS = Counter("fourfold_recall_results_total", "Memories returned", registry=registry)
MODEL = Histogram(
    "fourfold_model_measure", "Measurements of the model engines", ("model", "measure"),
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 50, 200, 1_000, 5_000, 20_000),
    registry=registry,
)  # fmt: skip
INSIDE = Gauge(
    "fourfold_door_inside", "Requests running, by door", ("door",), registry=registry,
    multiprocess_mode="livesum",
)  # fmt: skip
WAITING = Gauge(
    "fourfold_door_waiting", "Requests waiting, by door", ("door",), registry=registry,
    multiprocess_mode="livesum",
)  # fmt: skip


@contextmanager
def measured(operation: str) -> Iterator[None]:
    """Counts and times one request of `operation`; an exception counts as an error."""
    begin = time.perf_counter()
    status = "error"
    try:
        yield
        status = "ok"
    finally:
        REQUESTS.labels(operation, status).inc()
        LATENCY.labels(operation).observe(time.perf_counter() - begin)


def recalled(seconds: Mapping[str, float], degraded: tuple[str, ...], results: int) -> None:
    for stage, spent in seconds.items():
        STAGES.labels(stage).observe(spent)
    for part in degraded:
        DEGRADED.labels(part).inc()
    RESULTS.inc(results)


class _Ours:
    """The sum over the processes of this node, without what other libraries left in the folder."""

    def collect(self) -> Iterator[Metric]:
        found = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
        return (metric for metric in found if metric.name.startswith("fourfold_"))


def render() -> bytes:
    """The scrape, in Prometheus' text format."""
    if os.environ.get(MULTIPROCESS):
        whole = CollectorRegistry()
        whole.register(_Ours())
        return generate_latest(whole)
    return generate_latest(registry)
