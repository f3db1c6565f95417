"""A recall as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from serve.cli import terminal

_ARMS = ("semantic", "bm25", "graph", "temporal")
_SHARES = {"recency": 0.2, "temporal": 0.2, "proof": 0.1}
"""How far each signal (0 to 1, neutral at 0.5) moves a score: factor 1 + share (signal - 0.5)."""
_LEFT_OUT_SHOWN = 15


def show(answer: Mapping[str, Any], *, explain: bool, console: Console | None = None) -> None:
    """Prints the results; with `explain` why each stands where it does, and what was left out."""
    out = console or terminal.console()
    results: Sequence[Mapping[str, Any]] = answer["results"]
    if not results:
        out.print("nothing found")
    else:
        out.print(_results(results, explain))
    if parts := answer.get("degraded"):
        out.print(f"answered without: {', '.join(parts)}", style="yellow")
    if answer.get("results_truncated"):
        out.print("more memories matched than fit the token budget", style="dim")
    if explain:
        _trace(answer.get("trace") or {}, out)


def _results(results: Sequence[Mapping[str, Any]], explain: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("score", justify="right")
    table.add_column("when")
    table.add_column("memory", overflow="fold", ratio=1)
    for rank, result in enumerate(results, 1):
        score = (result.get("scores") or {}).get("final") or 0.0
        memory = Text(result["text"])
        if result.get("type") not in (None, "world"):
            memory.append(f"  [{result['type']}]", style="magenta")
        if explain:
            memory.append(f"\n{_explained(result.get('explain') or {})}", style="cyan")
        table.add_row(str(rank), f"{score:.3f}", _when(result), memory)
    return table


def _when(result: Mapping[str, Any]) -> str:
    start, end = result.get("occurred_start"), result.get("occurred_end")
    shown = str(start or result.get("mentioned_at") or "")[:10]
    return f"{shown} – {str(end)[:10]}" if end and start and end[:10] != start[:10] else shown


def _explained(explain: Mapping[str, Any]) -> str:
    """Rank and score per arm, the fused rank, boosts that moved it, and the path that led to it."""
    arms = explain.get("arms") or {}
    parts = [f"{arm} {arms[arm][0]} ({arms[arm][1]:.2f})" for arm in _ARMS if arm in arms]
    parts.append(f"fused {explain.get('fused_rank', '–')}")
    factors = {name: 1 + share * (explain.get(name, 0.5) - 0.5) for name, share in _SHARES.items()}
    parts += [
        f"{name} ×{factor:.2f}" for name, factor in factors.items() if abs(factor - 1) > 0.005
    ]
    if path := explain.get("path"):
        via = f" via {path['via']}" if path.get("via") else ""
        parts.append(f"← {path['link']}{via}, hop {path['hop']}")
    return " · ".join(parts)


def _trace(trace: Mapping[str, Any], out: Console) -> None:
    window = (trace.get("query") or {}).get("temporal_constraint")
    if window:
        out.print(f"time: {window.get('start')} – {window.get('end')}", style="dim")
    phases = (trace.get("summary") or {}).get("phase_metrics") or []
    if phases:
        spent = ", ".join(
            f"{phase['phase_name']} {phase['duration_seconds'] * 1000:.1f} ms"
            for phase in phases
            if phase["duration_seconds"] >= 0.0001
        )
        out.print(f"took: {spent}", style="dim")
    _left_out(trace, out)


def _left_out(trace: Mapping[str, Any], out: Console) -> None:
    dropped: Sequence[Mapping[str, Any]] = trace.get("decisions") or []
    if not dropped:
        return
    texts = {entry["node_id"]: entry["text"] for entry in trace.get("rrf_merged") or []}
    table = Table(title="left out", box=None, pad_edge=False, title_justify="left")
    table.add_column("score", justify="right")
    table.add_column("why")
    table.add_column("memory", overflow="fold", ratio=1)
    for entry in sorted(dropped, key=lambda entry: -entry["final"])[:_LEFT_OUT_SHOWN]:
        text = texts.get(entry["id"]) or entry["id"]
        table.add_row(f"{entry['final']:.3f}", entry["reason"], Text(text))
    out.print(table)
    if len(dropped) > _LEFT_OUT_SHOWN:
        out.print(f"… and {len(dropped) - _LEFT_OUT_SHOWN} more", style="dim")
