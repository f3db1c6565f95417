"""What the server says of itself while its database refuses."""

import dataclasses
from pathlib import Path

import pytest

from retrieval.store.database import pool
from serve.local import processes
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration


async def test_writes_that_the_database_refuses(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RETRY_WAITS_S", (0.01, 0.01, 0.01))
    database = live.services.pool
    await database.execute(
        "create or replace function full_disk() returns trigger language plpgsql as $$"
        " begin raise exception 'no space left' using errcode = '53100'; end $$;"
        "create trigger full_disk before insert on memory_units execute function full_disk()"
    )
    body = {"items": [{"content": "The disk was full that day."}]}
    try:
        answer = await live.http.post(f"{B}/full/memories", json=body)
        assert answer.status_code == 503
        assert "no space left" in answer.json()["detail"]
        assert int(answer.headers["Retry-After"]) >= 1
        health = await live.http.get("/health")
        assert health.status_code == 200  # recalls are served
        assert health.json()["status"] == "degraded"
        assert "no space left" in health.json()["database"]
        assert (await live.recall("sample", "Who?"))["results"]
    finally:
        await database.execute("drop trigger full_disk on memory_units")
    assert (await live.http.post(f"{B}/full/memories", json=body)).status_code == 200
    monkeypatch.setattr(pool, "TROUBLE_S", 0.0)
    assert (await live.http.put(f"{B}/full", json={"name": "full no more"})).status_code == 200
    assert (await live.http.get("/health")).json()["status"] == "healthy"


async def test_a_server_that_is_not_ready_says_so(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(processes.RUN, str(tmp_path))
    with processes.loading(tmp_path):
        health = await live.http.get("/health")
        assert health.status_code == 503
        assert health.json()["status"] == "loading"
        assert int(health.headers["Retry-After"]) >= 1
        assert (await live.http.get("/health/live")).status_code == 200
    assert (await live.http.get("/health")).json()["status"] == "healthy"


async def test_readiness_is_that_of_the_whole_server(live: Live) -> None:
    ready = await live.http.get("/health/ready")
    assert ready.status_code == 200
    assert ready.json()["schema"] >= 120
    assert len(ready.json()["epoch"]) == 36

    absent: list[str] = []

    async def asked() -> list[str]:
        return absent

    changed = dataclasses.replace(live.services, absent=asked)
    live.api.state.services = changed
    try:
        for names, status, said in (
            (["embedder", "reranker"], 200, "degraded"),
            (["retriever"], 503, "unhealthy"),
            (["ingest", "embedder"], 503, "unhealthy"),
        ):
            absent[:] = names
            ready = await live.http.get("/health/ready")
            assert (ready.status_code, ready.json()["status"]) == (status, said)
            assert ready.json()["absent"] == names
            assert (await live.http.get("/health")).json()["status"] == "healthy", "of this process"
    finally:
        live.api.state.services = live.services
    assert int(ready.headers["Retry-After"]) >= 1
