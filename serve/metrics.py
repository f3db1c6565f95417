"""Prometheus metrics of a process, or of all processes of a node that share a folder.

With PROMETHEUS_MULTIPROC_DIR set (the launcher sets it), every process writes its values there and
any of them can answer a scrape with the sum.
"""

from __future__ import annotations

import os
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from retrieval import errors

if TYPE_CHECKING:  # it brings FAISS
    from retrieval.bank.cache import ResidencyMetrics
    from retrieval.maintenance.upkeep import UpkeepMetrics

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST

BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

registry = CollectorRegistry()

REQUESTS = Counter(
    "fourfold_requests_total",
    "Requests by operation and how they ended: ok, invalid, denied, refused, late, failed",
    ("operation", "outcome"),
    registry=registry,
)  # fmt: skip
LATENCY = Histogram(
    "fourfold_request_seconds", "Duration of requests", ("operation",), buckets=BUCKETS_S,
    registry=registry,
)  # fmt: skip
STAGES = Histogram(
    "fourfold_recall_stage_seconds", "Duration of the stages of a recall", ("stage",),
    buckets=BUCKETS_S, registry=registry,
)  # fmt: skip
DEGRADED = Counter(
    "fourfold_recall_degraded_total", "Recalls that were answered without a part", ("part",),
    registry=registry,
)  # fmt: skip
REFLECT_DEGRADED = Counter(
    "fourfold_reflect_degraded_total", "Reflects whose answer is less than it should be",
    ("reason",), registry=registry,
)  # fmt: skip
RESULTS = Counter("fourfold_recall_results_total", "Memories returned", registry=registry)
MODEL_BATCH_SECONDS = Histogram(
    "fourfold_model_batch_seconds", "Duration of a model's batches", ("model",), buckets=BUCKETS_S,
    registry=registry,
)  # fmt: skip
MODEL_WAIT_SECONDS = Histogram(
    "fourfold_model_wait_seconds", "Time of calls before their first batch", ("model",),
    buckets=BUCKETS_S, registry=registry,
)  # fmt: skip
MODEL_BATCH_TOKENS = Histogram(
    "fourfold_model_batch_tokens", "Tokens of a model's batches", ("model",),
    buckets=(10, 50, 200, 1_000, 5_000, 20_000, 100_000), registry=registry,
)  # fmt: skip
MODEL_QUEUED_TOKENS = Gauge(
    "fourfold_model_queued_tokens", "Tokens that wait for a model", ("model",), registry=registry,
    multiprocess_mode="livesum",
)  # fmt: skip
MODEL_EVENTS = Counter(
    "fourfold_model_events_total", "Answers without a member of the chain, and failures of members",
    ("model", "event"), registry=registry,
)  # fmt: skip
RERANKER_LEFT_OUT = Gauge(
    "fourfold_reranker_left_out", "Processes that leave a failing reranker out for a while",
    ("member",), registry=registry, multiprocess_mode="livesum",
)  # fmt: skip
DB_ACQUIRE_SECONDS = Histogram(
    "fourfold_db_acquire_seconds", "Wait for a database connection", buckets=BUCKETS_S,
    registry=registry,
)  # fmt: skip
ADMISSION_REFUSED = Counter(
    "fourfold_admission_refused_total", "Requests that were turned away: full, or a tenant's limit",
    ("controller", "reason"), registry=registry,
)  # fmt: skip
OLDEST_OPERATION = Gauge(
    "fourfold_operations_oldest_seconds", "Age of the oldest operation that waits",
    registry=registry, multiprocess_mode="livemax",
)  # fmt: skip
RESIDENT_MEMORY = Gauge(
    "fourfold_process_memory_bytes", "Resident memory of a process", registry=registry,
    multiprocess_mode="liveall",
)  # fmt: skip
MEMORY_LIMIT = Gauge(
    "fourfold_memory_limit_bytes", "What the control group, or the machine, lets the node have",
    registry=registry, multiprocess_mode="livemax",
)  # fmt: skip
BUILD = Gauge(
    "fourfold_build_info", "1, by version", ("version",), registry=registry,
    multiprocess_mode="livemax",
)  # fmt: skip
RUNNING = Gauge(
    "fourfold_admission_running", "Requests running", ("controller",), registry=registry,
    multiprocess_mode="livesum",
)  # fmt: skip
WAITING = Gauge(
    "fourfold_admission_waiting", "Requests in line", ("controller",), registry=registry,
    multiprocess_mode="livesum",
)  # fmt: skip

HOP_SECONDS = Histogram(
    "fourfold_hop_seconds", "Duration of calls to a stage that were answered", ("stage",),
    buckets=BUCKETS_S, registry=registry,
)  # fmt: skip
HOP_FAILURES = Counter(
    "fourfold_hop_failures_total",
    "Calls to a stage without an answer: its replica died, was late, full, of a release that does"
    " not understand it (skew), or there was none",
    ("stage", "kind"), registry=registry,
)  # fmt: skip
ROUTER_RANK = Counter(
    "fourfold_router_rank_total", "Which of a bank's replicas a call went to", ("stage", "rank"),
    registry=registry,
)  # fmt: skip
LOOP_LAG = Histogram(
    "fourfold_loop_lag_seconds", "How late an event loop runs what is due", buckets=BUCKETS_S,
    registry=registry,
)  # fmt: skip

BANKS = Gauge(
    "fourfold_banks_resident", "Banks that a process holds in memory", registry=registry,
    multiprocess_mode="liveall",
)  # fmt: skip
BANK_BUDGET = Gauge(
    "fourfold_banks_budget_bytes", "Memory that a process may hold banks in", registry=registry,
    multiprocess_mode="liveall",
)  # fmt: skip
BANK_BYTES = Gauge(
    "fourfold_banks_bytes", "Memory of the banks that a process holds", ("memory",),
    registry=registry, multiprocess_mode="liveall",
)  # fmt: skip
BANK_EVENTS = Counter(
    "fourfold_banks_events_total",
    "Openings of banks: found at the newest version (hit), not held (miss); and what came of them",
    ("event",), registry=registry,
)  # fmt: skip
BANK_SECONDS = Counter(
    "fourfold_banks_seconds_total", "Time spent loading banks and applying deltas", ("work",),
    registry=registry,
)  # fmt: skip

UPKEEP_EVENTS = Counter(
    "fourfold_upkeep_events_total",
    "What the upkeep of banks did: rounds, segments merged, dead ordinals dropped, entities without"
    " memories removed, banks reindexed or reembedded, and banks where it failed",
    ("event",), registry=registry,
)  # fmt: skip
UPKEEP_SECONDS = Counter(
    "fourfold_upkeep_seconds_total", "Time that the upkeep of banks worked", registry=registry
)


@contextmanager
def measured(operation: str) -> Iterator[None]:
    """Counts and times one request of `operation`, by how it ends."""
    begin = time.perf_counter()
    ended = "failed"
    try:
        yield
        ended = "ok"
    except BaseException as error:
        ended = outcome(error)
        raise
    finally:
        REQUESTS.labels(operation, ended).inc()
        LATENCY.labels(operation).observe(time.perf_counter() - begin)


def acquired(seconds: float) -> None:
    """Notes a wait for a database connection."""
    DB_ACQUIRE_SECONDS.observe(seconds)


def refusals(controller: str) -> Callable[[str], None]:
    """What a controller calls with the reason of each refusal."""
    return lambda reason: ADMISSION_REFUSED.labels(controller, reason).inc()


def outcome(error: BaseException) -> str:
    """How a request ended that `error` ended. A client that went away was late for itself."""
    for kind, name in _OUTCOMES:
        if isinstance(error, kind):
            return name
    return "failed"


_OUTCOMES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (errors.Overloaded, "refused"),
    (errors.RateLimited, "refused"),
    ((errors.DeadlineExceeded, TimeoutError, CancelledError), "late"),
    ((errors.Unavailable, errors.ModelFailed), "failed"),
    (errors.FourfoldError, "invalid"),
)


def recalled(seconds: Mapping[str, float], degraded: tuple[str, ...], results: int) -> None:
    for stage, spent in seconds.items():
        STAGES.labels(stage).observe(spent)
    for part in degraded:
        DEGRADED.labels(part).inc()
    RESULTS.inc(results)


def resident(now: ResidencyMetrics, before: ResidencyMetrics | None) -> None:
    """What this process holds of banks, and what happened since `before` (None: the start)."""
    BANKS.set(now.resident_banks)
    BANK_BYTES.labels("host").set(now.resident_bytes)
    BANK_BYTES.labels("device").set(now.device_bytes)
    for event, name in _EVENTS.items():
        BANK_EVENTS.labels(event).inc(_since(name, now, before))
    for work in ("load", "delta"):
        BANK_SECONDS.labels(work).inc(_since(f"{work}_seconds", now, before))


def kept_up(now: UpkeepMetrics, before: UpkeepMetrics | None) -> None:
    """What the upkeep of this process did since `before` (None: the start)."""
    for event in _UPKEEP:
        UPKEEP_EVENTS.labels(event).inc(_since(event, now, before))
    UPKEEP_SECONDS.inc(_since("work_seconds", now, before))


def _since(name: str, now: object, before: object | None) -> float:
    was = 0.0 if before is None else float(getattr(before, name))
    return float(getattr(now, name)) - was


_UPKEEP = (
    "rounds",
    "merged_segments",
    "dropped_ordinals",
    "pruned_entities",
    "reindexed_banks",
    "reembedded_banks",
    "failures",
)
_EVENTS = {
    "hit": "hits",
    "miss": "misses",
    "delta": "deltas",
    "version": "delta_versions",
    "eviction": "evictions",
    "abandoned": "abandoned",
}


class _Ours:
    """The sum over the processes of this node, without what other libraries left in the folder."""

    def collect(self) -> Iterator[Metric]:
        found = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
        return (metric for metric in found if metric.name.startswith("fourfold_"))


def render() -> bytes:
    """The scrape, in Prometheus' text format."""
    if folder := os.environ.get(MULTIPROCESS):
        _forget_dead(Path(folder))
        whole = CollectorRegistry()
        whole.register(_Ours())
        return generate_latest(whole)
    return generate_latest(registry)


def _forget_dead(folder: Path) -> None:
    """The gauges of processes that are gone: nobody cleans up after a kill."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not psutil.pid_exists(pid):
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
