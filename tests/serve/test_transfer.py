"""Archives over HTTP: how they are sent, fetched and refused. What is in them: tests/retrieval."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from retrieval.store.database.pool import read, write
from serve.cli.main import app as command
from serve.local import sample
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration


async def ended(live: Live, bank: str, answer: Any) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    id = answer.json()["operation_id"]
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await live.http.get(f"{B}/{bank}/operations/{id}")).json()
            if found["status"] in ("completed", "failed", "cancelled"):
                return found
            await asyncio.sleep(0.05)


async def archive_of(live: Live, bank: str, **query: Any) -> tuple[dict[str, Any], bytes]:
    made = await live.http.post(f"{B}/{bank}/transfer/export", params=query)
    result = (await ended(live, bank, made))["result_metadata"]
    return result, (await live.http.get(result["download_url"])).content


async def test_a_download_and_its_ranges(live: Live) -> None:
    result, data = await archive_of(live, sample.BANK)
    assert hashlib.sha256(data).hexdigest() == result["sha256"]
    assert (len(data), result["filename"]) == (result["byte_size"], f"{sample.BANK}.zip")
    url = result["download_url"]
    whole = await live.http.get(url)
    assert whole.headers["content-type"] == "application/zip"
    assert whole.headers["etag"] == f'"{result["sha256"]}"'
    slashed = "/v1/default/files/download/" + result["storage_key"].replace("/", "%2F")
    assert (await live.http.get(slashed)).content == data
    for given, status, begin, end in (
        ("bytes=10-19", 206, 10, 20),
        ("bytes=100-", 206, 100, len(data)),
        ("bytes=-7", 206, len(data) - 7, len(data)),
        (f"bytes=5-{len(data) * 2}", 206, 5, len(data)),
        ("bytes=9-3", 200, 0, len(data)),
        ("bytes=0-1,4-5", 200, 0, len(data)),
        ("lines=1-2", 200, 0, len(data)),
    ):
        part = await live.http.get(url, headers={"range": given})
        assert (part.status_code, part.content) == (status, data[begin:end]), given
        if status == 206:
            assert part.headers["content-range"] == f"bytes {begin}-{end - 1}/{len(data)}"
    outside = await live.http.get(url, headers={"range": f"bytes={len(data)}-"})
    assert outside.status_code == 416
    assert outside.headers["content-range"] == f"bytes */{len(data)}"
    for tag in (whole.headers["etag"], "*", f'"x", W/{whole.headers["etag"]}'):
        assert (await live.http.get(url, headers={"if-none-match": tag})).status_code == 304
    other = {"range": "bytes=1-2", "if-range": '"other"'}
    assert (await live.http.get(url, headers=other)).content == data
    missing = await live.http.get("/v1/default/files/download/exports/none/x.zip")
    assert missing.status_code == 404

    async def stranger(connection: Any) -> None:
        await connection.execute(
            "update stored_files set tenant_id = 'stranger' where key = $1", result["storage_key"]
        )

    await write(live.services.pool, stranger)
    refused = await live.http.get(url)
    assert (refused.status_code, refused.json()) == (404, missing.json())


async def test_uploads_that_are_none(live: Live) -> None:
    bank = f"up-{uuid4().hex}"
    url = f"{B}/{bank}/transfer/import"
    zip_file = {"file": ("a.zip", b"no zip", "application/zip")}
    for sent, status, said in (
        ({}, 400, "multipart/form-data"),
        ({"json": {}}, 400, "multipart/form-data"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
        (
            {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}},
            400,
            "",
        ),
        ({"files": {"other": ("a", b"x")}}, 400, "no part `file`"),
        ({"files": [("file", ("a", b"x")), ("file", ("b", b"y"))]}, 400, "Too many files"),
        ({"files": zip_file}, 400, "no ZIP archive"),
        ({"files": zip_file, "params": {"mode": "both"}}, 400, "mode"),
        ({"files": zip_file, "params": {"document_conflict": "x"}}, 400, "document_conflict"),
        ({"files": zip_file, "params": {"mode": "merge", "target_bank_id": "x"}}, 400, "target"),
        ({"files": zip_file, "params": {"mode": "merge", "include_data": "false"}}, 400, "include"),
        ({"files": zip_file, "params": {"target_bank_id": "elsewhere"}}, 404, bank),
        ({"files": zip_file, "params": {"target_bank_id": sample.BANK}}, 400, "already"),
    ):
        answer = await live.http.post(url, **sent)
        assert answer.status_code == status, (sent, answer.text)
        assert said in answer.json()["detail"], (sent, answer.text)
    large = {"content-length": str(2**40), "content-type": "multipart/form-data; boundary=b"}
    answer = await live.http.post(url, content=b"x", headers=large)
    assert answer.status_code == 413
    assert (await live.http.get(f"{B}/{bank}/profile")).status_code == 404

    async def files(connection: Any) -> int:
        found: int = await connection.fetchval(
            "select count(*) from stored_files where key like 'imports/%' and sha256 is null"
        )
        return found

    assert await read(live.services.pool, files) == 0


async def test_out_and_in_over_http(live: Live) -> None:
    target = f"in-{uuid4().hex}"
    _, data = await archive_of(live, sample.BANK, include_vectors=True)
    sent = {"file": ("a.zip", data, "application/zip")}
    query = {"target_bank_id": target}
    made = await live.http.post(f"{B}/{target}/transfer/import", files=sent, params=query)
    assert (await ended(live, target, made))["status"] == "completed"
    for question in ("Why did the harvest festival move to the old mill?", "Who lives in Lindow?"):
        before = await live.recall(sample.BANK, question, explain=True)
        assert await live.recall(target, question, explain=True) == before
    again = await live.http.post(f"{B}/{target}/transfer/import", files=sent, params=query)
    assert again.status_code == 400
    assert (await live.http.delete(f"{B}/{target}")).status_code == 200


async def test_flags_of_an_export(live: Live) -> None:
    url = f"{B}/{sample.BANK}"
    nothing = {"include_data": "false", "include_bank_config": "false"}
    for path, query, said in (
        ("transfer/export", nothing, "all false"),
        ("transfer/export", {"document_id": "d"}, "document_id"),
        ("transfer/export", {"format": "tar"}, "format"),
        ("transfer/export", {"format": "hindsight", "include_vectors": "true"}, "vectors"),
        ("document-transfer/export", {"document_id": "d", "include_observations": "true"},
         "document_id"),
        ("clone", {"target_bank_id": sample.BANK}, "itself"),
        ("clone", {"target_bank_id": "a\x01b"}, "target_bank_id"),
    ):  # fmt: skip
        answer = await live.http.post(f"{url}/{path}", params=query)
        assert answer.status_code == 400, answer.text
        assert said in answer.json()["detail"]
    missing = {**nothing, "include_data": "true", "document_id": "no such document"}
    assert (await live.http.post(f"{url}/transfer/export", params=missing)).status_code == 404
    gone = await live.http.get(f"{url}/document-transfer")
    assert gone.status_code == 410
    features = (await live.http.get("/version")).json()["features"]
    assert features["document_export_api"] is features["document_import_api"] is True


async def test_the_command_that_checks_archives(live: Live, tmp_path: Any) -> None:
    _, data = await archive_of(live, sample.BANK)
    file = tmp_path / "a.zip"
    await asyncio.to_thread(file.write_bytes, data)
    done = await asyncio.to_thread(CliRunner().invoke, command, ["bank", "verify", str(file)])
    assert done.exit_code == 0, done.output
    assert f"bank_id: {sample.BANK}" in done.output
    await asyncio.to_thread(file.write_bytes, data[:-100])
    done = await asyncio.to_thread(CliRunner().invoke, command, ["bank", "verify", str(file)])
    assert done.exit_code == 1
    assert "cut off" in done.output
