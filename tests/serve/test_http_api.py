"""Every endpoint but recall, over real parts: what it answers, what it refuses, what it changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

from serve import metrics
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration
NOBODY = str(uuid4())


async def ask(live: Live, method: str, path: str, status: int = 200, **kwargs: Any) -> Any:
    answer = await live.http.request(method, path, **kwargs)
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    if status >= 400:
        assert answer.json()["detail"], "a refusal says why"
        assert "Traceback" not in answer.text
    return answer.json()


async def test_the_life_of_a_bank(live: Live) -> None:
    url = f"{B}/life"
    await ask(live, "GET", f"{url}/profile", 404)
    made = await ask(live, "PUT", url, json={"name": "Life", "disposition_empathy": 5})
    assert made["disposition"] == {"skepticism": 3, "literalism": 3, "empathy": 5}
    assert made["mission"] == made["background"] == ""
    changed = await ask(live, "PATCH", url, json={"mission": "m", "reflect_mission": "r"})
    assert (changed["name"], changed["mission"]) == ("Life", "r")
    assert await ask(live, "GET", f"{url}/profile") == changed
    await ask(live, "PUT", f"{url}/profile", json={"disposition": {"skepticism": 1}})
    background = await ask(live, "POST", f"{url}/background", json={"content": "b"})
    assert background == {"mission": "b", "background": "b"}
    listed = await ask(live, "GET", f"{B}?q=lif&limit=5")
    assert [bank["bank_id"] for bank in listed["banks"]] == ["life"]
    assert listed["total"] == 1
    gone = await ask(live, "DELETE", url)
    assert gone["success"]
    await ask(live, "DELETE", url, 404)
    await ask(live, "PATCH", url, 404, json={"name": "x"})


@pytest.mark.parametrize(
    "body",
    [
        {"disposition_empathy": 6},
        {"disposition": {"skepticism": 0}},
        {"name": 5},
        {"enable_reranking": "perhaps"},
        {"retain_chunk_size": -1},
    ],
    ids=str,
)
async def test_a_bank_that_cannot_be(live: Live, body: dict[str, Any]) -> None:
    await ask(live, "PUT", f"{B}/impossible", 422, json=body)
    await ask(live, "GET", f"{B}/impossible/profile", 404)


async def test_config(live: Live) -> None:
    url = f"{B}/configured/config"
    await ask(live, "GET", url, 404)
    await ask(live, "PUT", f"{B}/configured", json={"enable_text_search": False})
    assert (await ask(live, "GET", url))["overrides"] == {"enable_text_search": False}
    updates = {"HINDSIGHT_API_RECALL_BUDGET_FIXED_LOW": 7, "enable_text_search": None}
    found = await ask(live, "PATCH", url, json={"updates": updates})
    assert found["overrides"] == {"recall_budget_fixed_low": 7}
    assert found["config"]["recall_budget_fixed_low"] == 7
    wrong: Any
    for wrong in ({"recall_budget_min": 0}, {"port": 1}, {"enable_reranking": "no"}, {"x": 1}):
        await ask(live, "PATCH", url, 400, json={"updates": wrong})
    for wrong in ({"updates": {}}, {"updates": 1}, {}):
        await ask(live, "PATCH", url, 422, json=wrong)
    assert (await ask(live, "DELETE", url))["overrides"] == {}


async def test_retain_and_what_it_leaves(live: Live) -> None:
    url = f"{B}/kept"
    item = {
        "content": "Nils bakes rye bread.",
        "document_id": "a/b",
        "tags": "food",
        "metadata": {"n": 1},
        "entities": [{"text": "Nils"}],
        "timestamp": "2025-01-02T03:04:05Z",
    }
    kept = await ask(
        live, "POST", f"{url}/memories", json={"items": [item], "document_tags": ["kitchen"]}
    )
    assert (kept["success"], kept["items_count"], kept["async"]) == (True, 1, False)
    assert kept["usage"]["total_tokens"] == 0

    listed = await ask(live, "GET", f"{url}/memories/list?type=world&tags=food&q=RYE")
    (memory,) = listed["items"]
    assert memory["entities"] == "Nils"
    assert set(memory["tags"]) == {"food", "kitchen"}
    assert memory["metadata"] == {"n": "1"}
    single = await ask(live, "GET", f"{url}/memories/{memory['id']}")
    assert (single["type"], single["entities"]) == ("world", ["Nils"])

    tags = await ask(live, "GET", f"{url}/tags?q=f*")
    assert tags["items"] == [{"tag": "food", "count": 1}]
    (document,) = (await ask(live, "GET", f"{url}/documents"))["items"]
    assert document["memory_unit_count"] == 1
    whole = await ask(live, "GET", f"{url}/documents/{quote('a/b', safe='')}")
    assert whole["original_text"] == "Nils bakes rye bread."
    (chunk,) = (await ask(live, "GET", f"{url}/documents/a/b/chunks"))["items"]
    assert (await ask(live, "GET", f"/v1/default/chunks/{chunk['chunk_id']}")) == chunk
    (entity,) = (await ask(live, "GET", f"{url}/entities"))["items"]
    assert (await ask(live, "GET", f"{url}/entities/{entity['id']}"))["observations"] == []
    graph = await ask(live, "GET", f"{url}/entities/graph")
    assert graph["total_entities"] == 1
    stats = await ask(live, "GET", f"{url}/stats?refresh=true")
    assert (stats["total_nodes"], stats["total_documents"]) == (1, 1)
    await ask(live, "GET", f"{url}/observations/scopes")
    await ask(live, "GET", f"{url}/memories/{memory['id']}/history")

    found = await live.recall("kept", "rye bread")
    assert found["results"][0]["document_id"] == "a/b"
    assert found["results"][0]["entities"] == ["Nils"]

    edited = await ask(
        live, "PATCH", f"{url}/memories/{memory['id']}", json={"text": "Nils bakes spelt bread."}
    )
    assert edited["text"] == "Nils bakes spelt bread."
    assert (await live.recall("kept", "spelt"))["results"][0]["text"] == edited["text"]
    await ask(live, "PATCH", f"{url}/documents/a/b", json={"tags": ["new"]})
    assert (await live.recall("kept", "spelt"))["results"][0]["tags"] == ["new"]
    await ask(live, "DELETE", f"{url}/memories/{memory['id']}/observations")
    await ask(live, "DELETE", f"{url}/memories/{memory['id']}")
    assert (await live.recall("kept", "spelt"))["results"] == []
    gone = await ask(live, "DELETE", f"{url}/documents/a/b")
    assert gone["document_id"] == "a/b"
    await ask(live, "DELETE", f"{url}/observations")
    await ask(live, "DELETE", f"{url}/memories?type=experience")
    assert (await ask(live, "DELETE", f"{url}/memories"))["success"]
    await ask(live, "GET", f"{url}/profile")


async def test_retain_in_the_background(live: Live) -> None:
    url = f"{B}/later"
    operation = str(uuid4())
    body = {"items": [{"content": "Ola paints boats."}], "async": True, "operation_id": operation}
    first = await ask(live, "POST", f"{url}/memories", json=body)
    assert (first["async"], first["operation_id"]) == (True, operation)
    assert (await ask(live, "POST", f"{url}/memories", json=body))["operation_id"] == operation
    assert (await settled(live, "later", operation))["status"] == "completed"
    assert (await live.recall("later", "boats"))["results"]
    listed = await ask(live, "GET", f"{url}/operations?limit=1")
    assert listed["operations"][0]["id"] == operation
    assert "error_message" in listed["operations"][0]
    assert (await ask(live, "GET", f"{url}/operations/{NOBODY}"))["status"] == "not_found"
    await ask(live, "DELETE", f"{url}/operations/{NOBODY}", 404)
    await ask(live, "DELETE", f"{url}/operations/{operation}", 409)
    await ask(live, "POST", f"{url}/operations/{operation}/retry", 409)
    await ask(live, "DELETE", f"{url}/operations/{operation}/delete")


async def settled(live: Live, bank: str, operation: str) -> dict[str, Any]:
    for _ in range(200):
        state: dict[str, Any] = await ask(live, "GET", f"{B}/{bank}/operations/{operation}")
        if state["status"] not in ("pending", "processing"):
            break
        await asyncio.sleep(0.05)
    return state


async def test_a_document_anew(live: Live) -> None:
    url = f"{B}/anew"
    item = {
        "content": "Kit repairs clocks.",
        "document_id": "shop/1",
        "entities": [{"text": "Kit"}],
    }
    await ask(live, "POST", f"{url}/memories", json={"items": [item]})
    (before,) = (await ask(live, "GET", f"{url}/memories/list"))["items"]
    await ask(live, "PATCH", f"{url}/memories/{before['id']}", json={"text": "Kit breaks clocks."})
    queued = await ask(live, "POST", f"{url}/documents/shop/1/reprocess")
    assert (queued["success"], queued["items_count"]) == (True, 1)
    done = await settled(live, "anew", queued["operation_id"])
    assert (done["status"], done["document_id"]) == ("completed", "shop/1")
    (after,) = (await ask(live, "GET", f"{url}/memories/list"))["items"]
    assert after["id"] != before["id"]
    kept = ("text", "entities", "mentioned_at", "chunk_id")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    (found,) = (await live.recall("anew", "Who repairs clocks?"))["results"]
    assert (found["id"], found["text"]) == (after["id"], "Kit repairs clocks.")

    imported = {"key": "k", "text": "No text behind it.", "document_id": "bare"}
    await live.import_memories("anew", imported)
    refused = await ask(live, "POST", f"{url}/documents/bare/reprocess", 400)
    assert "was not kept" in refused["detail"]


async def test_one_entity_out_of_two_and_two_out_of_one(live: Live) -> None:
    url = f"{B}/names"
    await live.import_memories(
        "names",
        {"key": "a", "text": "Robert opened the mill.", "entities": ["Robert"]},
        {"key": "b", "text": "Hood keeps seven bees.", "entities": ["Hood"]},
        {"key": "c", "text": "Robert owes Wilma money.", "entities": ["Robert", "Wilma"]},
        *({"key": f"{i}", "text": f"Parcel {i} arrived.", "entities": [f"p{i}"]} for i in range(9)),
    )

    async def entities() -> dict[str, dict[str, Any]]:
        found = (await ask(live, "GET", f"{url}/entities"))["items"]
        return {entity["canonical_name"]: entity for entity in found}

    async def linked() -> list[str]:
        """What the graph arm reaches from the mill over the entity they share."""
        asked = {"budget": "high", "explain": True}
        found = (await live.recall("names", "Who opened the mill?", **asked))["results"]
        return [r["text"] for r in found if r["explain"].get("path", {}).get("via") == "Robert"]

    first = await entities()
    robert, hood = first["Robert"]["id"], first["Hood"]["id"]
    before = await ask(live, "GET", f"{url}/stats")
    merged = await ask(live, "POST", f"{url}/entities/{robert}/merge", json={"others": [hood]})
    assert (merged["id"], merged["aliases"], merged["mention_count"]) == (robert, ["hood"], 3)
    assert (await ask(live, "GET", f"{url}/entities/{hood}"))["id"] == robert
    assert {"Robert", "Wilma"} <= set(await entities()) == set(first) - {"Hood"}
    named = await ask(live, "GET", f"{url}/memories/list?entity_id={robert}")
    assert named["total"] == 3
    graph = await ask(live, "GET", f"{url}/entities/graph")
    assert graph["total_entities"] == 11
    assert "Hood keeps seven bees." in await linked()

    parted = await ask(live, "POST", f"{url}/entities/{robert}/split", json={"name": "Hood"})
    assert (parted["id"], parted["mention_count"]) == (hood, 1)
    assert set(await entities()) == set(first)
    assert "Hood keeps seven bees." not in await linked()
    after = await ask(live, "GET", f"{url}/stats")
    assert after["links_by_link_type"] == before["links_by_link_type"]
    assert after["total_nodes"] == before["total_nodes"]

    other = str(uuid4())
    merge, split = f"{url}/entities/{robert}/merge", f"{url}/entities/{robert}/split"
    for path, status, body in (
        (merge, 404, {"others": [other]}),
        (f"{url}/entities/{other}/merge", 404, {"others": [hood]}),
        (f"{B}/nowhere/entities/{robert}/merge", 404, {"others": [hood]}),
        (merge, 400, {"others": [robert]}),
        (merge, 400, {"others": ["x"]}),
        (merge, 422, {"others": []}),
        (merge, 422, {}),
        (f"{url}/entities/{other}/split", 404, {"name": "Hood"}),
        (split, 400, {"name": "Nobody"}),
        (split, 400, {"name": "Robert"}),
        (split, 400, {"name": "New", "memory_ids": [other]}),
        (split, 400, {"name": "New", "memory_ids": ["x"]}),
        (split, 422, {"name": ""}),
        (split, 422, {"memory_ids": [other]}),
    ):
        await ask(live, "POST", path, status, json=body)
    assert await ask(live, "GET", f"{url}/stats") == after


async def test_import_is_all_or_nothing(live: Live) -> None:
    good = {"key": "a", "text": "The lamp is green.", "entities": ["lamp"]}
    done = await live.import_memories("imported", good)
    assert done["imported"] == 1
    UUID(done["ids"]["a"])
    again = await live.import_memories("imported", {**good, "text": "The lamp is blue."})
    texts = [r["text"] for r in (await live.recall("imported", "lamp"))["results"]]
    assert texts == ["The lamp is blue."]
    assert set(again["ids"]) == {"a"}
    for wrong, named in (
        ({"key": "b"}, "text"),
        ({"key": "b", "text": "t", "type": "wish"}, "type"),
        ({"key": "b", "text": "t", "occurred_start": "soon"}, "occurred_start"),
        ({"key": "b", "text": "t", "links": [{"to": "zzz", "type": "causes"}]}, "links"),
        ({"key": "b", "text": "t", "colour": 1}, "colour"),
    ):
        new = {"key": "new", "text": "Never stored."}
        refused = await ask(
            live, "POST", f"{B}/imported/memories/import", 400, json={"memories": [new, wrong]}
        )
        assert named in refused["detail"]
        assert "memories[1]" in refused["detail"]
    assert (await ask(live, "GET", f"{B}/imported/memories/list"))["total"] == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("POST", "/memories", 422, {}),
        ("POST", "/memories", 422, {"items": [{"content": " "}]}),
        ("POST", "/memories", 422, {"items": [{"content": "c", "timestamp": "soon"}]}),
        ("POST", "/memories", 400, {"items": [{"content": "c", "update_mode": "append"}]}),
        ("POST", "/memories", 422, {"items": [{"content": "c", "metadata": {"a": {}}}]}),
        ("POST", "/memories", 422, {"items": "c"}),
        ("POST", "/memories/import", 422, {"memories": [1]}),
        ("POST", "/memories/import", 422, {"memories": {}}),
        ("GET", "/memories/list?type=wish", 400, None),
        ("GET", "/memories/list?state=gone", 400, None),
        ("GET", "/memories/list?consolidation_state=x", 400, None),
        ("GET", "/memories/list?entity_id=x", 400, None),
        ("GET", "/memories/list?time_field=x", 400, None),
        ("GET", "/memories/list?start_date=x", 400, None),
        ("GET", "/memories/list?limit=-1", 422, None),
        ("GET", "/memories/list?offset=99999999999999999999", 422, None),
        ("GET", "/memories/list?q=%00", 400, None),
        ("GET", "/memories/x", 400, None),
        ("GET", f"/memories/{NOBODY}", 404, None),
        ("PATCH", f"/memories/{NOBODY}", 404, {"text": "t"}),
        ("PATCH", f"/memories/{NOBODY}", 422, {}),
        ("PATCH", f"/memories/{NOBODY}", 422, {"fact_type": "observation"}),
        ("DELETE", f"/memories/{NOBODY}", 404, None),
        ("DELETE", "/memories/x", 400, None),
        ("DELETE", "/memories?type=wish", 400, None),
        ("GET", "/documents/nothing", 404, None),
        ("PATCH", "/documents/nothing", 404, {"tags": []}),
        ("PATCH", "/documents/nothing", 422, {}),
        ("DELETE", "/documents/nothing", 404, None),
        ("GET", "/documents/nothing/chunks", 404, None),
        ("POST", "/documents/nothing/reprocess", 404, None),
        ("GET", "/documents/nothing/chunks?limit=1001", 422, None),
        ("GET", "/documents?time_field=mentioned_at", 400, None),
        ("GET", "/documents?start_date=x", 400, None),
        ("GET", "/documents?end_date=", 400, None),
        ("PATCH", "/documents/nothing", 404, {"observation_scopes": "shared"}),
        ("PATCH", "/documents/nothing", 422, {"observation_scopes": "per_day"}),
        ("PATCH", "/documents/nothing", 422, {"tags": None, "observation_scopes": None}),
        ("GET", "/entities/x", 400, None),
        ("GET", f"/entities/{NOBODY}?tags=a", 404, None),
        ("GET", f"/entities/{NOBODY}", 404, None),
        ("POST", f"/entities/{NOBODY}/regenerate", 410, None),
        ("GET", "/operations/x", 400, None),
        ("GET", "/operations?limit=101", 422, None),
        ("POST", "/reflect", 400, {"query": "q"}),
        ("PUT", "/profile", 422, {}),
    ],
    ids=str,
)
async def test_bad_input(
    live: Live, method: str, path: str, status: int, body: dict[str, Any] | None
) -> None:
    await live.import_memories("bad", {"key": "k", "text": "Stays as it is."})
    before = await ask(live, "GET", f"{B}/bad/stats?refresh=true")
    await ask(live, method, f"{B}/bad{path}", status, json=body)
    after = await ask(live, "GET", f"{B}/bad/stats?refresh=true")
    assert {**before, "last_memory_write_at": 0} == {**after, "last_memory_write_at": 0}


@pytest.mark.parametrize("path", ["/entities", f"/entities/{NOBODY}", "/entities/graph"])
@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("tags=a&tags_match=some", "tags_match", "any"),
        ("tags=a&tag_groups=[]", "tag_groups", "not both"),
        ("tag_groups=a", "tag_groups", "not JSON"),
        ('tag_groups={"tags":["a"]}', "tag_groups", "list"),
        ('tag_groups=[{"tags":"a"}]', "tag_groups", "list of texts"),
        ('tag_groups=[{"or":[]}]', "tag_groups", "non-empty"),
        ('tag_groups=[{"tags":["\\ud800"]}]', "tag_groups", "not JSON"),
    ],
)
async def test_tag_filters_that_cannot_be(
    live: Live, path: str, query: str, field: str, reason: str
) -> None:
    refused = await ask(live, "GET", f"{B}/sample{path}?{quote(query, safe='=&')}", 422)
    (problem,) = refused["detail"]
    assert problem["loc"] == ["query", field]
    assert reason in problem["msg"]


async def test_a_tag_with_nul_is_one_without(live: Live) -> None:
    await live.import_memories(
        "nul", {"key": "k", "text": "t", "tags": ["ab"], "entities": ["Ann"]}
    )
    query = quote('[{"tags":["a\\u0000b"]}]')
    assert (await ask(live, "GET", f"{B}/nul/entities?tag_groups={query}"))["total"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/memories/list",
        f"/memories/{NOBODY}",
        "/tags",
        "/documents",
        "/documents/d",
        "/entities",
        "/entities/graph",
        "/operations",
        "/stats",
        "/config",
        "/profile",
        "/observations/scopes",
    ],
)
async def test_reading_an_unknown_bank_makes_none(live: Live, path: str) -> None:
    refused = await ask(live, "GET", f"{B}/unheard-of{path}", 404)
    assert "unheard-of" in refused["detail"]
    listed = await ask(live, "GET", f"{B}?q=unheard-of")
    assert listed["total"] == 0


async def test_the_service(live: Live) -> None:
    health = await ask(live, "GET", "/health")
    assert health["status"] == "healthy"
    assert (await ask(live, "GET", "/health/ready"))["status"] == "healthy"
    alive = await ask(live, "GET", "/health/live")
    assert alive["status"] == "alive"
    assert alive["uptime_seconds"] > 0
    version = await ask(live, "GET", "/version")
    assert version["api_version"] == "0.9.1"
    assert len(version["features"]) == 11
    await live.recall("sample", "flood")
    scrape = (await live.http.get("/metrics")).text
    assert 'fourfold_requests_total{operation="recall",outcome="ok"}' in scrape
    assert "fourfold_recall_stage_seconds_bucket" in scrape
    assert metrics.registry.get_sample_value("fourfold_db_acquire_seconds_count")


async def test_a_body_that_is_too_large(live: Live) -> None:
    before = live.api.state.bodies
    try:
        live.api.state.bodies = replace(before, large_max=100)
        url = f"{B}/large/memories"
        await ask(live, "POST", url, 413, json={"items": [{"content": "x" * 200}]})
    finally:
        live.api.state.bodies = before
    await ask(live, "GET", f"{B}/large/profile", 404)


async def test_a_config_has_a_largest_size(live: Live) -> None:
    url = f"{B}/labelled"
    await ask(live, "PUT", url, json={})
    labels = {"entity_labels": [{"key": "a", "description": "x" * 200_000}]}
    assert (await live.http.patch(f"{url}/config", json={"updates": labels})).status_code == 200
    more = {"updates": {"memory_defense": {"a": "x" * 100_000}}}
    answer = await live.http.patch(f"{url}/config", json=more)
    assert answer.status_code == 413
    assert "262144 bytes" in answer.json()["detail"]
    assert set((await live.http.get(f"{url}/config")).json()["overrides"]) == {"entity_labels"}
