"""What Ray starts and imports on a single machine: no more than a server needs.

Ray has no public switch for these. Where a version names them otherwise, they are started as Ray
starts them: more memory, nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from serve.local import agent

_UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")
"""Methods of Ray's node: the autoscaler of clusters, what copies workers' output to a driver, and
the dashboard's server, for which the start waits. Together 170 MB and a second of two cores."""

_AGENT = "--dashboard_agent_command="
"""The raylet's argument that says how its agent is started."""

_UNREAD = ("pandas",)
"""Serve imports these to show their objects in its log: 0.3 s and 30 MB in every process."""


@contextmanager
def bare() -> Iterator[None]:
    """A node that starts inside has only the processes that run work. They have a session of their
    own: a signal to our process group is ours to act on. If it ended them first, Ray would wait for
    them while it holds Python's lock."""
    from ray._private import services, utils
    from ray._private.node import Node

    def nothing(_self: Any, *_: Any, **__: Any) -> None:
        """Started by nobody."""

    def no_dashboard() -> str:
        return "no dashboard is wanted"  # the agent, which must be there, is then its core alone

    def start(command: list[str], *arguments: Any, **named: Any) -> Any:
        return started([small_agent(part) for part in command], *arguments, **named)

    started = services.start_ray_process
    patched: list[tuple[Any, str, Any]] = [(Node, name, nothing) for name in _UNUSED]
    patched += [(utils, "get_dashboard_dependency_error", no_dashboard)]
    patched += [(services, "start_ray_process", start)]
    if popen := getattr(services, "ConsolePopen", None):
        patched += [(services, "ConsolePopen", partial(popen, start_new_session=True))]
    own = [
        (owner, name, getattr(owner, name)) for owner, name, _ in patched if hasattr(owner, name)
    ]
    try:
        for owner, name, replacement in patched:
            if hasattr(owner, name):
                setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, method in own:
            setattr(owner, name, method)


def small_agent(argument: str) -> str:
    """An argument of the raylet's, where it names the core of Ray's dashboard agent with one that
    does as much and imports nothing of Ray; others as they are."""
    _, program, rest = argument.partition("/dashboard/agent.py ")
    if not argument.startswith(_AGENT) or not program or "--minimal" not in rest.split():
        return argument
    own = [sys.executable, "-S", "-E", str(Path(agent.__file__))]
    return f"{_AGENT}{subprocess.list2cmdline(own)} {rest}"


def import_serve() -> None:
    """Imports Ray Serve without what it does not need; other code may import that later."""
    hidden = [name for name in _UNREAD if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    try:
        import ray.serve  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]
