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


_KINDS = (
    ("HAProxyManager", "HAProxy's manager"),
    ("haproxy", "HAProxy"),
    ("ServeReplica", "replica"),
    ("ServeController", "Serve's controller"),
    ("ProxyActor", "Serve's proxy"),
    ("PROXY_ACTOR", "Serve's proxy"),
    ("postgres", "PostgreSQL"),
    ("raylet", "raylet, GCS, agents"),
    ("gcs_server", "raylet, GCS, agents"),
    ("Agent", "raylet, GCS, agents"),
)
"""What stands in the first words of a command line, and what its process is."""


def by_kind(root: int) -> dict[str, dict[int, float]]:
    """`cpu_seconds` by what the processes are; `root` is the launcher."""
    found: dict[str, dict[int, float]] = {}
    for pid, seconds in cpu_seconds(root).items():
        kind = "launcher" if pid == root else _kind(pid)
        found.setdefault(kind, {})[pid] = seconds
    return found


def _kind(pid: int) -> str:
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        command = []
    words = command[0] if command else ""
    return next((kind for part, kind in _KINDS if part in words), "other")


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
