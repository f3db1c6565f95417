"""What is measured in and around answers: candidates of an arm, paths into a body, many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cases.scene import Ask, Reply

_METHODS = {"text": "bm25", "keyword": "bm25"}


def candidates(trace: dict[str, Any], arm: str) -> list[str]:
    """The ids that an arm listed, over all fact types."""
    method = _METHODS.get(arm, arm)
    return [
        row["node_id"]
        for part in trace["retrieval_results"]
        if part["method_name"] == method
        for row in part["results"]
    ]


def measure(reply: Reply, name: str) -> float:
    """`trace.<arm>_candidates`, `results`, or any number by its path in the body."""
    if name == "results":
        return len(reply.results)
    if name.startswith("trace.") and name.endswith("_candidates"):
        arm = name.removeprefix("trace.").removesuffix("_candidates")
        return len(candidates(reply.body["trace"], arm))
    value = at(reply.body, name)
    if isinstance(value, list | dict):
        return len(value)
    assert isinstance(value, int | float), f"{name} is {value!r}"
    return float(value)


def at(value: Any, path: str) -> Any:
    """What stands at a dotted path; numbers index lists; None where a key is absent."""
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def seconds(reply: Reply, stage: str | None) -> float:
    """The caller's wait; with stage `retrieval` without the reranker's share, by the trace."""
    if stage is None:
        return reply.seconds
    assert stage == "retrieval", f"unknown stage {stage!r}"
    assert reply.status == 200, f"{reply.status} {reply.text[:300]}"
    phases = (reply.body.get("trace") or {}).get("summary", {}).get("phase_metrics", [])
    reranking: float = sum(p["duration_seconds"] for p in phases if p["phase_name"] == "reranking")
    return reply.seconds - reranking


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(np.asarray(values, np.float64), share, method="higher"))


async def together(ask: Ask, calls: int, concurrency: int) -> list[Reply]:
    """`calls` recalls, at most `concurrency` at a time."""
    gate = asyncio.Semaphore(concurrency)

    async def one() -> Reply:
        async with gate:
            return await ask()

    return await asyncio.gather(*(one() for _ in range(calls)))
