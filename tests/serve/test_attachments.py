"""Images and files with contents through the application: taken, shown, served."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from serve import app, composition
from serve.composition import Stages
from tests.serve.conftest import B, Live, migrated, settings_for
from tests.serve.test_files import ended, send

pytestmark = pytest.mark.integration

PNG = b"\x89PNG\r\n\x1a\n" + bytes(5000)


def block(data: bytes, media_type: str, name: str | None = None) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    kind = "image" if media_type.startswith("image/") else "file"
    return {"type": kind, "source": source} | ({} if name is None else {"filename": name})


@pytest.mark.asyncio(loop_scope="session")
async def test_where_they_are_off(live: Live) -> None:
    content = [{"type": "text", "text": "Look:"}, block(PNG, "image/png")]
    answer = await live.http.post(f"{B}/off/memories", json={"items": [{"content": content}]})
    assert answer.status_code == 422
    assert "ATTACHMENTS_ENABLED" in answer.text
    for wrong in ([{"type": "audio"}], [{"type": "image"}], [{"type": "text"}], [7]):
        answer = await live.http.post(f"{B}/off/memories", json={"items": [{"content": wrong}]})
        assert answer.status_code == 422
    assert (await live.http.get(f"{B}/off/profile")).status_code == 404


async def test_taken_shown_and_served(dsn: str) -> None:
    settings = settings_for(
        dsn,
        retain={"attachments_enabled": True},
        files={"file_delete_after_retain": False},
        worker={"worker_poll_interval_ms": 20},
    )
    async with AsyncExitStack() as stack:
        pool = await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        transport = httpx.ASGITransport(api)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        )
        live = Live(services, http, api)
        svg = block(b"<svg onload='x()'/>", "image/svg+xml")
        page = block(b"<script>", "text/html", 'a"\r\n/ü.html')
        content = [
            {"type": "text", "text": "The mill in winter:"},
            block(PNG, "image/png"),
            svg,
            page,
        ]
        for asynchronous, document in ((False, "d"), (True, "e")):
            body = {
                "items": [{"content": content, "document_id": document}], "async": asynchronous
            }  # fmt: skip
            answer = await http.post(f"{B}/att/memories", json=body)
            assert answer.status_code == 200, answer.text
            if asynchronous:
                await ended(live, "att", answer.json()["operation_id"])
            shown = (await http.get(f"{B}/att/documents/{document}")).json()["attachments"]
            assert sorted(one["media_type"] for one in shown) == [
                "image/png", "image/svg+xml", "text/html",
            ]  # fmt: skip
        asked = {"query": "mill in winter", "include": {"chunks": {}}}
        found = (await http.post(f"{B}/att/memories/recall", json=asked)).json()
        assert [one["media_type"] for one in found["results"][0]["attachments"]] == [
            "image/png", "image/svg+xml", "text/html",
        ]  # fmt: skip
        assert all(len(chunk["attachments"]) == 3 for chunk in found["chunks"].values())

        by_type = {one["media_type"]: one for one in shown}
        whole = await http.get(by_type["image/png"]["url"])
        assert (whole.status_code, whole.content) == (200, PNG)
        headers = whole.headers
        assert headers["content-type"] == "image/png"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-disposition"].startswith("inline")
        assert headers["cache-control"] == "private, max-age=31536000, immutable"
        assert headers["etag"] == f'"{by_type["image/png"]["hash"]}"'
        url = by_type["image/png"]["url"]
        part = await http.get(url, headers={"Range": "bytes=1-3"})
        assert (part.status_code, part.content) == (206, b"PNG")
        again = await http.get(url, headers={"If-None-Match": headers["etag"]})
        assert again.status_code == 304
        for kind in ("image/svg+xml", "text/html"):
            other = await http.get(by_type[kind]["url"])
            assert other.headers["content-disposition"].startswith("attachment")
            assert "sandbox" in other.headers["content-security-policy"]
        assert "filename*=UTF-8''%C3%BC.html" in other.headers["content-disposition"]

        missing = await http.get(f"{B}/att/attachments/{'0' * 12}")
        nobody = await http.get(f"{B}/nobody/attachments/{by_type['image/png']['id']}")
        assert missing.status_code == nobody.status_code == 404
        assert missing.json() == nobody.json()

        # Uploaded files are kept where that is asked for, and go with their document.
        said = {"files_metadata": [{"document_id": "note"}]}
        (id,) = (
            await send(live, "att", ("note.txt", b"Gerda mends the nets."), request=said)
        ).json()["operation_ids"]
        converted = await ended(live, "att", id)
        await ended(live, "att", converted["result_metadata"]["operation_id"])
        (kept,) = (await http.get(f"{B}/att/documents/note")).json()["attachments"]
        assert (kept["kind"], kept["filename"]) == ("file", "note.txt")
        assert (await http.get(kept["url"])).content == b"Gerda mends the nets."
        waiting = "select count(*) from operation_files join banks using (bank) where bank_id = $1"
        assert await pool.fetchval(waiting, "att") == 0
        assert (await http.delete(f"{B}/att/documents/note")).status_code == 200
        assert (await http.get(kept["url"])).status_code == 404
        for document in ("d", "e"):
            await http.delete(f"{B}/att/documents/{document}")
        assert await pool.fetchval("select count(*) from attachments") == 0
