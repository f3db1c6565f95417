"""What is refused before it is routed, HEAD, CORS, and the pages that show the API."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from starlette.responses import Response

from serve import app
from serve.admission.controller import AdmissionController
from serve.http import guard
from serve.http.guard import RequestGuard
from serve.http.services import Services
from serve.settings import parse

pytestmark = pytest.mark.unit

RECALL = "/v1/default/banks/b/memories/recall"


@asynccontextmanager
async def served(**sections: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """The application without services: what reaches an endpoint of a bank fails with 500."""
    api = app.create(parse(sections, {}))
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        yield http


async def _inner(scope: Any, receive: Any, send: Any) -> None:
    await Response("inside")(scope, receive, send)


def guarded(hosts: tuple[str, ...] | None, origins: tuple[str, ...] | None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(RequestGuard(_inner, hosts, origins))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


NAMES = ("memory.example.org", ".corp.example")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:8888", "10.1.2.3:80", "[::1]", "[::1]:8888", "[fe80::1]",
        "localhost", "LocalHost:8888", "localhost.", "app.localhost",
        "memory.example.org", "memory.example.org:443",
        "a.b.corp.example", "corp.example",
    ],
)  # fmt: skip
async def test_a_host_that_is_ours(host: str) -> None:
    async with guarded(NAMES, ()) as http:
        assert (await http.get("/", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8888", "127.0.0.1.evil.example", "localhost.evil.example",
        "memory.example.org.evil.example", "xcorp.example", "", " ", "a@127.0.0.1", "127.0.0.1/x",
        "127.0.0.1:x", "[::1", "evil.example, 127.0.0.1", "fourfold", "notlocalhost",
    ],
)  # fmt: skip
async def test_a_host_that_is_not(host: str) -> None:
    async with guarded(NAMES, ()) as http:
        answer = await http.get("/", headers={"host": host})
        assert answer.status_code == 403
        assert "ALLOWED_HOSTS" in answer.json()["detail"]
    for free in (guarded(None, None), guarded(("*",), ())):
        async with free as http:
            assert (await http.get("/", headers={"host": host})).status_code == 200


async def test_who_stood_at_the_door_too_long_is_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if not began.is_set():
            began.set()
            await asyncio.sleep(0)  # until the others have come
            time.sleep(0.1)  # noqa: ASYNC251 - the others stand at the door meanwhile
        await _inner(scope, receive, send)

    monkeypatch.setattr(guard, "STAY_MAX_S", 0.05)
    transport = httpx.ASGITransport(RequestGuard(slow, None, None))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        paths = ("/", "/", "/", "/health/live")
        first, *late, alive = await asyncio.gather(*(http.get(path) for path in paths))
        assert (first.status_code, alive.status_code) == (200, 200)
        for answer in late:
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "too many requests" in answer.json()["detail"]
        assert (await http.get("/")).status_code == 200


async def test_what_a_request_waited_counts_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who came a minute ago is not asked to wait for another five seconds."""
    nobody: Any = None
    full = AdmissionController(1, 4, wait_max_s=59.0)
    services = Services(parse({}, {}), nobody, nobody, nobody, nobody, full, full, full)
    monkeypatch.setattr(
        sys.modules["serve.http.services"], "arrived", lambda _: time.monotonic() - 60.0
    )
    transport = httpx.ASGITransport(app.create(services.settings, services))
    async with (
        full.enter("another"),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        answer = await http.get("/v1/default/banks")
    assert answer.status_code == 503
    assert "waiting" in answer.json()["detail"]


async def test_hosts_and_origins_matter_where_no_key_is_needed() -> None:
    foreign = {"host": "evil.example", "origin": "https://evil.example"}
    async with served() as http:
        assert (await http.get("/openapi.json", headers=foreign)).status_code == 403
        page = {"origin": "https://evil.example"}
        assert (await http.post(RECALL, headers=page)).status_code == 403
    async with served(limits={"require_api_key": True}) as http:  # a page has no key
        assert (await http.get("/openapi.json", headers=foreign)).status_code == 200
        assert (await http.post(RECALL, headers=foreign)).status_code != 403


@pytest.mark.parametrize(
    "sent",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},  # another port is another page
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_foreign_page_changes_nothing(sent: dict[str, str]) -> None:
    async with guarded((), ("https://app.example.org",)) as http:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = await http.request(method, "/", headers=sent)
            assert answer.status_code == 403
            assert "CORS_ORIGINS" in answer.json()["detail"]
        assert (await http.get("/", headers=sent)).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": "https://app.example.org", "sec-fetch-site": "cross-site"},
    ],
)
async def test_a_page_of_ours_may(sent: dict[str, str]) -> None:
    async with guarded((), ("https://app.example.org",)) as http:
        assert (await http.post("/", headers=sent)).status_code == 200


async def test_cors_is_off_unless_it_is_set() -> None:
    asked = {
        "origin": "https://app.example.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    async with served() as http:
        answer = await http.options(RECALL, headers=asked)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers
    async with served(server={"cors_origins": ["https://app.example.org"]}) as http:
        answer = await http.options(RECALL, headers=asked)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example.org"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        other = await http.options(RECALL, headers={**asked, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        read = await http.get("/openapi.json", headers={"origin": "https://app.example.org"})
        assert read.headers["access-control-allow-origin"] == "https://app.example.org"
        assert "Retry-After" in read.headers["access-control-expose-headers"]


async def test_head_wherever_get_is() -> None:
    async with served() as http:
        for path in ("/openapi.json", "/docs", "/redoc", "/docs-assets/swagger-ui.css"):
            got, head = await http.get(path), await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == got.headers["content-length"]
        assert (await http.head("/nowhere")).status_code == 404
        wrong = await http.head(RECALL.replace("recall", "import"))
        assert wrong.status_code in (405, 500)  # `import` may be read as a memory's id


async def test_headers_are_bounded() -> None:
    async with served() as http:
        many = {f"x-{i}": "y" for i in range(150)}
        assert (await http.get("/openapi.json", headers=many)).status_code == 431
        long = {f"x-{i}": "y" * 8_000 for i in range(10)}
        assert (await http.get("/openapi.json", headers=long)).status_code == 431


async def test_pages_load_nothing_from_elsewhere() -> None:
    async with served(server={"base_path": "/memory"}) as http:
        for page in ("/docs", "/redoc"):
            shown = (await http.get(f"/memory{page}")).text
            loaded = re.findall(r'(?:src|href|url)(?:=|: )"?\'?([^"\'\s>]+)', shown)
            assert len(loaded) > 2
            for address in loaded:
                if address.startswith("data:"):
                    continue
                whole = urljoin("http://test/memory" + page, address)
                assert whole.startswith("http://test/memory/"), address
                assert (await http.get(whole.removeprefix("http://test"))).status_code == 200
            led = await http.get(page)
            assert (led.status_code, led.headers["location"]) == (307, f"./memory{page}")


async def test_the_name_that_the_server_listens_on_is_its_own() -> None:
    async with served(server={"host": "memory.example.org"}) as http:
        sent = {"host": "memory.example.org:8888"}
        assert (await http.get("/openapi.json", headers=sent)).status_code == 200


async def test_metrics_behind_a_key_or_off() -> None:
    for server, sent, status in (
        ({}, {}, 200),
        ({"enable_metrics": False}, {}, 404),
        ({"metrics_api_key": "s3cret"}, {}, 401),
        ({"metrics_api_key": "s3cret"}, {"authorization": "Bearer s3cre"}, 401),
        ({"metrics_api_key": "s3cret"}, {"authorization": "Bearer é"}, 401),
        ({"metrics_api_key": "s3cret"}, {"authorization": "Bearer s3cret"}, 200),
    ):
        settings = parse({"server": server}, {})
        places = AdmissionController(1, 1), AdmissionController(1, 1)
        nobody: Any = None
        services = Services(settings, nobody, nobody, nobody, nobody, *places)
        transport = httpx.ASGITransport(app.create(settings, services))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            headers = [(name.encode(), value.encode()) for name, value in sent.items()]
            answer = await http.get("/metrics", headers=headers)
        assert answer.status_code == status
        assert ("TYPE fourfold_admission_running gauge" in answer.text) == (status == 200)


async def test_pages_can_be_switched_off() -> None:
    async with served(server={"enable_docs": False}) as http:
        for path in ("/docs", "/redoc", "/openapi.json", "/docs-assets/swagger-ui.css"):
            assert (await http.get(path)).status_code == 404
