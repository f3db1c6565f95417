"""A server with two ingress replicas: a tenant's limit holds for both together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.server import Server, until

pytestmark = [pytest.mark.serve, pytest.mark.timeout(240)]
BURST = 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(
        tmp_path / "data",
        FOURFOLD_WORKERS="2",
        FOURFOLD_TENANT_REQUESTS_PER_S="0.001",
        FOURFOLD_TENANT_BURST=str(BURST),
    )
    try:
        yield started.start()
    finally:
        started.kill()


def test_two_replicas_let_in_what_one_would(server: Server) -> None:
    until(lambda: server.logged().count("limits are shared by 2 processes") >= 2)
    url = f"{server.url}/v1/default/banks/sample/memories/recall"
    statuses, said = [], set()
    for _ in range(6 * BURST):
        answer = httpx.post(url, json={"query": "flood"}, timeout=30)
        statuses.append(answer.status_code)
        if answer.status_code == 429:
            said.add(answer.json()["detail"])
    assert statuses.count(200) == BURST
    assert set(statuses) == {200, 429}
    assert said == {"this tenant may send 0.001 requests a second"}
