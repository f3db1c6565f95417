"""Ids in addresses: what a bank may be called, and what is said where there is nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from serve import app
from serve.settings import parse
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration


def at(bank: str) -> str:
    return f"{B}/{quote(bank, safe='')}"


@pytest.mark.parametrize(
    "bank",
    [
        "team/alice",
        "/",
        "a//b/",
        "a%2Fb",
        "with space",
        "ünïcødé 日本語 🦀",
        "a+b&c=d?e#f",
        "x" * 512,
        "語" * 512,
        "profile",
        "a:b@c;d,e'f\"g",
        "..a",
    ],
    ids=lambda bank: str(bank)[:20],
)
async def test_a_bank_of_this_name_works(live: Live, bank: str) -> None:
    """Everything under its address, and its name comes back as it was given."""
    url = at(bank)
    item = {"content": "The kiln is hot.", "document_id": "d/e f", "tags": ["t/u"]}
    kept = await live.http.post(f"{url}/memories", json={"items": [item]})
    assert (kept.status_code, kept.json()["bank_id"]) == (200, bank)
    found = await live.http.post(f"{url}/memories/recall", json={"query": "kiln"})
    (memory,) = found.json()["results"]
    assert memory["document_id"] == "d/e f"
    assert (await live.http.get(f"{url}/profile")).json()["bank_id"] == bank
    for document in ("d%2Fe%20f", "d/e%20f"):
        assert (await live.http.get(f"{url}/documents/{document}")).json()["bank_id"] == bank
    chunk = await live.http.get(f"/v1/default/chunks/{quote(memory['chunk_id'], safe='')}")
    assert chunk.json()["bank_id"] == bank
    listed = await live.http.get(B, params={"limit": 1000})
    assert bank in [each["bank_id"] for each in listed.json()["banks"]]
    assert (await live.http.delete(url)).status_code == 200
    gone = await live.http.get(f"{url}/profile")
    assert gone.status_code == 404
    assert repr(bank[:100])[1:-1] in gone.json()["detail"]


@pytest.mark.parametrize(
    "bank",
    ["x" * 513, "🦀" * 400, " ", "\u3000", "a\nb", "\x1b[31m", "a\x7f", "a\x85", "x" * 5000],
    ids=lambda bank: repr(bank)[:20],
)
async def test_no_bank_may_be_called_so(live: Live, bank: str) -> None:
    before = (await live.http.get(B)).json()["total"]
    memory = {"key": "k", "text": "t"}
    body: dict[str, Any]
    for method, path, body in (
        ("POST", "/memories", {"items": [{"content": "c"}]}),
        ("POST", "/memories", {"items": [{"content": "c"}], "async": True}),
        ("POST", "/memories/import", {"memories": [memory]}),
        ("PUT", "", {"name": "n"}),
        ("PUT", "/profile", {"disposition": {}}),
        ("POST", "/background", {"content": "c"}),
    ):
        answer = await live.http.request(method, f"{at(bank)}{path}", json=body)
        assert answer.status_code == 400, f"{path}: {answer.text}"
        assert answer.json()["detail"].startswith("a bank's id has")
    assert (await live.http.get(f"{at(bank)}/stats")).status_code == 404
    assert (await live.http.get(B)).json()["total"] == before


async def test_long_ids_of_bank_and_document_fit_together(live: Live) -> None:
    """The longest of both, of characters that do not compress."""
    bank = "".join(chr(0x4E00 + i * 37 % 20_000) for i in range(512))
    document = "".join(chr(0x4E00 + i * 101 % 20_000) for i in range(341))
    body = {"items": [{"content": "c", "document_id": document}]}
    kept = await live.http.post(f"{at(bank)}/memories", json=body)
    assert kept.status_code == 200, kept.text
    await live.http.delete(at(bank))


async def test_nul(live: Live) -> None:
    for path in (f"{B}/a%00b/profile", f"{B}/a%2F%00/profile", f"{B}/a/memories/list?q=%00"):
        answer = await live.http.get(path)
        assert answer.status_code == 400
        assert "NUL" in answer.json()["detail"]


async def test_nothing_is_there(live: Live) -> None:
    for path in ("/v1/default/bank", f"{B}//profile", f"{B}/a/b/profile", f"{B}/a/nothing"):
        answer = await live.http.get(path)
        assert answer.status_code == 404
        assert answer.json()["detail"] == ("there is nothing at this address: /docs lists the API")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", f"{B}/a", "DELETE, PATCH, PUT"),
        ("PATCH", f"{B}/a/memories", "DELETE, POST"),
        ("POST", B, "GET, HEAD"),
        ("PUT", "/health", "GET, HEAD"),
        ("DELETE", f"{B}/a%2Fb/stats", "GET, HEAD"),
    ],
)
async def test_another_method_is_named(live: Live, method: str, path: str, allowed: str) -> None:
    answer = await live.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["detail"].startswith(f"{method} cannot be used here: use {allowed[:3]}")


async def test_a_prefix_before_every_address(live: Live) -> None:
    settings = parse({"server": {"base_path": "/memory/", "allowed_hosts": "test"}}, {})
    api = app.create(settings, live.services)
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        made = await http.put(f"/memory{at('a/b')}", json={})
        assert (made.status_code, made.json()["bank_id"]) == (200, "a/b")
        assert (await http.delete(f"/memory{at('a/b')}")).status_code == 200


@pytest.mark.parametrize("document", [".", ".."])
async def test_no_document_may_be_called_so(live: Live, document: str) -> None:
    """No client could ask for it, or delete it."""
    named = {"document_id": document}
    for path, body in (
        ("/memories", {"items": [{"content": "c", **named}]}),
        ("/memories/import", {"memories": [{"key": "k", "text": "t", **named}]}),
    ):
        answer = await live.http.post(f"{at('dots')}{path}", json=body)
        assert answer.status_code in (400, 422), answer.text
        assert "document_id" in answer.text


@pytest.mark.parametrize(
    "document", ["a/chunks", "chunks", "a/../b", "v1.", ".hidden", "100%", "%2e"]
)
async def test_a_document_of_this_name_works(live: Live, document: str) -> None:
    url = f"{at('documents')}/documents/{quote(document, safe='')}"
    item = {"content": f"Of {document}.", "document_id": document}
    kept = await live.http.post(f"{at('documents')}/memories", json={"items": [item]})
    assert kept.status_code == 200, kept.text
    for below in ("", "/chunks", "/history"):
        answer = await live.http.get(url + below)
        assert answer.status_code == 200, answer.text
        assert (await live.http.head(url + below)).status_code == 200
    assert (await live.http.delete(url)).status_code == 200
    assert (await live.http.get(url)).status_code == 404
