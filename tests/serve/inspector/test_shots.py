"""The pictures of the README: made from the sample bank, kept where `make shots` says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from serve.local import sample
from tests.serve.inspector.conftest import tab_of
from tests.serve.mcp_server import Address

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

NOW = "2025-11-01T12:00:00Z"


@pytest.mark.parametrize(("name", "scheme"), [("recall", "light"), ("why", "dark")])
async def test_shots(
    browser: Browser, address: Address, name: str, scheme: str, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("FOURFOLD_SHOTS") or tmp_path)
    async with tab_of(browser, address.url, 1360, 820, scheme) as tab:
        page = tab.page
        await tab.open(f"#/b/{sample.BANK}/recall")
        await page.get_by_text("Time", exact=True).click()
        await page.get_by_label("Asked at").fill(NOW)
        await page.get_by_label("Asked at").press("Tab")
        await page.get_by_text("Time", exact=True).first.click()
        if name == "why":
            await page.get_by_label("Max tokens").fill("60")
        await page.get_by_label("Question").fill(sample.QUESTION)
        await page.keyboard.press("Control+Enter")
        await page.locator(".sentence").wait_for()
        if name == "why":
            await tab.tab("Why not")
            await page.locator("[data-why]").fill("middle pier")
            await page.get_by_role("button", name="Find it").click()
            await page.locator("#tabpanel li button").first.click()
            await expect(page.locator(".ladder")).to_be_visible()
            await expect(page.get_by_text("checked: place")).to_be_visible()
        else:
            await page.locator(".results > li .text").first.click()
            await expect(page.locator("[data-total]")).to_have_count(2)
        await page.mouse.move(0, 0)
        await page.evaluate("() => scrollTo(0, 0)")
        shot = await page.screenshot(path=folder / f"inspector-{name}.png")
        assert 20_000 < len(shot) < 300_000
        tab.quiet()
