"""Alert rules and dashboard: every name exists, and every rule fires when it should, and only
then."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Histogram

from serve import metrics
from tests.observability.promql import Labels, Parser, Series

pytestmark = pytest.mark.unit

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_FILE = yaml.safe_load((CONFIGS / "prometheus" / "fourfold.yaml").read_text())
RULES: list[dict[str, Any]] = _FILE["groups"][0]["rules"]
DASHBOARD = json.loads((CONFIGS / "grafana" / "fourfold.json").read_text())
RAY = {
    "ray_serve_autoscaling_desired_replicas",
    "ray_serve_deployment_replica_healthy",
    "ray_serve_controller_control_loop_duration_s",
}
FOR = {"m": 60.0, "s": 1.0, "h": 3600.0}


def registered() -> dict[str, set[str]]:
    """The labels of each series that our processes write."""
    found: dict[str, set[str]] = {}
    for collector in vars(metrics).values():
        if not hasattr(collector, "_labelnames"):
            continue
        name, labels = collector._name, {*collector._labelnames, "instance", "pid"}
        if isinstance(collector, Histogram):
            found |= {f"{name}_{part}": labels for part in ("sum", "count")}
            found[f"{name}_bucket"] = labels | {"le"}
        elif isinstance(collector, Counter):
            found[f"{name}_total"] = labels
        else:
            found[name] = labels
    return found


def queries() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("title", "query"), list(queries()), ids=[title for title, _ in queries()])
def test_every_name_and_label_is_there(title: str, query: str) -> None:
    known = registered()
    for selector in Parser(query).selectors:
        if selector.name in RAY:
            continue
        assert selector.name in known, f"{title}: {selector.name}"
        assert {label for label, _, _ in selector.matchers} <= known[selector.name]


def test_ray_s_names_are_in_its_source() -> None:
    found = find_spec("ray")  # importing Serve takes seconds, and warns
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).parent / "serve" / "_private"
    text = "".join(path.read_text() for path in source.glob("*.py"))
    for name in RAY:
        assert f'"{name.removeprefix("ray_")}"' in text, name


def test_every_metric_of_ours_is_shown() -> None:
    """On the dashboard or in a rule, but for what `fourfold top` alone shows."""
    asked = {s.name for _, query in queries() for s in Parser(query).selectors}
    only_shown = {
        "fourfold_banks_resident",
        "fourfold_build_info",
        "fourfold_model_events_total",
        "fourfold_recall_results_total",
    }
    shown = {name.removesuffix("_bucket").removesuffix("_sum") for name in asked}
    for name in registered():
        base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        assert base in shown | only_shown, name


Make = Callable[[float], float]


def grows(per_s: float) -> Make:
    return lambda time: 1e6 + per_s * time


def stays(value: float) -> Make:
    return lambda _time: value


def of(name: str, value: Make, **labels: str) -> dict[tuple[str, Labels], Make]:
    return {(name, frozenset(labels.items())): value}


def histogram(name: str, seconds: float, **labels: str) -> dict[tuple[str, Labels], Make]:
    """Ten observations of `seconds` a second."""
    edges = [*metrics.BUCKETS_S, math.inf]
    return {
        (f"{name}_bucket", frozenset({**labels, "le": str(edge)}.items())): grows(
            10.0 if edge >= seconds else 0.0
        )
        for edge in edges
    }


def recalls(failed: float) -> Series:
    name = "fourfold_requests_total"
    return of(name, grows(100 - failed), operation="recall", outcome="ok") | of(
        name, grows(failed), operation="recall", outcome="failed"
    )


def degraded(share: float) -> Series:
    return {
        **recalls(0.0),
        **of("fourfold_recall_degraded_total", grows(100 * share), part="rerank"),
        **of("fourfold_recall_degraded_total", grows(0.0), part="semantic"),
    }


def refusing(share: float) -> Series:
    name = "fourfold_admission_refused_total"
    return {
        **recalls(0.0),
        **of(name, grows(100 * share), controller="recall", reason="full"),
        **of(name, grows(50.0), controller="recall", reason="limit"),
    }


def banks(misses: float, evictions: float = 1.0) -> Series:
    name = "fourfold_banks_events_total"
    return (
        of(name, grows(100 - misses), event="hit")
        | of(name, grows(misses), event="miss")
        | of(name, grows(evictions), event="eviction")
    )


def routed(first: float) -> Series:
    name = "fourfold_router_rank_total"
    return of(name, grows(first), stage="retriever", rank="first") | of(
        name, grows(100 - first), stage="retriever", rank="next"
    )


def replicas(running: float) -> Series:
    return of("ray_serve_autoscaling_desired_replicas", stays(4.0), deployment="Retriever") | of(
        "ray_serve_deployment_replica_healthy", stays(running), deployment="Retriever"
    )


def memory(used: float) -> Series:
    return (
        of("fourfold_process_memory_bytes", stays(used / 2), instance="a", pid="1")
        | of("fourfold_process_memory_bytes", stays(used / 2), instance="a", pid="2")
        | of("fourfold_memory_limit_bytes", stays(100.0), instance="a")
    )


CASES: dict[str, tuple[Series, Series]] = {
    "RecallsFail": (recalls(2.0), recalls(0.5)),
    "RecallsSlow": (
        histogram("fourfold_request_seconds", 1.5, operation="recall"),
        histogram("fourfold_request_seconds", 0.5, operation="recall"),
    ),
    "Degraded": (degraded(0.06), degraded(0.04)),
    "Refusing": (refusing(0.02), refusing(0.005)),
    "BanksThrash": (banks(3.0), banks(1.0)),
    "AffinityLost": (routed(90.0), routed(97.0)),
    "ReplicasMissing": (replicas(3.0), replicas(4.0)),
    "ControllerBusy": (
        of("ray_serve_controller_control_loop_duration_s", stays(1.2)),
        of("ray_serve_controller_control_loop_duration_s", stays(0.2)),
    ),
    "LoopBlocked": (
        histogram("fourfold_loop_lag_seconds", 0.4),
        histogram("fourfold_loop_lag_seconds", 0.01),
    ),
    "DatabaseWaits": (
        histogram("fourfold_db_acquire_seconds", 0.9),
        histogram("fourfold_db_acquire_seconds", 0.01),
    ),
    "OperationsOld": (
        of("fourfold_operations_oldest_seconds", stays(1000.0)),
        of("fourfold_operations_oldest_seconds", stays(100.0)),
    ),
    "MemoryNear": (memory(95.0), memory(80.0)),
}


def fires(rule: dict[str, Any], series: Series, lasts_s: float) -> bool:
    """Whether the rule's condition holds at every look of its `for`, all within `lasts_s`."""
    query, unit = Parser(rule["expr"]).query, FOR[rule["for"][-1]]
    needs_s = float(rule["for"][:-1]) * unit
    held = 0.0
    for time in range(0, int(lasts_s) + 1, 15):
        found = query(series, 3600.0 + time)
        held = held + 15 if isinstance(found, dict) and found else 0.0
        if held > needs_s:
            return True
    return False


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_fires(rule: dict[str, Any]) -> None:
    wrong, right = CASES[rule["alert"]]
    assert fires(rule, wrong, 3600)
    assert not fires(rule, wrong, 30)  # it has to last
    assert not fires(rule, right, 3600)
    assert not fires(rule, {}, 3600)


def test_misses_of_new_banks_are_no_alarm() -> None:
    rule = next(rule for rule in RULES if rule["alert"] == "BanksThrash")
    assert not fires(rule, banks(10.0, evictions=0.0), 3600)


def test_every_rule_has_a_case_and_says_what_to_do() -> None:
    assert set(CASES) == {rule["alert"] for rule in RULES}
    runbooks = (CONFIGS.parent / "docs" / "operations.md").read_text()
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "warn")
        names = rule["annotations"]["runbook"].removeprefix("docs/operations.md: ")
        for name in names.split("; "):
            assert f"| {name} |" in runbooks, name


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert ids == list(range(1, len(ids) + 1))
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]}
    assert len(places) == len(ids)
    for panel in DASHBOARD["panels"]:
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${source}"


@pytest.mark.parametrize("query", ["rate(x)", "sum(", 'x{a="b"', "topk(3, x)", "x[5m]", "1 +"])
def test_what_is_not_understood_is_an_error(query: str) -> None:
    with pytest.raises((ValueError, KeyError, IndexError)):
        Parser(query).query({}, 0.0)
