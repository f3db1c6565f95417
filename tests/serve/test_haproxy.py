"""HAProxy's surroundings: what one server says to Ray, no other server of the machine says."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve import haproxy

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
