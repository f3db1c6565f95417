"""Every stage as a deployment of its own: the same answers over handles, and lost parts return."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest

from serve.local import sample
from tests.serve.server import ROOT, Server, until

pytestmark = [pytest.mark.serve, pytest.mark.timeout(240)]


def test_stages_apart(tmp_path: Path) -> None:
    rows = {"FOURFOLD_BANK_SHARD_ROWS": "12"}  # the sample bank is split over two replicas
    server = Server(tmp_path / "data", ROOT / "configs" / "stages.yaml", **rows)
    try:
        server.start()
        _check(server)
        _check_ranges(server)
    finally:
        server.kill()


def _check(server: Server) -> None:
    base = "/v1/default/banks"
    with httpx.Client(base_url=server.url, timeout=60) as http:
        body = {"query": sample.QUESTION}
        answer = http.post(f"{base}/{sample.BANK}/memories/recall", json=body)
        assert any("could not be held" in r["text"] for r in answer.json()["results"][:5])

        kept = http.post(f"{base}/apart/memories", json={"items": [{"content": "An otter."}]})
        assert kept.status_code == 200, kept.text
        (memory,) = http.get(f"{base}/apart/memories/list").json()["items"]
        changed = http.patch(f"{base}/apart/memories/{memory['id']}", json={"text": "A marten."})
        assert changed.json()["text"] == "A marten."
        found = http.post(f"{base}/apart/memories/recall", json={"query": "marten"}).json()
        assert [r["text"] for r in found["results"]] == ["A marten."]

        # Expected errors stay what they are on the other side of a handle.
        assert http.post(f"{base}/nobody/memories/recall", json=body).status_code == 404
        refused = http.post(f"{base}/apart/memories/import", json={"memories": [{"key": "k"}]})
        assert refused.status_code == 400
        assert "memories[0].text" in refused.json()["detail"]
        late = http.post(
            f"{base}/{sample.BANK}/memories/recall",
            json=body,
            headers={"X-Request-Timeout-S": "0.0001"},
        )
        assert late.status_code == 504

        # More than the 4 MiB that a message between processes usually may have.
        many = [{"key": str(n), "text": f"Otter {n}."} for n in range(2_800)]
        done = http.post(f"{base}/many/memories/import", json={"memories": many})
        assert done.status_code == 200, done.text

        for process in server.named("ServeReplica:fourfold:Embedder"):
            process.kill()
        stop_at = time.monotonic() + 90
        while True:
            answer = http.post(f"{base}/{sample.BANK}/memories/recall", json=body)
            assert answer.status_code == 200, answer.text  # the other arms answer meanwhile
            if "degraded" not in answer.json():
                break
            assert time.monotonic() < stop_at, "the embedder did not come back"
            time.sleep(0.2)


def _check_ranges(server: Server) -> None:
    """A split bank answers, also after the replica of some of its ranges died."""
    recall = f"/v1/default/banks/{sample.BANK}/memories/recall"
    body = {
        "query": sample.QUESTION,
        "query_timestamp": "2026-01-01T00:00:00Z",  # recency counts in seconds
        "budget": "high",
    }
    with httpx.Client(base_url=server.url, timeout=60) as http:
        before = http.post(recall, json=body).json()
        holders = server.named("ServeReplica:fourfold:Ranges")
        assert len(holders) == 2

        def reported() -> bool:
            held = _resident(http.get("/metrics").text)
            each = [held.get(process.pid, 0) for process in holders]
            return min(each) >= 1 and sum(each) >= 15

        until(reported)
        holders[0].kill()
        after = http.post(recall, json=body)
        assert after.status_code == 200, after.text
        assert after.json()["results"] == before["results"]
        assert "degraded" not in after.json()


def _resident(metrics: str) -> dict[int, int]:
    """How many banks, or ranges of one, each process holds."""
    lines = re.findall(r'^fourfold_banks_resident\{pid="(\d+)"\} (\S+)$', metrics, re.MULTILINE)
    return {int(pid): int(float(count)) for pid, count in lines}
