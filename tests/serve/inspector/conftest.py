"""Pages in a real Chromium, and the application in the states that they show."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from models.passthrough import Passthrough
from retrieval.recall.engine import RecallEngine
from retrieval.recall.explaining import Explainer
from serve import app
from serve.opening.translation import OpenedReranker
from tests.serve.conftest import Live
from tests.serve.mcp_server import Address, serving

WAIT_MS = int(os.environ.get("FOURFOLD_BROWSER_WAIT_MS", "60000"))
"""Patience with a busy machine: what is waited for comes much sooner."""
expect.set_options(timeout=WAIT_MS)

CHROMIUM = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium() -> str | None:
    """Where Chromium is; None where there is none."""
    own = os.environ.get("FOURFOLD_CHROMIUM")
    return own or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fused(live: Live) -> AsyncIterator[Live]:
    """`live` with no reranker at all: its own engine, the same bank."""
    services = live.services
    assert services.explainer is not None
    retriever = services.explainer.retriever
    engine = RecallEngine(
        services.pool, retriever, OpenedReranker(Passthrough("fused")), services.settings.recall
    )
    own = replace(services, recaller=engine, explainer=Explainer(services.pool, retriever, engine))
    api = app.create(services.settings, own)
    async with AsyncExitStack() as stack:
        transport = httpx.ASGITransport(api)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        )
        yield Live(own, http, api)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def address(fused: Live) -> AsyncIterator[Address]:
    """The application on a real socket."""
    async with serving(fused.services) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium, or set FOURFOLD_CHROMIUM")
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=path, args=list(CHROMIUM))
        yield found
        await found.close()


@dataclass
class Tab:
    """A page, where it is served, and what went wrong in it."""

    page: Page
    context: BrowserContext
    url: str
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def open(self, fragment: str) -> None:
        await self.page.goto(f"{self.url}/inspector/{fragment}")

    async def ask(self, bank: str, question: str) -> None:
        """Opens the recall page and runs a question."""
        await self.open(f"#/b/{bank}/recall")
        await self.page.get_by_label("Question").fill(question)
        await self.page.keyboard.press("Control+Enter")
        await self.page.locator(".sentence").wait_for()

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name, exact=True).click()

    def quiet(self, but: str = " ") -> None:
        """Nothing went wrong, but refusals with a status that begins so; nobody but the server was
        asked."""
        wrong = [said for said in self.wrong if f"a status of {but}" not in said]
        assert not wrong, wrong
        own = (self.url, "blob:", "data:")
        assert all(url.startswith(own) for url in self.asked), self.asked


async def settled(tab: Tab) -> None:
    """No page waits for anything any more."""
    await expect(tab.page.locator("main h1").first).to_be_attached()
    await expect(tab.page.locator('main [aria-busy="true"]')).to_have_count(0)


@asynccontextmanager
async def tab_of(
    browser: Browser, url: str, width: int = 1280, height: int = 900, scheme: str = "light"
) -> AsyncIterator[Tab]:
    """A new tab of a new profile."""
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        timezone_id="UTC",
        accept_downloads=True,
    )
    context.set_default_timeout(WAIT_MS)
    page = await context.new_page()
    found = Tab(page, context, url)
    page.on("pageerror", lambda error: found.wrong.append(str(error)))
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("dialog", lambda dialog: found.wrong.append(f"a dialog: {dialog.message}"))
    page.on(
        "console",
        lambda said: found.wrong.append(said.text) if said.type in ("error", "warning") else None,
    )
    try:
        yield found
    finally:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, address: Address) -> AsyncIterator[Tab]:
    async with tab_of(browser, address.url) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the browser is marked so."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and {"tab", "browser"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.browser)
