"""Consolidation through the real application: a scripted server keeps the real protocol."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import hindsight_client_api
import pytest

from serve.settings import parse
from tests.models.llm_server import Asked, LLMServer, Reply
from tests.serve.conftest import B, Live
from tests.serve.test_llm import application, one

pytestmark = pytest.mark.integration

client: Any = hindsight_client_api
SOON = {"consolidation_debounce_s": 0.0}


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as made:
        made.rule("You keep the observations", observed)
        yield made


def observed(asked: Asked) -> Reply:
    """One observation of every fact, in its words."""
    lines = [json.loads(x) for x in asked.text.split("\n") if re.match(r'\{"fact"', x)]
    return Reply(
        json={
            "actions": [
                {"reason": "new", "do": "create", "observation": None, "facts": [x["fact"]],
                 "text": x["text"], "from": None, "until": None}
                for x in lines
            ]
        }
    )  # fmt: skip


async def settled(live: Live, bank: str) -> list[dict[str, Any]]:
    """The bank's consolidations, once all have ended."""
    async with asyncio.timeout(60):
        while True:
            url = f"{B}/{bank}/operations?type=consolidation"
            found = (await live.http.get(url)).json()["operations"]
            if found and all(o["status"] not in ("pending", "processing") for o in found):
                return list(found)
            await asyncio.sleep(0.05)


async def observations(live: Live, bank: str) -> list[dict[str, Any]]:
    answer = await live.http.get(f"{B}/{bank}/memories/list?type=observation")
    return sorted(answer.json()["items"], key=lambda item: item["text"])


async def test_writes_ripen(dsn: str, server: LLMServer) -> None:
    async with application(dsn, consolidation=SOON, **one(server)) as live:
        await live.import_memories(
            "ripe", {"text": "Ann rows.", "tags": ["x"]}, {"text": "Bo swims."}
        )
        done = await settled(live, "ripe")
        assert {o["status"] for o in done} == {"completed"}
        found = await observations(live, "ripe")
        assert [(o["text"], o["tags"]) for o in found] == [("Ann rows.", ["x"]), ("Bo swims.", [])]
        for item in found:
            assert (item["valid_from"], item["valid_until"], item["superseded_by"]) == (None,) * 3
        recalled = await live.recall("ripe", "who rows?", types=["observation"])
        assert recalled["results"][0]["text"] == "Ann rows."
        scopes = (await live.http.get(f"{B}/ripe/observations/scopes")).json()
        assert sorted((s["tags"], s["count"]) for s in scopes["scopes"]) == [([], 1), (["x"], 1)]
        shown = (await live.http.get(f"{B}/ripe/operations/{done[0]['id']}")).json()
        assert shown["result_metadata"]["done"] == 2
        assert shown["progress"]["stage"] == "consolidating"
        history = await live.http.get(f"{B}/ripe/memories/{found[0]['id']}/history")
        assert history.json() == []
        (memory,) = found[0]["source_memory_ids"]
        gone = await live.http.delete(f"{B}/ripe/memories/{memory}/observations")
        assert gone.json()["deleted_count"] == 1
        await settled(live, "ripe")
        assert [o["text"] for o in await observations(live, "ripe")] == ["Ann rows.", "Bo swims."]


async def test_asked_for(dsn: str, server: LLMServer) -> None:
    async with application(dsn, **one(server)) as live:
        await live.import_memories("asked", {"text": "Ann rows."})
        url = f"{B}/asked/consolidate"
        answer = await live.http.post(url)
        assert answer.status_code == 200, answer.text
        given = client.ConsolidationResponse.from_dict(answer.json())
        assert given is not None
        assert given.deduplicated is True  # the write had queued one, which waits no longer
        await settled(live, "asked")
        assert [o["text"] for o in await observations(live, "asked")] == ["Ann rows."]
        again = await live.http.post(url, json={"observation_scopes": [["x"], []]})
        assert again.json()["deduplicated"] is False
        assert (await live.http.post(url, json={"observation_scopes": "x"})).status_code == 422
        assert (await live.http.post(f"{B}/nowhere/consolidate")).status_code == 404
        await settled(live, "asked")


async def test_failed_and_recovered(dsn: str, server: LLMServer) -> None:
    bad = True
    server.rules.clear()
    server.rule("You keep the observations", lambda a: Reply(text="no") if bad else observed(a))
    async with application(dsn, consolidation=SOON, **one(server)) as live:
        await live.import_memories("fails", {"text": "Ann rows."})
        (done,) = await settled(live, "fails")
        assert done["status"] == "completed"
        listed = await live.http.get(f"{B}/fails/memories/list?consolidation_state=failed")
        (item,) = listed.json()["items"]
        assert "no JSON" in item["consolidation_error"]
        assert len(server.asked) == 3
        bad = False
        answer = await live.http.post(f"{B}/fails/consolidation/recover")
        given = client.RecoverConsolidationResponse.from_dict(answer.json())
        assert given is not None
        assert given.retried_count == 1
        await settled(live, "fails")
        assert [o["text"] for o in await observations(live, "fails")] == ["Ann rows."]


async def test_quota(dsn: str, server: LLMServer) -> None:
    """An exhausted account marks nothing; the operation says what it waits for."""
    server.rules.clear()
    spent = {"message": "no quota", "code": "insufficient_quota"}
    server.rule("You keep", Reply(status=429, error=spent))
    async with application(dsn, consolidation=SOON, **one(server)) as live:
        await live.import_memories("quota", {"text": "Ann rows."})
        async with asyncio.timeout(60):
            while True:
                listed = await live.http.get(f"{B}/quota/operations?type=consolidation")
                (waiting,) = listed.json()["operations"]
                if waiting["error_message"]:
                    break
                await asyncio.sleep(0.05)
        assert (waiting["status"], waiting["retry_count"]) == ("pending", 0)
        listed = await live.http.get(f"{B}/quota/memories/list?consolidation_state=pending")
        assert len(listed.json()["items"]) == 1
        server.rules.clear()
        server.rule("You keep", observed)


async def test_previews(dsn: str, server: LLMServer) -> None:
    never = {"enable_auto_consolidation": False}
    async with application(dsn, consolidation=never, **one(server)) as live:
        await live.import_memories("shown scopes", {"text": "Ann rows.", "tags": ["x"]})
        url = f"{B}/shown scopes/consolidation/preview"
        strategies = f"{B}/shown scopes/consolidation-strategies/preview"
        found = (await live.http.post(url)).json()
        assert (found["pending"], found["calls"], found["batch"]) == (1, 1, None)
        assert not [one for one in server.asked if "Ann rows." in str(one.body)]
        asked = {"operation": "consolidation"}
        prompt = (await live.http.post(f"{B}/shown scopes/prompts/preview", json=asked)).json()
        assert client.PromptPreviewResponse.from_dict(prompt) is not None
        assert "You keep the observations" in prompt["messages"][0]["blocks"][0]["text"]
        tried = (await live.http.post(url, json={"run": True})).json()["batch"]
        assert [a["text"] for a in tried["actions"]] == ["Ann rows."]
        assert tried["usage"]["input_tokens"] == 100
        assert await observations(live, "shown scopes") == []
        body = {"strategies": [{"scopes": [{"tags": ["x"]}], "observations_mission": "m"}]}
        answer = await live.http.post(strategies, json=body)
        assert answer.status_code == 200, answer.text
        assert client.ConsolidationStrategiesPreview.from_dict(answer.json()) is not None
        body["strategies"][0]["scopes"][0]["tags_match"] = "some"  # type: ignore[index]
        answer = await live.http.post(strategies, json=body)
        assert answer.status_code == 422


async def test_without_a_model(dsn: str) -> None:
    async with application(dsn, consolidation=SOON) as live:
        await live.import_memories("none", {"text": "Ann rows."})
        for path in ("consolidate", "consolidation/preview"):
            answer = await live.http.post(f"{B}/none/{path}")
            assert answer.status_code == 400
            assert "language model" in answer.json()["detail"]
        recovered = await live.http.post(f"{B}/none/consolidation/recover")
        assert recovered.json() == {"retried_count": 0}
        listed = await live.http.get(f"{B}/none/operations")
        assert listed.json()["total"] == 0
        cleared = await live.http.delete(f"{B}/none/observations")
        assert cleared.json()["success"] is True


async def test_rules_stand_in(dsn: str) -> None:
    async with application(dsn, consolidation=SOON, llm_provider="extractive") as live:
        body = {"items": [{"content": "Ann moved to Lisbon. Bo stayed in Porto."}]}
        assert (await live.http.post(f"{B}/ruled/memories", json=body)).status_code == 200
        await settled(live, "ruled")
        texts = [o["text"] for o in await observations(live, "ruled")]
        assert texts == ["Ann moved to Lisbon.", "Bo stayed in Porto."]


async def test_all_combinations_are_bounded(dsn: str) -> None:
    async with application(dsn) as live:
        item = {"content": "Ann rows.", "document_id": "d",
                "observation_scopes": "all_combinations"}  # fmt: skip
        many = {**item, "tags": list("abcdefg")}
        answer = await live.http.post(f"{B}/combined/memories", json={"items": [many]})
        assert answer.status_code == 422
        assert "at most 6 tags" in answer.text
        body = {"items": [{**item, "tags": list("abcd")}], "document_tags": list("efg")}
        assert (await live.http.post(f"{B}/combined/memories", json=body)).status_code == 422
        few = {**item, "tags": list("abcdef")}
        answer = await live.http.post(f"{B}/combined/memories", json={"items": [few]})
        assert answer.status_code == 200, answer.text


@pytest.mark.unit
def test_settings() -> None:
    env = {
        "HINDSIGHT_API_CONSOLIDATION_LLM_BATCH_SIZE": "4",
        "FOURFOLD_ENABLE_OBSERVATIONS": "false",
        "HINDSIGHT_API_MAX_OBSERVATIONS_PER_SCOPE": "7",
    }
    settings = parse({}, env)
    own = settings.consolidation
    assert (own.consolidation_llm_batch_size, own.max_observations_per_scope) == (4, 7)
    assert own.enable_observations is False
    assert settings.warnings == ()
