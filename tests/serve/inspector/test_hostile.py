"""What others wrote, in the browser: nothing of it runs, the layout holds, the page stays quick."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.serve.conftest import B, Live
from tests.serve.inspector.conftest import Tab, settled, tab_of
from tests.serve.mcp_server import Address

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

BANK = "hostile \u202e<b> bank"
HERE = f"#/b/{quote(BANK, safe='')}"
EVIL = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)><animate onbegin=alert(4)></svg>",
    "javascript:alert(5)",
    "${alert(6)} {{constructor.constructor('alert(7)')()}}",
    "\u202eevil\u202c \u2066isolate\u2069 zero\u200bwidth\u2060joined\ufeff",
    "هذا نص عربي طويل عن المدينة القديمة ‏ وتاريخها",
    "👩‍👩‍👧‍👦👩🏽‍🚀🏳️‍🌈 family, astronaut, flag",
    "w" * 20_000,
    "z\u0301" * 2_000 + " combined",
    "null", "undefined", "NaN", "__proto__", "constructor", "toString", "true", "0",
    "[object Object]",
    "\u0007\u0001 control\x7f", "'\"><a href=javascript:alert(8)>x</a>", "]]>-->", "%3Cscript%3E",
)  # fmt: skip
PAGES = ("", "/memories", "/entities", "/timeline", "/documents", "/changes", "/operations",
         "/settings")  # fmt: skip
MARKUP = "main img, main script, main iframe, main object, main animate, main a[href^='javascript']"
CPU_MS = 200
"""Of the page's own thread, for one interaction."""


def cut(text: str, most: int) -> str:
    """As much of it as that many bytes hold."""
    return text.encode()[:most].decode(errors="ignore")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ids(live: Live) -> AsyncIterator[dict[str, str]]:
    memories: list[dict[str, Any]] = [
        {"key": f"k{i}", "text": f"kiln {evil}", "context": cut(evil, 2_000),
         "tags": [cut(evil, 200)],
         "entities": [cut(evil, 200)], "metadata": {cut(evil, 100): cut(evil, 500)},
         "document_id": cut(evil, 250), "occurred_start": f"2024-05-{i + 1:02}"}
        for i, evil in enumerate(EVIL)
    ]  # fmt: skip
    memories.append(
        {"key": "many", "text": "kiln of many tags", "tags": [f"t{i}" for i in range(300)]}
    )
    done = await live.import_memories(quote(BANK, safe=""), *memories)
    yield done["ids"]


class Quick:
    """CPU of the page's thread, as Chromium counts it."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    async def of(cls, tab: Tab) -> Quick:
        session = await tab.context.new_cdp_session(tab.page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        return cls(session)

    async def ms(self) -> float:
        found = (await self._session.send("Performance.getMetrics"))["metrics"]
        return 1000 * next(float(one["value"]) for one in found if one["name"] == "TaskDuration")


async def fits(tab: Tab, width: int) -> None:
    wide = await tab.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= width, (tab.page.url, wide)
    assert await tab.page.locator(MARKUP).count() == 0, tab.page.url


@pytest.mark.parametrize("width", [360, 768, 1440])
async def test_nothing_runs_and_everything_fits(
    browser: Browser, address: Address, ids: dict[str, str], width: int
) -> None:
    async with tab_of(
        browser, address.url, width, scheme="dark" if width == 768 else "light"
    ) as tab:
        title = None
        for name in PAGES:
            await tab.open(HERE + name)
            await settled(tab)
            title = title or await tab.page.title()
            assert await tab.page.title() == title
            assert "\u202e" not in title
            await fits(tab, width)
        for key in ("k0", "k2", "k5", "k8", "many") if width == 360 else ("k1", "k9"):
            await tab.open(f"{HERE}/m/{ids[key]}")
            await settled(tab)
            await fits(tab, width)
        await tab.ask(quote(BANK, safe=""), f"kiln {EVIL[0]} \u202e هذا؟")
        row = tab.page.locator(".results > li", has_text="<script>alert(1)</script>").first
        await row.locator(".text").click()
        for name in ("Why not", "Time", "Path", "Tokens", "Latency", "Take along", "JSON", "Score"):
            await tab.tab(name)
            await expect(tab.page.locator("#tabpanel")).not_to_have_text("")
            await fits(tab, width)
        tab.quiet()


async def test_signs_that_nobody_sees_are_shown_and_the_rest_is_whole(
    tab: Tab, ids: dict[str, str]
) -> None:
    for key, signs in (("k5", ("202E", "200B", "2060", "FEFF", "2066")), ("k19", ("0007", "007F"))):
        await tab.open(f"{HERE}/m/{ids[key]}")
        await settled(tab)
        for sign in signs:
            await expect(tab.page.locator("main .ctl", has_text=sign).first).to_be_visible()
    for key in ("k6", "k7", *(f"k{i}" for i in range(10, 19))):  # letters, joiners, odd names
        await tab.open(f"{HERE}/m/{ids[key]}")
        text = EVIL[int(key[1:])].replace("\u200f", "200F")
        await expect(tab.page.locator("main .text").first).to_have_text(f"kiln {text}")
    tab.quiet()


async def test_a_megabyte_of_text_and_300_tags_cost_little(tab: Tab, ids: dict[str, str]) -> None:
    async def longer(route: Any) -> None:
        answer = await route.fetch()
        said = await answer.json()
        await route.fulfill(response=answer, json={**said, "text": "lorem ipsum dolor " * 58_000})

    await tab.page.route(f"**/memories/{ids['k3']}", longer)
    await tab.open(f"{HERE}/m/{ids['k3']}")
    await settled(tab)
    more = tab.page.get_by_role("button", name="more", exact=True).first
    quick = await Quick.of(tab)
    spent = []
    for _ in range(3):
        before = await quick.ms()
        await more.click()
        await tab.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        spent.append(await quick.ms() - before)
    assert min(spent) < CPU_MS, spent
    assert len(await tab.page.locator("main .text").first.inner_text()) < 100_000
    await tab.open(f"{HERE}/m/{ids['many']}")
    await settled(tab)
    assert await tab.page.locator("main dd .chip").count() <= 101
    await expect(tab.page.locator("main dd", has_text="200 more")).to_be_visible()
    tab.quiet()


async def test_many_entities(tab: Tab, live: Live) -> None:
    """10,000 names: a page of them, a picture of the most mentioned, and quick steps."""
    bank, each = "ten thousand names", 100
    batch = [
        {"text": f"gathering {i}", "entities": [f"Zq{i}x{j}" for j in range(each)]}
        for i in range(100)
    ]
    for start in range(0, 100, 25):
        await live.import_memories(quote(bank), *batch[start : start + 25])
    found = (await live.http.get(f"{B}/{quote(bank)}/overview")).json()
    assert found["entities"] >= 9_000
    await tab.open(f"#/b/{quote(bank)}/entities")
    await settled(tab)
    await expect(tab.page.locator("section table tbody tr").first).to_be_visible()
    assert await tab.page.locator("section svg g.link").count() <= 150
    quick = await Quick.of(tab)
    spent = []
    for n in range(3):
        before = await quick.ms()
        await tab.page.locator("section svg g.link").nth(n).hover()
        await tab.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        spent.append(await quick.ms() - before)
    assert min(spent) < CPU_MS, spent
    sizes = [
        len((await live.http.get(f"{B}/{quote(bank)}/{path}")).content)
        for path in ("overview", "entities?limit=50&count=upto", "entities/graph?limit=150")
    ]
    assert max(sizes) < 300_000, sizes
    tab.quiet()


async def test_choosing_a_result_is_quick(tab: Tab, ids: dict[str, str]) -> None:
    from serve.local import sample

    await tab.ask(sample.BANK, sample.QUESTION)
    quick = await Quick.of(tab)
    spent = []
    for n in range(4):
        before = await quick.ms()
        await tab.page.locator(".results > li .text").nth(n).click()
        await expect(tab.page.locator(".results > li").nth(n)).to_have_attribute(
            "aria-current", "true"
        )
        spent.append(await quick.ms() - before)
    assert min(spent) < CPU_MS, spent
