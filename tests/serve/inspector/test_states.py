"""The pages in the states of a server and a key: away and back, revoked, another order, below a
path; and the questions that a recall's page is there to answer."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from models.passthrough import Passthrough
from models.types import RerankRequest, Scores
from retrieval.recall.engine import RecallEngine
from retrieval.recall.explaining import Explainer
from retrieval.store import limits, tenants
from serve import app
from serve.inspector.assets import assets
from serve.local import sample
from serve.opening.translation import OpenedReranker
from serve.settings import Settings
from tests.serve.conftest import B, Live
from tests.serve.inspector.conftest import Tab, settled, tab_of
from tests.serve.mcp_server import serving, with_keys

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

SAMPLE = f"#/b/{sample.BANK}"


class TestTenQuestions:
    """Each is answered at once or by one click, on the page of a recall of the sample bank."""

    async def test_from_one_recall(self, tab: Tab) -> None:
        question = "Why did the harvest festival move to the old mill in September 2024?"
        await tab.ask(sample.BANK, question)
        page, panel = tab.page, tab.page.locator("#tabpanel")
        # 3. Which arm found it: four marks on each result, at once.
        first = page.locator(".results > li").first
        assert await first.locator(".arm").count() == 4
        assert re.search(r"S\d+.*K\d+", (await first.inner_text()).replace("\n", " "))
        # 1. Why is this first: its strip at once, the parts by a click on it.
        assert await first.locator(".side svg rect").count() > 3
        await first.locator(".text").click()
        await expect(panel.locator("[data-total]").last).to_be_visible()
        assert await panel.locator(".badge.bad").count() == 0
        # 5. What did the ranking change: columns and moves, at once.
        flow = page.get_by_label("Rank flow: arms")
        await expect(flow).to_contain_text("fused")
        await expect(flow).to_contain_text("served")
        # 2. Why is that missing: one click from what is chosen.
        await tab.tab("Why not")
        await expect(panel.locator(".ladder li.pass").first).to_be_visible()
        # 4. What did the time words mean.
        await tab.tab("Time")
        await expect(panel.locator("mark.used")).to_have_text("September 2024")
        await expect(panel.locator(".said")).to_contain_text("1 Sept 2024 – 30 Sept 2024")
        # 6. What did the budget cut.
        await tab.tab("Tokens")
        await expect(panel.locator(".said")).to_contain_text("tokens")
        # 7. How does the path go.
        await tab.tab("Path")
        await expect(panel.locator("svg")).to_contain_text("hop 1")
        # 8. Slow: which stage, and is that usual.
        await tab.tab("Latency")
        await expect(panel.locator("svg")).to_contain_text("parallel retrieval")
        # 9. and 10. What does the bank hold; what changed: one click each.
        await page.get_by_role("link", name="Overview").click()
        await expect(page.locator(".facts")).to_contain_text("Memories")
        await expect(page.locator("main")).to_contain_text("Top entities")
        await page.go_back()
        await page.get_by_role("link", name="Changes").click()
        await expect(page.locator("main tbody tr").first).to_contain_text("written")
        tab.quiet()

    async def test_the_usual_time_stands_beside_a_slow_one(self, tab: Tab, fused: Live) -> None:
        await fused.recall(sample.BANK, sample.QUESTION)
        await tab.ask(sample.BANK, sample.QUESTION)
        await tab.tab("Latency")
        await expect(tab.page.locator("#tabpanel svg")).to_contain_text("p99")
        await tab.page.get_by_role("link", name="Activity").click()
        await expect(tab.page.locator(".facts")).to_contain_text("Refused")


class TestWhyNot:
    """Check by check, on the page: the gate at which a memory stops, and what lets it in."""

    async def test_gates(self, tab: Tab, live: Live) -> None:
        bank = "why-not-page"
        done = await live.import_memories(
            bank,
            {"key": "tagged", "text": "The blue kiln was insured.", "tags": ["secret"]},
            {"key": "first", "text": "Ada fired the blue kiln.", "tags": ["studio"]},
            {"key": "second", "text": "The blue kiln cracked in May.", "tags": ["studio"]},
            {"key": "far", "text": "Trains to the north leave at seven.", "tags": ["studio"]},
            {"key": "gone", "text": "A blue kiln that never was.", "tags": ["studio"]},
        )
        ids = done["ids"]
        gone = await live.http.patch(
            f"{B}/{bank}/memories/{ids['gone']}", json={"state": "invalidated"}
        )
        assert gone.status_code == 200
        cases: list[tuple[str, dict[str, Any], str, str]] = [
            (ids["tagged"], {"tags": ["studio"], "tags_match": "any_strict"},
             "has the tags", "tag"),
            (ids["far"], {"min_scores": {"semantic": 0.95},
                          "settings": {"enable_graph_retrieval": False}},
             "an arm lists it", "floor"),
            (ids["second"], {"limit": 1}, "is within the limit", "limit"),
            (ids["second"], {"max_tokens": 8}, "fits the tokens", "tokens"),
            (ids["gone"], {}, "is valid", "invalidated"),
            (str(uuid4()), {}, "is in the bank", "no such memory"),
        ]  # fmt: skip
        page = tab.page
        for id, body, gate, said in cases:
            await tab.open("#/")  # another page, so that the next one begins anew
            request = {"query": "blue kiln", **body}
            await tab.open(f"#/b/{bank}/recall?m={id}&v=why&r={packed(request)}")
            ladder = page.locator(".ladder")
            stop = ladder.locator("li.stop")
            await expect(stop).to_have_count(1)
            await expect(stop).to_contain_text(gate)
            await expect(page.locator("#tabpanel")).to_contain_text(said)
            if gate in ("is valid", "is in the bank"):
                continue
            change = page.locator("#tabpanel li", has_text="checked: place").first
            await expect(change).to_be_visible()
            place = re.search(r"checked: place (\d+)", await change.inner_text())
            assert place is not None
            await change.get_by_role("link", name="Compare").click()
            await expect(page.locator(".said").first).to_contain_text("The same:")
            await page.locator("figure").get_by_role("button", name="Table").first.click()
            row = page.locator(f'figure tbody tr:has(a[href*="{id}"])')
            await expect(row.locator("td").nth(2)).to_have_text(place[1])
            await expect(row.locator("td").nth(1)).to_have_text("–")
        tab.quiet()


def packed(request: dict[str, Any]) -> str:
    raw = base64.urlsafe_b64encode(json.dumps(request).encode()).decode()
    return raw.rstrip("=")


class ByLength(Passthrough):
    """A stand-in for a cross-encoder: the longer a text, the better; it takes its time."""

    reads_text = True
    SECONDS = 0.05

    async def rerank(self, request: RerankRequest) -> Scores:
        await asyncio.sleep(self.SECONDS)
        lengths = np.array([len(one) for one in request.documents], np.float32)
        return Scores(lengths / max(1.0, float(lengths.max())), "probability", "by-length")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reranked(fused: Live) -> AsyncIterator[Live]:
    """`fused` with a reranker that changes the order."""
    services = fused.services
    assert services.explainer is not None
    retriever, settings = services.explainer.retriever, services.settings
    engine = RecallEngine(
        services.pool, retriever, OpenedReranker(ByLength("by-length")), settings.recall
    )
    explainer = Explainer(services.pool, retriever, engine)
    own = replace(services, recaller=engine, explainer=explainer)
    api = app.create(settings, own)
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as http:
        yield Live(own, http, api)


class TestTheReranker:
    async def test_on_against_off(self, browser: Browser, reranked: Live) -> None:
        """The comparison shows the places that both recalls give."""
        off = {"settings": {"enable_reranking": False}}
        url = f"{B}/{sample.BANK}/memories/recall/explain"
        answers = [
            (await reranked.http.post(url, json={"query": sample.QUESTION, **body})).json()
            for body in ({}, off)
        ]
        first, second = ([r["id"] for r in one["answer"]["results"]] for one in answers)
        assert first[:10] != second[:10]
        async with serving(reranked.services) as at, tab_of(browser, at.url) as tab:
            page = tab.page
            await tab.ask(sample.BANK, sample.QUESTION)
            await expect(page.locator(".sentence")).to_contain_text("ordered by by-length")
            # What the reranker changed, at once: the column, and moves of five places and more.
            flow = page.get_by_label("Rank flow: arms")
            await expect(flow).to_contain_text("by-length")
            assert re.search(r"[+−]\d+", await flow.text_content() or "")
            shown = page.locator(".results > li .text")
            assert await shown.first.inner_text() == answers[0]["answer"]["results"][0]["text"]
            await page.get_by_role("link", name="Compare").first.click()
            await page.get_by_role("button", name="reranker off").click()
            same = len(set(first[:5]) & set(second[:5]))
            await expect(page.locator(".said").first).to_contain_text(
                f"The same: {same} of the first 5,"
            )
            await page.locator("figure").get_by_role("button", name="Table").first.click()
            for place, id in enumerate(second[:8]):
                cells = page.locator(f'figure tbody tr:has(a[href*="{id}"]) td')
                await expect(cells.nth(2)).to_have_text(str(place + 1))
                await expect(cells.nth(1)).to_have_text(str(first.index(id) + 1))
            tab.quiet()

    async def test_the_waterfall_holds_what_was_waited_for(self, reranked: Live) -> None:
        url = f"{B}/{sample.BANK}/memories/recall/explain"
        begin = time.perf_counter()
        answer = await reranked.http.post(url, json={"query": sample.QUESTION})
        whole = time.perf_counter() - begin
        spans = {span["name"]: span for span in answer.json()["spans"]}
        root = next(span for span in spans.values() if span["parent"] is None)
        assert ByLength.SECONDS <= spans["reranking"]["seconds"] <= root["seconds"] <= whole


class TestTheServer:
    async def test_away_and_back(self, browser: Browser, fused: Live) -> None:
        """The answer that is there stays, what failed is said, and asking again works."""
        async with AsyncExitStack() as stack, tab_of(browser, "") as tab:
            at = await stack.enter_async_context(serving(fused.services))
            tab.url = at.url
            page = tab.page
            await tab.ask(sample.BANK, sample.QUESTION)
            results = page.locator(".results > li")
            count = await results.count()
            await stack.aclose()
            await page.get_by_label("Question").fill("Who repaired the tower clock?")
            await page.get_by_role("button", name="Run", exact=True).click()
            alert = page.get_by_role("alert").first
            await expect(alert).to_contain_text("does not answer")
            await expect(page.get_by_label("Question")).to_have_value(
                "Who repaired the tower clock?"
            )
            assert await results.count() == count
            for name in ("Overview", "Memories", "Entities", "Timeline", "Settings"):
                await page.get_by_role("link", name=name, exact=True).click()
                await expect(page.get_by_role("alert").first).to_contain_text("does not answer")
                again = page.get_by_role("button", name="Try again").first
                await expect(again).to_be_visible()
            async with serving(fused.services, port=int(at.url.rsplit(":", 1)[1])):
                await again.click()
                await expect(page.get_by_role("alert")).to_have_count(0)
                await expect(page.get_by_label("timezone")).to_be_visible()
                await tab.open("#/")  # nothing of it may hold the server back
            assert all("ERR_CONNECTION" in said for said in tab.wrong), tab.wrong

    async def test_a_key_that_is_revoked_while_the_page_is_open(
        self, browser: Browser, fused: Live
    ) -> None:
        pool = fused.services.pool
        key = await tenants.create_key(pool, "default", "to be revoked")
        async with serving(fused.services, with_keys) as at, tab_of(browser, at.url) as tab:
            page = tab.page
            await tab.open("#/key")
            await page.get_by_label("API key").fill(key)
            await page.get_by_role("button", name="Use this key").click()
            await expect(page.get_by_role("link", name=sample.BANK, exact=True)).to_be_visible()
            await tab.ask(sample.BANK, sample.QUESTION)
            here = page.url
            await tenants.revoke_key(pool, tenants.key_id(key))
            await page.get_by_role("button", name="Run", exact=True).click()
            await expect(page.get_by_label("API key")).to_be_visible()
            assert page.url.endswith("#/key")
            other = await tenants.create_key(pool, "default", "the next one")
            await page.get_by_label("API key").fill(other)
            await page.get_by_role("button", name="Use this key").click()
            await expect(page.locator(".results > li").first).to_be_visible()
            assert page.url == here
            for secret in (key, other):
                assert secret not in await page.content()
                assert not any(secret in url for url in tab.asked)
            tab.quiet(but="401")

    async def test_a_key_that_only_reads_is_offered_no_change(
        self, browser: Browser, fused: Live
    ) -> None:
        pool = fused.services.pool
        key = await tenants.create_key(pool, "default", "reads", scopes=("read",))
        found = (await fused.http.get(f"{B}/{sample.BANK}/memories/list?limit=1")).json()
        async with serving(fused.services, with_keys) as at, tab_of(browser, at.url) as tab:
            page = tab.page
            await tab.open("#/key")
            await page.get_by_label("API key").fill(key)
            await page.get_by_role("button", name="Use this key").click()
            await expect(page.get_by_role("link", name=sample.BANK, exact=True)).to_be_visible()
            assert await page.get_by_role("link", name="Admin").count() == 0
            for fragment in (
                f"{SAMPLE}/m/{found['items'][0]['id']}", f"{SAMPLE}/settings",
                f"{SAMPLE}/documents/council-2024-09", f"{SAMPLE}/operations",
            ):  # fmt: skip
                await tab.open(fragment)
                await settled(tab)
                for name in ("Edit", "Delete", "Invalidate", "Reprocess", "Save", "Retry"):
                    shown = page.locator("main").get_by_role("button", name=name, exact=True)
                    assert await shown.count() == 0, (fragment, name)
            await tab.ask(sample.BANK, sample.QUESTION)
            await expect(page.locator(".results > li").first).to_be_visible()
            tab.quiet(but="401")

    async def test_below_a_path_with_an_odd_bank_and_another_script(
        self, browser: Browser, fused: Live
    ) -> None:
        def below(settings: Settings) -> Settings:
            server = settings.server.model_copy(update={"base_path": "/memory"})
            return settings.model_copy(update={"server": server})

        await fused.import_memories(
            "a%2Fb%20c", {"text": "المدينة القديمة فيها مكتبة كبيرة", "entities": ["المدينة"]}
        )
        async with (
            serving(fused.services, below) as at,
            tab_of(browser, f"{at.url}/memory") as tab,
        ):
            await tab.open("#/")
            await tab.page.get_by_role("link", name="a/b c", exact=True).click()
            await expect(tab.page.locator(".facts")).to_be_visible()
            await tab.ask("a%2Fb%20c", "أين المكتبة في المدينة؟")
            await expect(tab.page.locator(".results > li")).to_have_count(1)
            await tab.tab("Take along")
            assert "/memory/v1/" in await tab.page.locator("[data-take=curl]").inner_text()
            await tab.open("#/server")
            await tab.page.get_by_role("link", name="The API’s description").click()
            await expect(tab.page.locator(".opblock-tag").first).to_be_visible()
            tab.quiet()


class TestTheOperator:
    async def test_the_page_knows_every_limit(self) -> None:
        page = assets()["pages/admin.js"].body.decode()
        listed = re.findall(r'\["([a-z_]+)", "', page[page.index("LIMITS") :].partition("];")[0])
        assert sorted(listed) == sorted(limits.NAMES)

    async def test_keys_and_limits(self, browser: Browser, fused: Live) -> None:
        """By a key with the scope operator, on a server that requires keys."""
        pool = fused.services.pool
        key = await tenants.create_key(pool, "runs it", scopes=("operator",))
        async with serving(fused.services, with_keys) as at, tab_of(browser, at.url) as tab:
            page = tab.page
            await tab.open("#/key")
            await page.get_by_label("API key").fill(key)
            await page.get_by_role("button", name="Use this key").click()
            await page.get_by_role("link", name="Admin").click()
            tenant = f"tenant {uuid4().hex[:6]}"
            await page.get_by_label("Tenant", exact=True).fill(tenant)
            await page.get_by_label("Label").fill("made on the page")
            await page.get_by_label("write", exact=True).uncheck()
            await page.get_by_label("admin", exact=True).uncheck()
            await page.get_by_label("Days it works").fill("5")
            await page.get_by_role("button", name="Make a key").click()
            made = await page.locator(".note code").inner_text()
            access = await tenants.access(pool, made)
            assert access is not None
            assert (access.tenant, sorted(access.scopes)) == (tenant, ["read"])
            row = page.locator("tbody tr", has_text="made on the page")
            await expect(row).to_contain_text("read")
            await page.get_by_role("button", name=f"Limits of {tenant}").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("recalls a second").fill("2.5")
            await dialog.get_by_role("button", name="Set", exact=True).click()
            await expect(page.locator("tbody tr", has_text=tenant).first).to_contain_text("2.5")
            assert (await limits.of_tenant(pool, tenant)).recalls_per_s == 2.5
            await row.get_by_role("button", name="Revoke").click()
            await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
            await expect(row).to_contain_text("revoked")
            assert await tenants.access(pool, made) is None
            await page.get_by_role("button", name="I have it").click()
            assert made not in await page.content()
            tab.quiet(but="40")


async def test_nothing_moves_for_whoever_wants_that(browser: Browser, fused: Live) -> None:
    async with serving(fused.services) as at, tab_of(browser, at.url) as tab:
        await tab.page.emulate_media(reduced_motion="reduce", forced_colors="active")
        await tab.ask(sample.BANK, sample.QUESTION)
        moving = await tab.page.evaluate(
            "() => document.getAnimations().filter((a) => a.effect.getTiming().duration > 0).length"
        )
        assert moving == 0
        await expect(tab.page.locator(".results > li").first).to_be_visible()
        tab.quiet()


async def test_the_description_of_the_api(browser: Browser, fused: Live) -> None:
    """In the same look, with nothing from elsewhere; what is tried there is sent with the key."""
    key = await tenants.create_key(fused.services.pool, "default", "docs")
    async with serving(fused.services, with_keys) as at, tab_of(browser, at.url) as tab:
        page = tab.page
        await tab.open("#/key")
        await page.get_by_label("API key").fill(key)
        await page.get_by_role("button", name="Use this key").click()
        await page.get_by_role("link", name="Server", exact=True).click()
        await page.get_by_role("link", name="The API’s description").click()
        section = page.locator(
            ".opblock-tag-section", has=page.locator("#operations-tag-inspector")
        )
        await section.locator(".opblock-tag").click()
        await section.get_by_text("/v1/default/whoami").click()
        await section.get_by_role("button", name="Execute").click()
        await expect(section.locator(".live-responses-table")).to_contain_text(tenants.key_id(key))
        tab.quiet(but="401")
