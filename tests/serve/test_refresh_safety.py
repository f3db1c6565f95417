"""Refreshes of documents, wherever the process dies and whoever else is on the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio

from retrieval.store import tenants
from serve import app, composition
from serve.composition import Stages
from tests.serve.conftest import B, Live, migrated, settings_for
from tests.serve.test_mental_models import ask, ended, get, rules
from tests.serve.test_refresh import bench, block, edit, moves
from tests.support.dying import Dying

__all__ = ["rules"]
pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def test_dying_at_every_statement(rules: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is the old one or the new one, with its history; a second try makes it the
    new one, once."""

    def answer(asked: Any) -> Any:
        rome = block(asked, "Ann lives in Rome.")
        change = edit("replace_block", block_id=rome, blocks=["Ann lives in Porto."], facts=["F1"])
        return {"operations": [change]}

    dying = Dying(monkeypatch)
    statement = 0
    while True:
        statement += 1
        assert statement < 100
        bank = f"dying-{statement}"
        one, _ = await bench(rules, bank, None, answer, answer)
        before = await one.content()
        after = before.replace("Rome", "Porto")
        await moves(rules, bank)
        claim = await one.claim()
        with dying.before(statement):
            await one.documents.refresh(claim)
        now = await one.content()
        assert now in (before, after)
        history = await ask(rules, "GET", f"{bank}/mental-models/ann/history")
        assert [
            row["previous_content"] for row in history if row["previous_content"] == before
        ] == ([before] if now == after else [])
        if now == before:
            await one.run()
            assert await one.content() == after
        assert not (await get(rules, bank, "ann"))["is_stale"]
        history = await ask(rules, "GET", f"{bank}/mental-models/ann/history")
        assert sum(row["previous_content"] == before for row in history) == 1
        if dying.survived:
            break
    assert statement > 5


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def neighbours(dsn: str) -> AsyncIterator[list[Live]]:
    """Two tenants of one application, each with a client of his own."""
    settings = settings_for(
        dsn,
        limits={"require_api_key": True},
        llm={"llm_provider": "extractive"},
        consolidation={"enable_auto_consolidation": False},
    )
    async with AsyncExitStack() as stack:
        pool = await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        found = []
        for tenant in ("left", "right"):
            key = await tenants.create_key(pool, tenant)
            http = httpx.AsyncClient(
                transport=httpx.ASGITransport(api),
                base_url="http://test",
                headers={"authorization": f"Bearer {key}"},
                timeout=60,
            )
            found.append(Live(services, await stack.enter_async_context(http), api))
        yield found


async def test_two_tenants_with_the_same_names(neighbours: list[Live]) -> None:
    """Banks, documents, entities and questions of one name: each is written from his own memories,
    and what one does to his changes nothing of the other's."""
    said = {"left": "Ann lives in Rome.", "right": "Ann lives in Oslo."}
    ids: list[set[str]] = []
    for live, text in zip(neighbours, said.values(), strict=True):
        memory = {"key": "1", "text": text, "mentioned_at": "2024-01-01", "entities": ["Ann"]}
        ids.append(set((await live.import_memories("ours", memory))["ids"].values()))
        body = {"id": "ann", "name": "Ann", "source_query": "Where does Ann live?"}
        found = await ask(live, "POST", "ours/mental-models", json=body)
        await ended(live, "ours", found["operation_id"])
    for live, own, foreign, mine in zip(
        neighbours, ("Rome", "Oslo"), ("Oslo", "Rome"), ids, strict=True
    ):
        item = await get(live, "ours", "ann")
        assert own in item["content"]
        assert foreign not in json.dumps(item)
        cited = {o["id"] for of in item["reflect_response"]["based_on"].values() for o in of}
        assert cited == mine
    left, right = neighbours
    before = await get(right, "ours", "ann")
    await left.http.delete(f"{B}/ours/mental-models/ann")
    await left.import_memories("ours", {"key": "2", "text": "Ann moved to Porto."})
    assert await get(right, "ours", "ann") == before
    assert not before["is_stale"]
    answer = await left.http.get(f"{B}/ours/mental-models/ann")
    assert answer.status_code == 404
