"""The files of the pages: what they may do, who made them, how they are served."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from serve import app
from serve.inspector.assets import assets
from tests.serve.conftest import Live

STATIC = Path(__file__).resolve().parents[3] / "serve" / "inspector" / "static"


@pytest.mark.unit
class TestFiles:
    def test_own_code_makes_no_markup_of_texts(self) -> None:
        own = [f for f in STATIC.rglob("*.js") if "vendor" not in f.parts]
        assert len(own) > 25
        bad = re.compile(
            r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|\beval\(|new Function"
            r"|document\.write|https?://(?!www\.w3\.org)"
        )
        found = [f"{f.name}: {m[0]}" for f in own for m in bad.finditer(f.read_text("utf-8"))]
        assert not found

    def test_only_one_module_asks_the_server(self) -> None:
        own = [f for f in STATIC.rglob("*.js") if "vendor" not in f.parts]
        asking = {f.name for f in own if re.search(r"\bfetch\(|XMLHttpRequest|EventSource",
                                                   f.read_text("utf-8"))}  # fmt: skip
        assert asking == {"api.js"}

    def test_what_others_wrote_is_what_the_list_says(self) -> None:
        told = json.loads((STATIC / "vendor" / "vendor.json").read_text())
        body = (STATIC / "vendor" / told["file"]).read_bytes()
        assert hashlib.sha256(body).hexdigest() == told["sha256"]
        licences = (STATIC / "vendor" / "LICENSES.txt").read_text()
        for package in told["packages"]:
            assert f"==== {package['name']} {package['version']} ====" in licences

    def test_the_first_view_is_small(self) -> None:
        assert sum(len(asset.compressed) for asset in assets().values()) < 150_000


@pytest.mark.integration
class TestServed:
    async def test_headers(self, live: Live) -> None:
        answer = await live.http.get("/inspector/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await live.http.get(
            "/inspector/", headers={"if-none-match": answer.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")

    async def test_only_its_files(self, live: Live) -> None:
        for path in ("../routes.py", "%2e%2e/routes.py", "nothing.js", "vendor/vendor.json"):
            answer = await live.http.get(f"/inspector/{path}")
            assert answer.status_code == 404, path

    async def test_a_browser_is_led_to_it(self, live: Live) -> None:
        led = await live.http.get("/", headers={"accept": "text/html"})
        assert (led.status_code, led.headers["location"]) == (307, "./inspector/")
        assert (await live.http.get("/")).status_code == 404
        assert (await live.http.get("/inspector")).headers["location"] == "./inspector/"

    async def test_below_a_base_path_and_switched_off(self, live: Live) -> None:
        for server, path, status in (
            ({"base_path": "/memory"}, "/memory/inspector/app.js", 200),
            ({"base_path": "/memory"}, "/inspector/", 404),
            ({"inspector": False}, "/inspector/", 404),
        ):
            settings = live.services.settings
            changed = settings.server.model_copy(update=server)
            settings = settings.model_copy(update={"server": changed})
            api = app.create(settings, replace(live.services, settings=settings))
            transport = httpx.ASGITransport(api)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
                assert (await http.get(path)).status_code == status
