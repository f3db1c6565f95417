"""The inspector's pages in a real browser: what each shows, in all its states."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, expect

from retrieval.store import tenants
from serve.local import sample
from tests.cases import case, checks, ground, player
from tests.serve.conftest import B, Live
from tests.serve.inspector.conftest import Tab, settled, tab_of
from tests.serve.mcp_server import Address, serving, with_keys

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

SAMPLE = f"#/b/{sample.BANK}"
AXE = Path(AXE_FILE_PATH).read_text(encoding="utf-8")
HOSTILE = "hostile </b> \u202e bank/slash"
PAGES = (
    "#/", "#/activity", "#/server", "#/admin", "#/key", "#/open", SAMPLE, f"{SAMPLE}/memories",
    f"{SAMPLE}/entities", f"{SAMPLE}/timeline", f"{SAMPLE}/documents", f"{SAMPLE}/changes",
    f"{SAMPLE}/operations", f"{SAMPLE}/settings", f"{SAMPLE}/recall", f"{SAMPLE}/compare",
)  # fmt: skip


async def test_every_page_shows_without_a_fault(tab: Tab) -> None:
    for page in PAGES:
        await tab.open(page)
        await settled(tab)
        assert await tab.page.locator("main .note.bad").count() == 0, page
        assert len(await tab.page.locator("main").inner_text()) > 20, page
    tab.quiet()


async def test_the_answer_is_that_of_a_recall_and_its_parts_add_up(tab: Tab, fused: Live) -> None:
    await tab.ask(sample.BANK, sample.QUESTION)
    page = tab.page
    served = (await fused.recall(sample.BANK, sample.QUESTION))["results"]
    rows = page.locator(".results > li")
    await expect(rows).to_have_count(len(served))
    assert served[0]["text"] in await rows.first.inner_text()
    await rows.first.locator(".text").click()
    totals = page.locator("[data-total]")
    await expect(totals).to_have_count(2)
    assert await page.locator(".badge.bad", has_text="fault").count() == 0
    final = float(await totals.last.get_attribute("data-total") or "nan")
    assert final == pytest.approx(served[0]["scores"]["final"], abs=1e-8)
    tab.quiet()


async def test_a_chain_shows_both_hops(tab: Tab) -> None:
    await tab.ask(sample.BANK, sample.QUESTION)
    row = tab.page.locator(".results > li", has_text="lorries could no longer reach").first
    await row.locator(".text").click()
    await tab.tab("Path")
    panel = tab.page.locator("#tabpanel")
    await expect(panel).to_contain_text("2 hops: causal, then causal.")
    await expect(panel.get_by_text("hop 2", exact=True)).to_be_visible()
    await expect(panel.get_by_text("seed", exact=True)).to_be_visible()


async def test_time_words_are_underlined_and_drawn(tab: Tab) -> None:
    await tab.ask(sample.BANK, "What was repaired in October 2024?")
    await tab.tab("Time")
    panel = tab.page.locator("#tabpanel")
    await expect(panel.locator("mark.used")).to_have_text("October 2024")
    await expect(panel.locator(".said")).to_contain_text("1 Oct 2024 – 31 Oct 2024")
    await expect(panel).to_contain_text("without a date")


async def test_limits_are_said_in_flow_and_table(tab: Tab) -> None:
    await tab.open(f"{SAMPLE}/recall")
    await tab.page.get_by_label("Question").fill(sample.QUESTION)
    await tab.page.get_by_label("Limit", exact=True).fill("3")
    await tab.page.get_by_role("button", name="Run", exact=True).click()
    await expect(tab.page.locator(".results > li")).to_have_count(3)
    flow = tab.page.get_by_label("Results and flow")
    await flow.get_by_text(re.compile("left out after they were found")).click()
    await expect(flow.locator("details .badge").first).to_have_text("limit")
    await flow.get_by_role("button", name="Table").click()
    await expect(flow.locator("tbody tr", has_text="limit").first).to_be_visible()


async def test_the_budget_of_tokens(tab: Tab) -> None:
    await tab.open(f"{SAMPLE}/recall")
    await tab.page.get_by_label("Question").fill(sample.QUESTION)
    await tab.page.get_by_label("Max tokens").fill("60")
    await tab.page.get_by_role("button", name="Run", exact=True).click()
    await tab.tab("Tokens")
    first = tab.page.locator("#tabpanel svg [aria-label^='needs']").first
    more = re.match(r"needs (\d+) more", await first.get_attribute("aria-label") or "")
    assert more is not None
    await expect(tab.page.locator("#tabpanel .said")).to_contain_text(f"needs {more[1]} more")
    await first.press("Enter")
    await expect(tab.page.locator("#tabpanel")).to_contain_text(f"Needs {more[1]} more.")
    await tab.tab("Why not")
    ladder = tab.page.locator(".ladder")
    await expect(ladder.locator("li.stop")).to_contain_text("fits the tokens")
    checked = tab.page.locator("#tabpanel", has_text="checked: place")
    await expect(checked).to_be_visible()
    await checked.get_by_role("link", name="Compare").first.click()
    await expect(tab.page.locator("main")).to_contain_text("new")
    await expect(tab.page.locator(".said").first).to_contain_text("The same:")
    tab.quiet()


async def test_a_memory_is_found_by_what_it_says(tab: Tab) -> None:
    await tab.ask(sample.BANK, "Who plays the violin?")
    await tab.tab("Why not")
    await tab.page.locator("[data-why]").fill("middle pier")
    await tab.page.get_by_role("button", name="Find it").click()
    await tab.page.locator("#tabpanel button", has_text="middle pier").first.click()
    await expect(tab.page.locator(".ladder")).to_be_visible()
    assert "m=" in tab.page.url


async def test_a_waterfall_begins_at_the_door(tab: Tab) -> None:
    await tab.ask(sample.BANK, sample.QUESTION)
    await tab.tab("Latency")
    panel = tab.page.locator("#tabpanel")
    await expect(panel.get_by_text("admission", exact=True)).to_be_visible()
    await panel.get_by_role("button", name="Table").click()
    assert await panel.locator("tbody tr").count() > 8


async def test_take_along_gives_the_same_ids(
    tab: Tab, address: Address, fused: Live, tmp_path: Path
) -> None:
    question = 'Why did the "harvest festival" move to Mara\'s old mill? $(exit 1) `x`'
    await tab.ask(sample.BANK, question)
    wanted = [r["id"] for r in (await fused.recall(sample.BANK, question))["results"]]
    await tab.tab("Take along")
    environment = {**os.environ, "FOURFOLD_API_KEY": "none"}

    async def ran(*command: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    curl = await tab.page.locator("[data-take=curl]").inner_text()
    answer = json.loads(await ran("sh", "-c", curl))
    assert [r["id"] for r in answer["results"]] == wanted
    await tab.page.get_by_role("button", name="Python", exact=True).click()
    python = await tab.page.locator("[data-take=python]").inner_text()
    assert "hindsight_client" in python
    script = tmp_path / "recall.py"
    script.write_text(python)
    lines = (await ran(sys.executable, str(script))).splitlines()
    assert [line.split(" ")[0] for line in lines] == wanted


async def test_what_is_saved_opens_again_and_is_played(tab: Tab, tmp_path: Path, dsn: str) -> None:
    await tab.ask(sample.BANK, "What was repaired in October 2024?")
    await tab.tab("Take along")
    for button, name in (("Save the recall", "recall.json"), ("Save the case", "case.json")):
        async with tab.page.expect_download() as download:
            await tab.page.get_by_role("button", name=button).click()
        await (await download.value).save_as(tmp_path / name)
    await tab.open("#/open")
    asked = len(tab.asked)
    await tab.page.get_by_label("File").set_input_files(tmp_path / "recall.json")
    await expect(tab.page.locator(".results > li").first).to_be_visible()
    await tab.page.locator(".results > li .text").first.click()
    await expect(tab.page.locator("[data-total]").first).to_be_visible()
    assert not [url for url in tab.asked[asked:] if "/v1/" in url]
    tab.quiet()
    _, (saved,) = case.read(tmp_path / "case.json")
    assert {part["kind"] for part in checks.flatten(saved.expect)} <= checks.kinds()
    assert saved.params["query_timestamp"]
    async with ground.ground(dsn) as base:
        await player.play(saved, base)
    await tab.page.get_by_label("File").set_input_files(tmp_path / "case.json")
    await expect(tab.page.get_by_role("alert")).to_contain_text("holds no saved recall")


async def test_a_link_leads_to_the_same_view(tab: Tab, browser: Browser) -> None:
    await tab.ask(sample.BANK, sample.QUESTION)
    await tab.page.locator(".results > li .text").nth(2).click()
    await tab.tab("Path")
    text = await tab.page.locator('.results li[aria-current="true"] .text').inner_text()
    async with tab_of(browser, tab.url) as other:
        await other.page.goto(tab.page.url)
        chosen = other.page.locator('.results li[aria-current="true"] .text')
        await expect(chosen).to_have_text(text)
        await expect(other.page.get_by_role("tab", name="Path")).to_have_attribute(
            "aria-selected", "true"
        )
        await other.page.get_by_role("link", name="Overview").click()
        await expect(other.page.locator(".facts")).to_be_visible()
        await other.page.go_back()
        await expect(chosen).to_have_text(text)


async def test_the_keyboard_alone(tab: Tab) -> None:
    page = tab.page
    await tab.open(f"{SAMPLE}/recall")
    await expect(page.get_by_label("Question")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Question")).to_be_focused()
    await page.keyboard.type("Who repaired the tower clock?")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".results > li").first).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".results > li").nth(1)).to_have_attribute("aria-current", "true")
    await page.keyboard.press("w")
    await expect(page.locator(".ladder")).to_be_visible()
    await page.keyboard.press("p")
    await expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    await page.keyboard.press("x")
    await expect(page.locator(".chip", has_text="exclude_ids")).to_be_visible()
    await expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()  # it is done
    await page.keyboard.press("Tab")
    outline = await page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    await page.keyboard.press("c")
    await expect(page.locator(".said").first).to_contain_text("The same:")
    await page.keyboard.press("Escape")
    await expect(page.locator(".results > li").first).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.keyboard.press("g")
    await page.keyboard.press("m")
    await expect(page.get_by_role("heading", name="Memories")).to_be_visible()
    tab.quiet()


async def test_hostile_texts_are_shown_and_do_nothing(tab: Tab, live: Live) -> None:
    bank = HOSTILE.replace("/", "%2F").replace(" ", "%20").replace("\u202e", "%E2%80%AE")
    bank = bank.replace("<", "%3C").replace(">", "%3E")
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
    await live.import_memories(
        bank,
        {"key": "a", "text": f"hostile {evil} javascript:alert(4) \u202egnp.exe \u0007",
         "tags": [evil, "\u202etag"], "entities": [evil, "\u202eMallory"], "context": evil,
         "metadata": {evil: evil}, "occurred_start": "2024-05-01"},
        {"key": "b", "text": "hostile " + "w" * 100_000, "document_id": evil},
        {"key": "c", "text": "hostile هذا نص عربي عن المدينة القديمة", "entities": ["مدينة"]},
    )  # fmt: skip
    ids = (await live.http.get(f"{B}/{bank}/memories/list")).json()["items"]
    here = f"#/b/{bank}"
    title = None
    for name in ("", "/memories", "/entities", "/documents", "/changes", "/timeline"):
        await tab.open(here + name)
        await settled(tab)
        title = title or await tab.page.title()
        assert await tab.page.title() == title
    for one in ids:
        await tab.open(f"{here}/m/{one['id']}")
        await settled(tab)
    await tab.ask(bank, f"hostile {evil} \u202e هذا؟")
    page = tab.page
    row = page.locator(".results > li", has_text="javascript:alert(4)").first
    await expect(row.locator(".ctl", has_text="202E")).to_be_visible()
    await row.locator(".text").click()
    for name in ("Why not", "Time", "Path", "Tokens", "Take along", "JSON"):
        await tab.tab(name)
        await expect(page.locator("#tabpanel")).not_to_have_text("")
    assert await page.locator("main img, main script, main iframe, main object").count() == 0
    assert await page.locator('main a[href^="javascript:"]').count() == 0
    width = await page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= 1280
    tab.quiet()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (360, "dark"), (768, "light"), (1920, "dark")]
)
async def test_anybody_can_use_it(
    browser: Browser, address: Address, width: int, scheme: str
) -> None:
    whole = width in (1280, 360)
    pages = PAGES if whole else PAGES[6:7] + PAGES[13:14]
    async with tab_of(browser, address.url, width, scheme=scheme) as tab:
        found: list[str] = []

        async def look(where: str) -> None:
            await settled(tab)
            await tab.page.evaluate(AXE)
            result = await tab.page.evaluate(
                "() => axe.run(document, {resultTypes: ['violations'],"
                " runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
            )
            found.extend(
                f"{where}: {fault['id']} {node['target']} {node.get('failureSummary', '')[:200]}"
                for fault in result["violations"]
                for node in fault["nodes"][:3]
            )
            wide = await tab.page.evaluate("() => document.documentElement.scrollWidth")
            if wide > width:
                found.append(f"{where}: {wide} px wide")

        for page in pages:
            await tab.open(page)
            await look(page)
        await tab.ask(sample.BANK, "What was repaired in October 2024?")
        await tab.page.locator(".results > li .text").first.click()
        names = ("Score", "Why not", "Time", "Path", "Tokens", "Latency", "Take along")
        for name in names if whole else names[:2]:
            await tab.tab(name)
            if name == "Why not":
                await expect(tab.page.locator(".ladder")).to_be_visible()
            await look(f"recall, {name}")
        assert not found, "\n".join(found)


async def test_no_sideways_scroll_at_320(browser: Browser, address: Address) -> None:
    async with tab_of(browser, address.url, 320, 700) as tab:
        for page in PAGES:
            await tab.open(page)
            await settled(tab)
            wide = await tab.page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 320, page


async def test_keys(browser: Browser, fused: Live) -> None:
    key = await tenants.create_key(fused.services.pool, "default", "inspector test")
    async with (
        serving(fused.services, with_keys) as address,
        tab_of(browser, address.url) as tab,
    ):
        await tab.open(f"{SAMPLE}/memories")
        field = tab.page.get_by_label("API key")
        await expect(field).to_be_visible()
        await field.fill("ff_wrong")
        await tab.page.get_by_role("button", name="Use this key").click()
        await expect(tab.page.get_by_role("alert")).to_contain_text("not known")
        await field.fill(key)
        await tab.page.get_by_role("button", name="Use this key").click()
        await expect(tab.page.get_by_role("heading", name="Memories")).to_be_visible()
        await settled(tab)
        await tab.ask(sample.BANK, sample.QUESTION)
        await tab.tab("Take along")
        for name in ("curl", "Python"):
            await tab.page.get_by_role("button", name=name, exact=True).click()
            assert key not in await tab.page.content()
        assert not any(key in url for url in tab.asked)
        await tenants.revoke_key(fused.services.pool, tenants.key_id(key))
        await tab.open(f"{SAMPLE}/entities")
        await tab.page.reload()
        await expect(field).to_be_visible()
        assert not [said for said in tab.wrong if "401" not in said]


async def test_errors_keep_the_form(tab: Tab) -> None:
    page = tab.page
    await tab.ask(sample.BANK, sample.QUESTION)
    refused = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"detail": "busy for now"}}
    answers: list[dict[str, Any]] = [
        {"status": 504, "json": {"detail": "the request ran out of time during reranking",
                                 "stage": "reranking", "finished": {"bank_open": 0.25}}},
        {"status": 429, "headers": {"Retry-After": "1"}, "json": {"detail": "too many of yours"}},
        refused, refused,
    ]  # fmt: skip
    served: Iterator[dict[str, Any]] = iter(answers)

    async def answer(route: Any) -> None:
        one = next(served, None)
        await (route.continue_() if one is None else route.fulfill(**one))

    await page.route("**/recall/explain", answer)
    run = page.get_by_role("button", name="Run", exact=True)
    await run.click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("ran out of time during reranking")
    await expect(alert).to_contain_text("bank_open")
    await expect(page.get_by_label("Question")).to_have_value(sample.QUESTION)
    assert await page.locator(".results > li").count() > 0  # the old answer stays
    await run.click()  # 429 with Retry-After is asked again, and met by 503
    await expect(alert).to_contain_text("busy for now")
    await page.get_by_role("button", name="Try again").click()
    await expect(alert).to_have_count(0)
    await page.get_by_label("Max tokens").fill("")
    await page.get_by_label("Limit", exact=True).fill("0")
    await page.unroute("**/recall/explain")
    await run.click()
    await expect(page.locator(".field-error")).to_be_visible()
    await page.route("**/recall/explain", lambda route: route.abort())
    await run.click()
    await expect(alert.first).to_contain_text("does not answer")
    await tab.open("#/b/no-such-bank")
    await expect(page.get_by_role("alert").first).to_contain_text("there is no bank")


async def test_operations_move_by_themselves(tab: Tab, live: Live) -> None:
    bank = f"operated-{uuid4()}"
    await live.http.put(f"{B}/{bank}", json={})
    await tab.open(f"#/b/{bank}/operations")
    await settled(tab)
    await expect(tab.page.get_by_text("live", exact=True)).to_be_visible()
    answer = await live.http.post(
        f"{B}/{bank}/memories", json={"items": [{"content": "A boat sails."}], "async": True}
    )
    assert answer.status_code == 200, answer.text
    await expect(tab.page.locator("main tbody tr")).to_have_count(1)
    await expect(tab.page.locator("main tbody .badge")).to_have_text("completed")
    await tab.page.route("**/operations/events", lambda route: route.abort())
    await tab.page.reload()
    await expect(tab.page.get_by_text("asking every 2 s")).to_be_visible()
    await live.http.post(
        f"{B}/{bank}/memories", json={"items": [{"content": "It returns."}], "async": True}
    )
    await expect(tab.page.locator("main tbody tr")).to_have_count(2)
    await tab.page.unroute("**/operations/events")
    await expect(tab.page.get_by_text("live", exact=True)).to_be_visible()


async def test_writes_since_are_told(tab: Tab, live: Live) -> None:
    bank = "aged"
    await live.import_memories(bank, {"key": "a", "text": "The ferry leaves at nine."})
    await tab.page.clock.install()
    await tab.ask(bank, "When does the ferry leave?")
    await live.import_memories(bank, {"key": "b", "text": "The ferry leaves at ten now."})
    await tab.page.clock.run_for(16_000)
    await expect(tab.page.get_by_text("1 write since.")).to_be_visible()
    await expect(tab.page.locator(".results > li")).to_have_count(1)
    await tab.page.get_by_role("button", name="Run again").click()
    await expect(tab.page.locator(".results > li")).to_have_count(2)


async def test_settings_are_changed_in_one_go(tab: Tab, live: Live) -> None:
    bank = "tuned"
    await live.http.put(f"{B}/{bank}", json={})
    await tab.open(f"#/b/{bank}/settings")
    await tab.page.get_by_label("recall_budget_fixed_low").fill("0")
    await tab.page.get_by_label("recall_budget_fixed_low").press("Tab")
    await tab.page.get_by_role("button", name="Save 1").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("recall_budget_fixed_low")
    await tab.page.get_by_label("recall_budget_fixed_low").fill("50")
    await tab.page.get_by_label("recall_budget_fixed_low").press("Tab")
    await tab.page.get_by_label("hemisphere").select_option("south")
    await tab.page.get_by_role("button", name="Save 2").click()
    await expect(tab.page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    held = (await live.http.get(f"{B}/{bank}/config")).json()["overrides"]
    assert held == {"recall_budget_fixed_low": 50, "hemisphere": "south"}


async def test_a_memory_is_changed_and_restored(tab: Tab, live: Live) -> None:
    done = await live.import_memories("mended", {"key": "a", "text": "The kiln is green."})
    await tab.open(f"#/b/mended/m/{done['ids']['a']}")
    page = tab.page
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Text").fill("The kiln is blue.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("main .text").first).to_have_text("The kiln is blue.")
    await page.get_by_role("button", name="Invalidate").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("sold")
    await page.get_by_role("dialog").get_by_role("button", name="Invalidate").click()
    await expect(page.locator("main .note.bad")).to_contain_text("sold")
    await page.get_by_role("button", name="Restore").click()
    await expect(page.locator("main .note.bad")).to_have_count(0)
    tab.quiet()
