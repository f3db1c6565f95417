"""Uploaded files through the application: statuses, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from retrieval.ingest.files import detection
from serve import app, composition
from serve.composition import Stages
from tests.retrieval.ingest.files_made import docx, pdf
from tests.serve.conftest import B, Live, migrated, settings_for

pytestmark = pytest.mark.integration


@asynccontextmanager
async def application(dsn: str, **files: Any) -> AsyncIterator[Live]:
    settings = settings_for(dsn, files=files, worker={"worker_poll_interval_ms": 20})
    async with AsyncExitStack() as stack:
        await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(api), base_url="http://test", timeout=60
            )
        )
        yield Live(services, http, api)


@pytest.fixture
def bank() -> str:
    return f"files-{uuid4().hex[:8]}"


async def send(
    live: Live, bank: str, *files: tuple[str, bytes], request: Any = None
) -> httpx.Response:
    form = [("files", (name, data, "application/octet-stream")) for name, data in files]
    data = (
        {}
        if request is None
        else {"request": request if isinstance(request, str) else json.dumps(request)}
    )
    return await live.http.post(f"{B}/{bank}/files/retain", files=form, data=data)


async def ended(live: Live, bank: str, id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await live.http.get(f"{B}/{bank}/operations/{id}")).json()
            if found["status"] not in ("pending", "processing"):
                return found
            await asyncio.sleep(0.05)


async def documents(live: Live, bank: str) -> dict[str, str]:
    listed = (await live.http.get(f"{B}/{bank}/documents")).json()
    found = {}
    for item in listed["items"]:
        one = (await live.http.get(f"{B}/{bank}/documents/{item['id']}")).json()
        found[item["id"]] = one["original_text"]
    return found


async def test_files_become_documents(live: Live, bank: str) -> None:
    said = [
        {"document_id": "note", "context": "a note", "tags": ["x"], "metadata": {"size": 3}},
        {},
        {"document_id": "paper", "timestamp": "2024-05-08", "parser": "markitdown"},
    ]
    answer = await send(
        live,
        bank,
        ("a.pdf", b"Ann likes tea."),  # what it is, its content says
        ("page", b"<!doctype html><p>Bo <b>moved</b> to Porto."),
        ("b.txt", docx("Cy sails.")),
        request={"files_metadata": said},
    )
    assert answer.status_code == 200, answer.text
    ids = answer.json()["operation_ids"]
    assert len(ids) == 3
    for id in ids:
        converted = await ended(live, bank, id)
        assert converted["status"] == "completed", converted
        assert converted["task_type"] == "file_convert_retain"
        stored = await ended(live, bank, converted["result_metadata"]["operation_id"])
        assert stored["status"] == "completed", stored
        assert stored["result_metadata"]["unit_ids_count"] == 1
    found = await documents(live, bank)
    assert (found["note"], found["paper"]) == ("Ann likes tea.", "Cy sails.")
    (own,) = set(found) - {"note", "paper"}
    assert own.startswith("file_")
    assert found[own] == "Bo moved to Porto."
    listed = (await live.http.get(f"{B}/{bank}/memories/list")).json()["items"]
    (note,) = [item for item in listed if item["text"] == "Ann likes tea."]
    assert (note["context"], note["tags"]) == ("a note", ["x"])
    kept = await live.services.pool.fetchval(
        "select count(*) from operation_files f join banks b using (bank) where b.bank_id = $1",
        bank,
    )
    assert kept == 0


async def test_a_file_that_cannot_be_converted_fails_for_good(live: Live, bank: str) -> None:
    answer = await send(live, bank, ("broken.pdf", pdf()[:200]), ("empty.pdf", pdf("")))
    for id, name in zip(answer.json()["operation_ids"], ("broken", "empty"), strict=True):
        found = await ended(live, bank, id)
        assert (found["status"], found["retry_count"]) == ("failed", 0)
        assert found["error_message"].startswith(f"{name}.pdf: ")
    listed = (await live.http.get(f"{B}/{bank}/documents")).json()
    assert listed["total"] == 0
    again = await live.http.post(f"{B}/{bank}/operations/{id}/retry")
    assert again.status_code == 200  # its bytes are kept for a while
    assert (await ended(live, bank, id))["status"] == "failed"


async def test_an_upload_and_what_follows_keep_their_order(live: Live, bank: str) -> None:
    """The retain of a file's text goes before an append that was asked for after the upload."""
    given = {"files_metadata": [{"document_id": "d"}]}
    ids = (await send(live, bank, ("a", b"First."), request=given)).json()["operation_ids"]
    item = {"content": "Second.", "document_id": "d", "update_mode": "append"}
    later = await live.http.post(f"{B}/{bank}/memories", json={"items": [item], "async": True})
    await ended(live, bank, ids[0])
    assert (await ended(live, bank, later.json()["operation_id"]))["status"] == "completed"
    assert (await documents(live, bank))["d"] == "First.\nSecond."


@pytest.mark.parametrize(
    ("files", "request_", "status", "says"),
    [
        ([("a", b"x")] * 11, None, 400, "at most|Maximum number of files is 10"),
        ([("a", b"x")], {"files_metadata": [{}, {}]}, 400, "2 entries for 1 files"),
        ([("a", b"x")], {"parser": "iris"}, 400, "'iris' is not known"),
        ([("a", b"x")], {"files_metadata": [{"parser": ["markitdown", "y"]}]}, 400, "'y'"),
        ([("a", b"x")] * 2, {"files_metadata": [{"document_id": "d"}] * 2}, 400, "same document"),
        ([("a", b"x")], {"files_metadata": [{"strategy": "none"}]}, 400, "strategy"),
        ([("a", b"x")], {"files_metadata": [{"timestamp": "soon"}]}, 422, "ISO 8601"),
        ([("a", b"x")], {"files_metadata": {"a": 1}}, 422, "list"),
        ([("a", b"x")], "{", 422, "not JSON"),
        ([("a", b"x")], "[]", 422, "object|dictionary|instance"),
        ([("a.png", b"\x89PNG\r\n\x1a\n123")], None, 422, "a.png: is an image"),
        ([("a.mp3", b"ID3\x03\0\0")], None, 422, "recording"),
        ([("a", b"")], None, 422, "empty"),
        ([("ok", b"x"), ("a.zip", b"PK\3\4zip")], None, 422, "archive"),
    ],
)  # fmt: skip
async def test_what_is_refused_changes_nothing(
    live: Live, bank: str, files: Any, request_: Any, status: int, says: str
) -> None:
    answer = await send(live, bank, *files, request=request_)
    assert answer.status_code == status, answer.text
    assert re.search(says, answer.text), answer.text
    assert (await live.http.get(f"{B}/{bank}/documents")).status_code == 404


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/form-data; boundary=x", b"--x\r\ngarbage", 400),
        ("multipart/form-data", b"--x--", 400),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422),
        ("application/json", b"{}", 422),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\nno file\r\n--x--\r\n',
            422,
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\ncut off',
            400,
        ),
    ],
)
async def test_bodies_that_are_no_form(
    live: Live, bank: str, kind: str, body: bytes, status: int
) -> None:
    answer = await live.http.post(
        f"{B}/{bank}/files/retain", content=body, headers={"content-type": kind}
    )
    assert answer.status_code == status, answer.text


async def test_limits_of_uploads(dsn: str, bank: str) -> None:
    async with application(
        dsn,
        file_conversion_max_batch_size_mb=1,
        file_conversion_max_batch_size=2,
        file_waiting_mb=1,
    ) as live:
        large = b"Ann likes tea. " * 80_000
        refused = await send(live, bank, ("a", large))
        assert (refused.status_code, "more than 1 MB" in refused.text) == (400, True)
        url = f"{B}/{bank}/files/retain"
        claims = {
            "content-type": "multipart/form-data; boundary=x",
            "content-length": str(10 << 30),
        }
        claimed = await live.http.post(url, content=b"--x", headers=claims)
        assert (claimed.status_code, "more than 1 MB" in claimed.text) == (400, True)

        async def endless() -> AsyncIterator[bytes]:
            yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
            while True:
                yield b"x" * 65536

        streamed = await live.http.post(
            url, content=endless(), headers={"content-type": claims["content-type"]}
        )
        assert streamed.status_code == 400
        packed = {"content-type": claims["content-type"], "content-encoding": "gzip"}
        assert (await live.http.post(url, content=b"x", headers=packed)).status_code == 415
        assert (await send(live, bank, *[("a", b"x")] * 3)).status_code == 400
        assert (await live.http.get(f"{B}/{bank}/documents")).status_code == 404


async def test_what_waits_of_one_tenant_is_bounded(dsn: str, bank: str) -> None:
    async with application(dsn, file_waiting_mb=1) as live:
        ids: list[str] = []
        for number in range(30):
            answer = await send(live, bank, (f"{number}", bytes([97 + number % 20]) * 600_000))
            if answer.status_code == 429:
                break
            ids += answer.json()["operation_ids"]
        else:
            pytest.fail("nothing was refused")
        assert int(answer.headers["retry-after"]) > 1
        assert "bytes of files waiting" in answer.json()["detail"]
        for id in ids:
            assert (await ended(live, bank, id))["status"] == "completed"
        assert (await send(live, bank, ("a", b"Ann."))).status_code == 200


async def test_switched_off(dsn: str, bank: str) -> None:
    async with application(dsn, enable_file_upload_api=False) as live:
        answer = await send(live, bank, ("a", b"x"))
        assert (answer.status_code, "ENABLE_FILE_UPLOAD_API" in answer.text) == (404, True)
        assert (await live.http.get("/version")).json()["features"]["file_upload_api"] is False


async def test_without_the_extra(live: Live, bank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(detection.NEEDS, "pdf", ("there_is_no_such_module",))
    answer = await send(live, bank, ("a.pdf", pdf()))
    assert (answer.status_code, "fourfold[files]" in answer.text) == (501, True)
    assert (await send(live, bank, ("a.txt", b"Ann."))).status_code == 200
