"""CPU time of this process's descendants, by what they are."""

from __future__ import annotations

from collections.abc import Mapping

import psutil


def cpu_seconds(root: int) -> dict[int, float]:
    """CPU seconds (user and system) so far of `root` and everything below it, by process id.

    A process that has ended since is not in it: compare processes that are in both samples.
    """
    found: dict[int, float] = {}
    try:
        top = psutil.Process(root)
        below = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in below:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process.pid] = times.user + times.system
    return found


def spent(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """CPU seconds between two samples; what began in between counts from its start."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def find(root: int, name: str) -> list[int]:
    """The processes below `root` whose program is called so, the topmost only."""
    found = []
    for process in psutil.Process(root).children(recursive=True):
        try:
            parent = process.parent()
            if process.name() == name and (parent is None or parent.name() != name):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
