"""Mental models through the application; what a language model would write, rules write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.conftest import B, Live
from tests.serve.test_llm import application

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rules(dsn: str) -> AsyncIterator[Live]:
    async with application(
        dsn, {"enable_auto_consolidation": False}, llm_provider="extractive"
    ) as live:
        yield live


async def ask(live: Live, method: str, path: str, status: int = 200, **kwargs: Any) -> Any:
    answer = await live.http.request(method, f"{B}/{path}", **kwargs)
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    if status >= 400:
        assert answer.json()["detail"]
    return answer.json()


async def ended(live: Live, bank: str, operation: str) -> dict[str, Any]:
    """The operation once it is over."""
    async with asyncio.timeout(30):
        while True:
            found: dict[str, Any] = await ask(live, "GET", f"{bank}/operations/{operation}")
            if found["status"] in ("completed", "failed", "cancelled"):
                return found
            await asyncio.sleep(0.05)


async def made(live: Live, bank: str, id: str, query: str, **fields: Any) -> dict[str, Any]:
    """A mental model, refreshed once; its operation."""
    body = {"id": id, "name": id.title(), "source_query": query, **fields}
    found = await ask(live, "POST", f"{bank}/mental-models", json=body)
    assert found["mental_model_id"] == id
    return await ended(live, bank, found["operation_id"])


async def refreshed(live: Live, bank: str, id: str, **body: Any) -> dict[str, Any]:
    found = await ask(live, "POST", f"{bank}/mental-models/{id}/refresh", json=body or None)
    assert found["status"] == "queued"
    return await ended(live, bank, found["operation_id"])


async def get(live: Live, bank: str, id: str) -> dict[str, Any]:
    found: dict[str, Any] = await ask(live, "GET", f"{bank}/mental-models/{id}")
    return found


async def test_the_life_of_a_mental_model(rules: Live) -> None:
    bank = "tea"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes green tea."})
    body = {"name": "Tea", "source_query": "What tea does Ann like?", "tags": []}
    queued = await ask(rules, "POST", f"{bank}/mental-models", json={**body, "id": "tea"})
    before = await get(rules, bank, "tea")
    assert before["content"] in ("No content yet.", "[extractive]\n\nAnn likes green tea.")
    done = await ended(rules, bank, queued["operation_id"])
    assert (done["status"], done["mental_model_id"]) == ("completed", "tea")
    assert done["details"] == {
        "operation_type": "refresh_mental_model",
        "outcome": "content_written",
        "failure_reason": None,
    }
    found = await get(rules, bank, "tea")
    assert found["content"] == "[extractive]\n\nAnn likes green tea."
    assert not found["is_stale"]
    assert found["last_memory_seen_at"]
    assert found["last_full_refreshed_at"] == found["last_refreshed_at"]
    assert (found["max_tokens"], found["trigger"]["mode"]) == (2048, "full")
    (source,) = found["reflect_response"]["based_on"]["world"]
    assert source["text"] == "Ann likes green tea."

    await rules.import_memories(bank, {"key": "2", "text": "Ann likes black tea too."})
    assert (await get(rules, bank, "tea"))["is_stale"]
    listed = await ask(rules, "GET", f"{bank}/mental-models")
    assert listed["total"] == 1
    (item,) = listed["items"]
    assert item["is_stale"]
    assert "content" not in item
    assert "reflect_response" not in item
    again = await refreshed(rules, bank, "tea")
    assert again["details"]["outcome"] == "content_written"
    assert "black tea" in (await get(rules, bank, "tea"))["content"]
    (old,) = await ask(rules, "GET", f"{bank}/mental-models/tea/history")
    assert old["previous_content"] == "[extractive]\n\nAnn likes green tea."

    changed = await ask(
        rules,
        "PATCH",
        f"{bank}/mental-models/tea",
        json={"name": "Drinks", "trigger": {"mode": "delta"}},
    )
    assert (changed["name"], changed["source_query"]) == ("Drinks", body["source_query"])
    assert changed["trigger"]["mode"] == "delta"
    cleared = await ask(rules, "POST", f"{bank}/mental-models/tea/clear")
    assert cleared["content"] == ""
    assert cleared["is_stale"]
    assert (await refreshed(rules, bank, "tea"))["status"] == "completed"
    assert "green tea" in (await get(rules, bank, "tea"))["content"]
    assert len(await ask(rules, "GET", f"{bank}/mental-models/tea/history")) == 2
    assert await ask(rules, "DELETE", f"{bank}/mental-models/tea") == {"status": "deleted"}
    await ask(rules, "GET", f"{bank}/mental-models/tea", 404)
    assert (await ask(rules, "GET", f"{bank}/mental-models"))["total"] == 0


async def test_nothing_new_is_no_refresh(rules: Live) -> None:
    bank = "quiet"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes green tea."})
    await made(rules, bank, "tea", "What tea does Ann like?")
    before = await get(rules, bank, "tea")
    again = await refreshed(rules, bank, "tea")
    assert again["details"]["outcome"] == "content_preserved_no_new_facts"
    await rules.import_memories(bank, {"key": "2", "text": "Harbour cranes rust slowly."})
    assert (await get(rules, bank, "tea"))["is_stale"]
    other = await refreshed(rules, bank, "tea")
    assert other["details"]["outcome"] == "content_preserved_no_new_facts"
    after = await get(rules, bank, "tea")
    assert (after["content"], after["is_stale"]) == (before["content"], False)
    assert after["last_memory_seen_at"] > before["last_memory_seen_at"]
    assert await ask(rules, "GET", f"{bank}/mental-models/tea/history") == []
    forced = await refreshed(rules, bank, "tea", mode="full")
    assert forced["details"]["outcome"] in ("content_unchanged", "content_written")


async def test_a_bank_that_knows_nothing(rules: Live) -> None:
    done = await made(rules, "empty handed", "tea", "What tea does Ann like?")
    assert done["details"]["outcome"] == "content_preserved_no_new_facts"
    found = await get(rules, "empty handed", "tea")
    assert (found["content"], found["is_stale"]) == ("", False)


async def test_delta_leaves_the_rest_alone(rules: Live) -> None:
    bank = "delta"
    first = await rules.import_memories(
        bank,
        {"key": "1", "text": "Ann likes green tea.", "mentioned_at": "2024-01-01"},
        {"key": "2", "text": "Ann drinks tea at five.", "mentioned_at": "2024-01-02"},
    )
    await made(rules, bank, "tea", "What tea does Ann like?", trigger={"mode": "delta"})
    before = (await get(rules, bank, "tea"))["content"]
    await rules.import_memories(bank, {"key": "3", "text": "Ann gave up black tea."})
    done = await refreshed(rules, bank, "tea")
    assert done["result_metadata"]["effective_mode"] == "delta"
    found = await get(rules, bank, "tea")
    assert found["content"] == f"{before}\n\nAnn gave up black tea."
    assert len(found["reflect_response"]["based_on"]["world"]) == 3

    await ask(rules, "DELETE", f"{bank}/memories/{first['ids']['2']}")
    assert (await get(rules, bank, "tea"))["is_stale"]
    await refreshed(rules, bank, "tea")
    found = await get(rules, bank, "tea")
    assert "at five" not in found["content"]
    assert found["content"].startswith("[extractive]\n\nAnn likes green tea.\n\nAnn gave up")
    assert not found["is_stale"]
    assert len(found["reflect_response"]["based_on"]["world"]) == 2
    untouched = found["last_full_refreshed_at"]
    assert untouched < found["last_refreshed_at"]


async def test_all_that_it_cites_is_gone(rules: Live) -> None:
    """As after a restore from elsewhere: the text is all there is, so it stays."""
    bank = "gone"
    ids = (await rules.import_memories(bank, {"key": "1", "text": "Ann likes tea."}))["ids"]
    await made(rules, bank, "tea", "What tea does Ann like?", trigger={"mode": "delta"})
    before = await get(rules, bank, "tea")
    await ask(rules, "DELETE", f"{bank}/memories/{ids['1']}")
    assert (await get(rules, bank, "tea"))["is_stale"]
    done = await refreshed(rules, bank, "tea")
    assert done["details"]["outcome"] == "content_preserved_no_new_facts"
    after = await get(rules, bank, "tea")
    assert (after["content"], after["is_stale"]) == (before["content"], False)
    assert after["reflect_response"]["based_on"] == {}


async def test_the_same_words_under_another_id(rules: Live) -> None:
    bank = "reborn"
    ids = (await rules.import_memories(bank, {"key": "1", "text": "Ann likes tea."}))["ids"]
    await made(rules, bank, "tea", "What tea does Ann like?", trigger={"mode": "delta"})
    before = await get(rules, bank, "tea")
    await ask(rules, "DELETE", f"{bank}/memories/{ids['1']}")
    new = (await rules.import_memories(bank, {"key": "2", "text": "Ann likes tea."}))["ids"]
    await refreshed(rules, bank, "tea")
    after = await get(rules, bank, "tea")
    assert (after["content"], after["is_stale"]) == (before["content"], False)
    assert [one["id"] for one in after["reflect_response"]["based_on"]["world"]] == [new["2"]]


async def test_scope(rules: Live) -> None:
    bank = "scopes"
    await rules.import_memories(
        bank,
        {"key": "1", "text": "Ann likes tea.", "tags": ["ann"]},
        {"key": "2", "text": "Bo likes tea.", "tags": ["bo"]},
        {"key": "3", "text": "Everybody likes tea."},
        {"key": "4", "text": "Tea is liked.", "type": "observation", "tags": ["ann"]},
    )
    query = "Who likes tea?"
    await made(rules, bank, "ann", query, tags=["ann"])
    assert "Ann" in (text := (await get(rules, bank, "ann"))["content"])
    assert "Bo" not in text
    assert "Everybody" not in text
    await made(rules, bank, "any", query, tags=["ann"], trigger={"tags_match": "any"})
    assert "Everybody" in (await get(rules, bank, "any"))["content"]
    await made(rules, bank, "seen", query, trigger={"fact_types": ["observation"]})
    assert (await get(rules, bank, "seen"))["content"] == "[extractive]\n\nTea is liked."
    groups = [{"not": {"tags": ["ann"]}}]
    await made(rules, bank, "groups", query, tags=["ann"], trigger={"tag_groups": groups})
    assert "Ann" not in (await get(rules, bank, "groups"))["content"]
    await rules.import_memories(bank, {"key": "5", "text": "Bo likes coffee.", "tags": ["bo"]})
    stale = {
        item["id"]: item["is_stale"]
        for item in (await ask(rules, "GET", f"{bank}/mental-models"))["items"]
    }
    assert stale == {"ann": False, "any": False, "seen": False, "groups": True}
    for query_string, names in (
        ("tags=ann", ["groups", "any", "ann"]),
        ("tags=bo", []),
        ("limit=1&offset=1", ["seen"]),
    ):
        found = await ask(rules, "GET", f"{bank}/mental-models?{query_string}")
        assert [item["id"] for item in found["items"]] == names


async def test_a_memory_that_leaves_the_scope(rules: Live) -> None:
    bank = "leaving"
    for i, text in enumerate(("Ann likes tea.", "Ann likes rice.")):
        item = {"content": text, "document_id": f"d{i}", "tags": ["ann"]}
        await ask(rules, "POST", f"{bank}/memories", json={"items": [item]})
    trigger = {"mode": "delta"}
    await made(rules, bank, "ann", "What does Ann like?", tags=["ann"], trigger=trigger)
    await ask(rules, "PATCH", f"{bank}/documents/d1", json={"tags": ["bo"]})
    assert (await get(rules, bank, "ann"))["is_stale"]
    await refreshed(rules, bank, "ann")
    found = await get(rules, bank, "ann")
    assert ("rice" in found["content"], found["is_stale"]) == (False, False)


async def test_dry_run_writes_nothing(rules: Live) -> None:
    bank = "dry"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes green tea."})
    await made(rules, bank, "tea", "What tea does Ann like?", trigger={"mode": "delta"})
    await rules.import_memories(bank, {"key": "2", "text": "Ann likes black tea."})
    before = await get(rules, bank, "tea")
    shown = await ask(rules, "POST", f"{bank}/mental-models/tea/dry-run-refresh")
    assert (shown["outcome"], shown["would_persist"]) == ("content_written", True)
    assert shown["preview_content"] == f"{before['content']}\n\nAnn likes black tea."
    assert "+Ann likes black tea." in shown["diff"]
    assert shown["facts"]["used"] == {"world": 1}
    assert len(shown["delta_operations"]["applied"]) == 1
    assert shown["scope"]["tags_match"] == "any"
    assert shown["window"]["created_after"] == before["last_memory_seen_at"]
    assert await get(rules, bank, "tea") == before
    assert await ask(rules, "GET", f"{bank}/mental-models/tea/history") == []


async def test_refreshes_join(rules: Live) -> None:
    """One that waits is joined; while one runs, another may wait."""
    bank = "joined"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes tea."})
    await made(rules, bank, "tea", "What tea does Ann like?")
    asked = [ask(rules, "POST", f"{bank}/mental-models/tea/refresh") for _ in range(10)]
    operations = {one["operation_id"] for one in await asyncio.gather(*asked)}
    for one in operations:
        assert (await ended(rules, bank, one))["status"] == "completed"
    assert len(operations) < 10


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "Tea"},
        {"id": "tea time"},
        {"id": "-tea"},
        {"id": "té"},
        {"id": ""},
        {"name": " "},
        {"name": "x" * 1025},
        {"source_query": ""},
        {"source_query": "x" * 20_001},
        {"max_tokens": 255},
        {"max_tokens": 8193},
        {"tags": [1]},
        {"trigger": {"mode": "both"}},
        {"trigger": {"refresh_cron": "every day"}},
        {"trigger": {"refresh_cron": "0 0 31 2 *"}},
        {"trigger": {"refresh_cron": "* * * * * *"}},
        {"trigger": {"full_refresh_cron": "61 * * * *"}},
        {"trigger": {"refresh_cron": "0 * * * *", "refresh_after_consolidation": True}},
        {"trigger": {"fact_types": []}},
        {"trigger": {"fact_types": ["opinion"]}},
        {"trigger": {"tag_groups": []}},
        {"trigger": {"tag_groups": [{"tag": "x"}]}},
        {"trigger": {"tags_match": "some"}},
        {"trigger": {"min_refresh_interval_seconds": -1}},
        {"trigger": {"reflect_search_observations_max_tokens": 0}},
        {"trigger": {"response_schema": {"type": "string"}}},
        {"trigger": {"response_schema": {"type": "object", "properties": {"a": {}}}}},
        {"trigger": []},
    ],
    ids=lambda fields: str(fields)[:60],
)
async def test_wrong_mental_models(rules: Live, fields: dict[str, Any]) -> None:
    body = {"name": "n", "source_query": "q", **fields}
    await ask(rules, "POST", "unmade/mental-models", 422, json=body)
    await ask(rules, "GET", "unmade/mental-models", 404)


async def test_what_is_taken_and_what_is_not_there(rules: Live) -> None:
    bank = "taken"
    await made(rules, bank, "tea", "What tea does Ann like?")
    body = {"id": "tea", "name": "n", "source_query": "q"}
    await ask(rules, "POST", f"{bank}/mental-models", 409, json=body)
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/refresh"), ("POST", "/clear"), ("GET", "/history"),
        ("POST", "/dry-run-refresh"),
    ):  # fmt: skip
        await ask(rules, method, f"{bank}/mental-models/none{path}", 404)
        await ask(rules, method, f"never heard of/mental-models/tea{path}", 404)
    await ask(rules, "PATCH", f"{bank}/mental-models/none", 404, json={"name": "x"})
    await ask(rules, "PATCH", f"{bank}/mental-models/tea", 400, json={"name": None})
    await ask(rules, "POST", f"{bank}/mental-models/tea/refresh", 422, json={"mode": "delta"})
    made_up = await ask(rules, "POST", f"{bank}/mental-models", json={**body, "id": None})
    assert len(made_up["mental_model_id"]) == 36


async def test_one_kind_of_refresh_clears_the_other(rules: Live) -> None:
    bank = "kinds"
    trigger = {"refresh_cron": "0 3 * * *", "fact_types": ["world"]}
    await made(rules, bank, "tea", "What tea does Ann like?", trigger=trigger)
    url = f"{bank}/mental-models/tea"
    both = {"refresh_cron": "0 4 * * *", "refresh_after_consolidation": True}
    await ask(rules, "PATCH", url, 422, json={"trigger": both})
    found = await ask(rules, "PATCH", url, json={"trigger": {"refresh_after_consolidation": True}})
    assert found["trigger"]["refresh_cron"] is None
    assert found["trigger"]["fact_types"] == ["world"]
    found = await ask(rules, "PATCH", url, json={"trigger": {"refresh_cron": "5 5 * * *"}})
    assert not found["trigger"]["refresh_after_consolidation"]


async def test_a_bank_takes_its_models_with_it(rules: Live) -> None:
    await rules.import_memories("ends", {"key": "1", "text": "Ann likes tea."})
    await made(rules, "ends", "tea", "What tea does Ann like?")
    await ask(rules, "DELETE", "ends")
    await ask(rules, "PUT", "ends", json={})
    assert (await ask(rules, "GET", "ends/mental-models"))["total"] == 0


async def test_without_a_model(live: Live) -> None:
    """What is there can be read and changed; nothing can be written anew."""
    bank = "modelless"
    body = {"id": "tea", "name": "n", "source_query": "q"}
    refused = await ask(live, "POST", f"{bank}/mental-models", 400, json=body)
    assert "language model" in refused["detail"]
    await ask(live, "GET", f"{bank}/mental-models", 404)
