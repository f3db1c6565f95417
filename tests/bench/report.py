"""What the benchmarks print and keep."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def table(title: str, columns: Sequence[str], rows: Mapping[str, Mapping[str, float]]) -> None:
    """Prints rows of numbers; a number that a row lacks is left blank."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    shown.add_column("")
    for column in columns:
        shown.add_column(column, justify="right")
    for name, values in rows.items():
        shown.add_row(name, *(_number(values.get(column)) for column in columns))
    Console(width=110).print(shown)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
