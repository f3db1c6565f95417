"""HAProxy's surroundings: what one server says to Ray, no other server of the machine says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import orjson
import pytest

from serve.local import haproxy

pytestmark = pytest.mark.unit

SHARED = {
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": "8500",
    "RAY_SERVE_HAPROXY_STATS_PORT": "8404",
    "RAY_SERVE_HAPROXY_METRICS_PORT": "9101",
}
"""What Ray takes where nothing is said, on every machine."""


def test_no_port_is_one_that_every_server_takes(tmp_path: Path) -> None:
    found = haproxy.environment("/bin/true", tmp_path / "h")
    assert all(found[name] != value for name, value in SHARED.items())
    assert len({found[name] for name in SHARED}) == len(SHARED)


def test_replicas_have_a_block_of_ports_of_their_own(tmp_path: Path) -> None:
    blocks = []
    for number in range(30):
        found = haproxy.environment("/bin/true", tmp_path / str(number))
        first, last = (
            int(found[f"RAY_SERVE_DIRECT_INGRESS_{end}_HTTP_PORT"]) for end in ("MIN", "MAX")
        )
        assert 20_000 <= first < last < 32_768
        assert last - first + 1 == haproxy.REPLICA_PORTS
        blocks.append(first)
    assert len(set(blocks)) > 15
    assert all(first % haproxy.REPLICA_PORTS == 0 for first in blocks)


RENDERED = """global
    stats socket /tmp/x
defaults
    option splice-request
    errorfile 503 /somewhere
frontend prometheus
    bind :{metrics}
frontend http_frontend
    bind 0.0.0.0:8888
    default_backend b
backend b
"""


def test_what_ray_writes_is_made_safe(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    found = haproxy.environment("/bin/true", folder, per_address=7)
    config = tmp_path / "haproxy.cfg"
    config.write_text(RENDERED.format(metrics=found["RAY_SERVE_HAPROXY_METRICS_PORT"]))
    start = found["RAY_SERVE_HAPROXY_BINARY_PATH"]
    subprocess.run([start, "-f", str(config)], check=True)
    lines = [line.strip() for line in config.read_text().splitlines()]
    assert f"bind 127.0.0.1:{found['RAY_SERVE_HAPROXY_METRICS_PORT']}" in lines
    assert f"errorfile 503 {folder}/503.http" in lines
    assert "option splice-request" not in lines
    rules = lines[lines.index("bind 0.0.0.0:8888") : lines.index("default_backend b")]
    assert {"option http-buffer-request", "timeout http-request 10s"} <= set(rules)
    assert any("sc0_conn_cur gt 7" in rule and "!{ src 127.0.0.0/8 ::1 }" in rule for rule in rules)
    for status in (400, 408, 503):
        head, body = (folder / f"{status}.http").read_bytes().split(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert orjson.loads(body)["detail"]
        assert (b"Retry-After" in head) == (status == 503)
    config.write_text("frontend another\n")  # Ray has changed: said, not passed over
    assert subprocess.run([start, "-f", str(config)], capture_output=True).returncode == 1


def test_without_a_bound_per_address(tmp_path: Path) -> None:
    found = haproxy.environment("/bin/true", tmp_path / "h")
    config = tmp_path / "haproxy.cfg"
    config.write_text(RENDERED.format(metrics=1))
    subprocess.run([found["RAY_SERVE_HAPROXY_BINARY_PATH"], "-f", str(config)], check=True)
    assert "conn_cur" not in config.read_text()
    assert 64 <= int(found["RAY_SERVE_HAPROXY_MAXCONN"]) <= haproxy.CONNECTIONS
