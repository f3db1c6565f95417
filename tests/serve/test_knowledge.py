"""The knowledge base through the application: tree, folders, pages, search, export."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.serve.conftest import Live
from tests.serve.test_mental_models import ask, ended, get, rules

__all__ = ["rules"]
pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def folder(live: Live, bank: str, name: str, parent: str | None = None) -> str:
    body = {"name": name, "parent_id": parent}
    made = await ask(live, "POST", f"{bank}/knowledge-base/folders", 201, json=body)
    assert (made["kind"], made["name"], made["parent_id"]) == ("folder", name, parent)
    found: str = made["id"]
    assert found.startswith("kf-")
    return found


async def page(live: Live, bank: str, name: str, query: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "source_query": query, **fields}
    made: dict[str, Any] = await ask(live, "POST", f"{bank}/knowledge-base/pages", 201, json=body)
    assert made["page_id"].startswith("kp-")
    done = await ended(live, bank, made["operation_id"])
    assert done["status"] == "completed", done
    return made


async def names(live: Live, bank: str, **params: Any) -> Any:
    """The tree as nested names."""
    found = await ask(live, "GET", f"{bank}/knowledge-base/tree", params=params)

    def shown(nodes: list[dict[str, Any]]) -> list[Any]:
        return [{n["name"]: shown(n["children"])} if n["children"] else n["name"] for n in nodes]

    return shown(found["roots"])


WORLD = {"fact_types": ["world"]}


async def test_the_life_of_a_page(rules: Live) -> None:
    bank = "kb"
    await rules.import_memories(
        bank,
        {"key": "1", "text": "Ann likes green tea.", "type": "observation"},
        {"key": "2", "text": "Bo likes coffee."},
    )
    food = await folder(rules, bank, "Food")
    drinks = await folder(rules, bank, "Drinks", food)
    made = await page(
        rules,
        bank,
        "Tea",
        "What tea does Ann like?",
        parent_id=drinks,
        tags=["type:note", "ann"],
        trigger={"tags_match": "any"},
    )
    assert await names(rules, bank) == [{"Food": [{"Drinks": ["Tea"]}]}]
    model = await get(rules, bank, made["mental_model_id"])
    assert model["is_knowledge_page"]
    assert (model["max_tokens"], model["trigger"]["mode"]) == (4096, "delta")
    assert model["trigger"]["fact_types"] == ["observation"]
    assert model["trigger"]["exclude_mental_models"]
    assert model["trigger"]["refresh_after_consolidation"]
    url = f"{bank}/knowledge-base/pages/{made['page_id']}"
    found = await ask(rules, "GET", url)
    assert (found["type"], found["name"]) == ("note", "Tea")
    assert found["body"] == "[extractive]\n\nAnn likes green tea."
    _, front, text = found["markdown"].split("---\n")
    assert yaml.safe_load(front)["title"] == "Tea"
    assert text.strip() == found["body"]
    listed = await ask(rules, "GET", f"{bank}/mental-models?exclude_knowledge_pages=true")
    assert listed["total"] == 0

    node = f"{bank}/knowledge-base/nodes/{made['page_id']}"
    moved = await ask(rules, "PATCH", node, json={"parent_id": None, "name": "Ann's tea"})
    assert (moved["parent_id"], moved["name"]) == (None, "Ann's tea")
    assert (await get(rules, bank, made["mental_model_id"]))["name"] == "Ann's tea"
    changed = await ask(
        rules, "PATCH", node, json={"trigger": {"refresh_cron": "0 3 * * *"}, "max_tokens": 512}
    )
    assert changed["trigger"]["refresh_cron"] == "0 3 * * *"
    assert not changed["trigger"]["refresh_after_consolidation"]
    before = (await ask(rules, "GET", f"{bank}/operations"))["total"]
    await ask(rules, "PATCH", node, json={"source_query": "What does Ann drink?"})
    assert (await ask(rules, "GET", f"{bank}/operations"))["total"] == before + 1

    files = (await ask(rules, "GET", f"{bank}/knowledge-base/export"))["files"]
    paths = {file["path"]: file["content"] for file in files}
    assert paths.keys() == {"index.md", f"{made['page_id']}.md", f"{made['page_id']}.log.md"}
    assert f"[Ann's tea]({made['page_id']}.md)" in paths["index.md"]

    await ask(rules, "PATCH", node, json={"parent_id": drinks})
    gone = await ask(rules, "DELETE", f"{bank}/knowledge-base/nodes/{food}")
    assert gone == {"status": "deleted"}
    assert await names(rules, bank) == []
    await ask(rules, "GET", url, 404)
    await ask(rules, "GET", f"{bank}/mental-models/{made['mental_model_id']}", 404)


async def test_names_and_places(rules: Live) -> None:
    bank = "places"
    a = await folder(rules, bank, "Alpha")
    b = await folder(rules, bank, "Beta", a)
    url = f"{bank}/knowledge-base"
    await ask(rules, "POST", f"{url}/folders", 409, json={"name": "ALPHA"})
    await folder(rules, bank, "Alpha", b)  # the name is free in there
    made = await page(rules, bank, "Page", "q", parent_id=b)
    taken = {"name": "page", "source_query": "q", "parent_id": b}
    await ask(rules, "POST", f"{url}/pages", 409, json=taken)
    assert (await ask(rules, "GET", f"{bank}/mental-models"))["total"] == 1
    for parent in ("kf-none", made["page_id"]):
        body = {"name": "x", "parent_id": parent}
        await ask(rules, "POST", f"{url}/folders", 400, json=body)
        await ask(rules, "POST", f"{url}/pages", 400, json={**body, "source_query": "q"})
        await ask(rules, "PATCH", f"{url}/nodes/{a}", 400, json={"parent_id": parent})
    for parent in (a, b):
        await ask(rules, "PATCH", f"{url}/nodes/{a}", 400, json={"parent_id": parent})
    await ask(rules, "PATCH", f"{url}/nodes/{a}", 400, json={})
    await ask(rules, "PATCH", f"{url}/nodes/{a}", 400, json={"source_query": "q"})
    await ask(rules, "PATCH", f"{url}/nodes/{b}", 200, json={"parent_id": None})
    await ask(rules, "PATCH", f"{url}/nodes/{b}", 409, json={"name": "alpha"})
    await ask(rules, "PATCH", f"{url}/nodes/none", 404, json={"name": "x"})
    await ask(rules, "DELETE", f"{url}/nodes/none", 404)
    await ask(rules, "GET", f"{url}/pages/{a}", 404)
    assert await names(rules, bank) == ["Alpha", {"Beta": ["Alpha", "Page"]}]
    for wrong in ({"name": ""}, {"name": "x" * 1025}, {"name": "x", "parent_id": 5}):
        await ask(rules, "POST", f"{url}/folders", 422, json=wrong)


async def test_the_depth_of_folders(rules: Live) -> None:
    parent = None
    for i in range(32):
        parent = await folder(rules, "deep", f"f{i}", parent)
    body = {"name": "too deep", "parent_id": parent}
    await ask(rules, "POST", "deep/knowledge-base/folders", 400, json=body)


async def test_a_tree_by_tags(rules: Live) -> None:
    bank = "tagged tree"
    a, b = await folder(rules, bank, "A"), await folder(rules, bank, "B")
    await page(rules, bank, "ann", "q", parent_id=a, tags=["ann"])
    await page(rules, bank, "bo", "q", parent_id=b, tags=["bo"])
    await page(rules, bank, "all", "q")
    assert await names(rules, bank) == [{"A": ["ann"]}, {"B": ["bo"]}, "all"]
    assert await names(rules, bank, tags="ann") == [{"A": ["ann"]}, "all"]
    strict = {"tags": "ann", "tags_match": "any_strict"}
    assert await names(rules, bank, **strict) == [{"A": ["ann"]}]
    groups = json.dumps([{"not": {"tags": ["ann"]}}])
    assert await names(rules, bank, tag_groups=groups) == [{"B": ["bo"]}, "all"]
    url = f"{bank}/knowledge-base/tree"
    await ask(rules, "GET", url, 422, params={"tag_groups": "["})
    await ask(rules, "GET", url, 422, params={"tag_groups": groups, "tags": "x"})


async def test_search(rules: Live) -> None:
    bank = "found"
    await rules.import_memories(
        bank,
        {"key": "1", "text": "The quarry is flooded in spring.", "tags": ["q"]},
        {"key": "2", "text": "Ann repairs old clocks.", "tags": ["c"]},
        {"key": "3", "text": "The bakery sells rye bread.", "tags": ["b"]},
    )
    made = {}
    for name, tag, query in (
        ("Quarry", "q", "What happens at the quarry?"),
        ("Clocks", "c", "What does Ann do?"),
        ("Bakery", "b", "What does the bakery sell?"),
    ):
        made[name] = await page(rules, bank, name, query, tags=[tag], trigger=WORLD)
    await page(rules, bank, "Nothing", "Who is the mayor?", tags=["none"], trigger=WORLD)
    url = f"{bank}/knowledge-base/search"

    async def hits(**params: Any) -> list[dict[str, Any]]:
        found = await ask(rules, "GET", url, params=params)
        assert found["total"] == len(found["results"])
        results: list[dict[str, Any]] = found["results"]
        return results

    best = (await hits(q="quarry"))[0]
    assert (best["name"], best["score"]) == ("Quarry", 1.0)
    assert "flooded" in best["snippet"]
    assert best["id"] == made["Quarry"]["page_id"]
    assert (await hits(q="wristwatches and their repair"))[0]["name"] == "Clocks"  # no word of it
    assert (await hits(q="mayor"))[0]["snippet"] == "No content yet."
    assert len(await hits(q="What does Ann the bakery quarry", limit=1)) == 1
    only = await hits(q="quarry clocks bakery", tags="b", tags_match="any_strict")
    assert [one["name"] for one in only] == ["Bakery"]
    assert all(0 < one["score"] <= 1 for one in await hits(q="bread clocks quarry"))
    node = f"{bank}/knowledge-base/nodes/{made['Bakery']['page_id']}"
    await ask(rules, "PATCH", node, json={"name": "Zeppelins"})
    assert (await hits(q="zeppelins"))[0]["name"] == "Zeppelins"
    for wrong in ({"q": ""}, {}, {"q": "x", "limit": 0}, {"q": "x", "limit": 51}):
        await ask(rules, "GET", url, 422, params=wrong)


async def test_how_pages_of_a_bank_are_refreshed(rules: Live) -> None:
    bank = "page default"
    await ask(rules, "PUT", bank, json={})
    updates = {"knowledge_page_default_trigger": {"mode": "full", "refresh_cron": "0 4 * * *"}}
    await ask(rules, "PATCH", f"{bank}/config", json={"updates": updates})
    made = await page(rules, bank, "a", "q", trigger={"budget": "high"})
    trigger = (await get(rules, bank, made["mental_model_id"]))["trigger"]
    assert (trigger["mode"], trigger["refresh_cron"]) == ("full", "0 4 * * *")
    assert not trigger["refresh_after_consolidation"]
    assert (trigger["budget"], trigger["fact_types"]) == ("high", ["observation"])
    updates = {"knowledge_page_default_trigger": {"refresh_cron": "never"}}
    await ask(rules, "PATCH", f"{bank}/config", json={"updates": updates})
    body = {"name": "b", "source_query": "q"}
    refused = await ask(rules, "POST", f"{bank}/knowledge-base/pages", 400, json=body)
    assert "knowledge_page_default_trigger" in refused["detail"]


async def test_without_a_model(live: Live) -> None:
    bank = "modelless pages"
    folder_id = await folder(live, bank, "Kept")
    body = {"name": "n", "source_query": "q", "parent_id": folder_id}
    refused = await ask(live, "POST", f"{bank}/knowledge-base/pages", 400, json=body)
    assert "language model" in refused["detail"]
    assert await names(live, bank) == ["Kept"]
    assert (await ask(live, "GET", f"{bank}/knowledge-base/search?q=x"))["results"] == []
    await ask(live, "PATCH", f"{bank}/knowledge-base/nodes/{folder_id}", json={"name": "Renamed"})
    files = (await ask(live, "GET", f"{bank}/knowledge-base/export"))["files"]
    assert [file["path"] for file in files] == ["index.md"]
    assert "- Renamed" in files[0]["content"]
