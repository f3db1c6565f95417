"""Directives: made, listed by scope, changed, ended; and which of them hold for an answer."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from retrieval.store import directives
from retrieval.store.tenants import DEFAULT_TENANT
from retrieval.types import Filters, TagLeaf, TagsMatch
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration


async def ask(live: Live, method: str, path: str, status: int = 200, **kwargs: Any) -> Any:
    answer = await live.http.request(method, f"{B}/{path}", **kwargs)
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    return answer.json()


async def made(live: Live, bank: str, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "content": f"{name}!", **fields}
    found: dict[str, Any] = await ask(live, "POST", f"{bank}/directives", json=body)
    return found


async def test_the_life_of_a_directive(live: Live) -> None:
    one = await made(live, "rules", "Be brief", priority=3, tags=["a", "a"])
    assert (one["bank_id"], one["priority"], one["is_active"]) == ("rules", 3, True)
    assert one["tags"] == ["a"]
    url = f"rules/directives/{one['id']}"
    assert await ask(live, "GET", url) == one
    changed = await ask(live, "PATCH", url, json={"is_active": False, "name": None})
    assert (changed["is_active"], changed["name"]) == (False, "Be brief")
    assert changed["updated_at"] > one["updated_at"]
    assert (await ask(live, "GET", "rules/directives"))["items"] == []
    everything = await ask(live, "GET", "rules/directives?active_only=false")
    assert [d["id"] for d in everything["items"]] == [one["id"]]
    assert await ask(live, "DELETE", url) == {"status": "deleted"}
    for method in ("GET", "DELETE"):
        await ask(live, method, url, 404)
    await ask(live, "PATCH", url, 404, json={"name": "x"})


async def test_lists(live: Live) -> None:
    bank = "ruled"
    every: dict[str, dict[str, Any]] = {
        "low": {},
        "high": {"priority": 9},
        "a": {"tags": ["a"]},
        "ab": {"tags": ["a", "b"]},
        "c": {"tags": ["c"]},
        "off": {"is_active": False},
    }
    for name, fields in every.items():
        await made(live, bank, name, **fields)

    async def names(query: str) -> list[str]:
        found = await ask(live, "GET", f"{bank}/directives?{query}")
        assert found["total"] >= len(found["items"])
        return [d["name"] for d in found["items"]]

    assert await names("") == ["high", "low", "a", "ab", "c"]
    assert await names("tags=a") == ["high", "low", "a", "ab"]
    assert await names("tags=a&tags=b&tags_match=all") == ["high", "low", "ab"]
    assert await names("tags=b&tags=a&tags_match=exact") == ["high", "low", "ab"]
    assert await names("tags=x&tags_match=exact") == ["high", "low"]
    assert await names("limit=2&offset=1") == ["low", "a"]
    assert (await ask(live, "GET", f"{bank}/directives?limit=1"))["total"] == 5
    for wrong in ("limit=0", "limit=1001", "offset=-1", "tags_match=any_strict", "active_only=x"):
        await ask(live, "GET", f"{bank}/directives?{wrong}", 422)


@pytest.mark.parametrize(
    "body",
    [
        {"content": "c"},
        {"name": " ", "content": "c"},
        {"name": "n", "content": "\n"},
        {"name": "n", "content": "x" * 20_001},
        {"name": "n", "content": "c", "priority": 2**31},
        {"name": "n", "content": "c", "priority": "high"},
        {"name": "n", "content": "c", "tags": ["x"] * 101},
        {"name": "n", "content": "c", "tags": [""]},
        {"name": "n", "content": "c", "tags": "x"},
    ],
    ids=lambda body: str(body)[:50],
)
async def test_wrong_directives(live: Live, body: dict[str, Any]) -> None:
    await ask(live, "POST", "unruled/directives", 422, json=body)
    await ask(live, "GET", "unruled/directives", 404)


async def test_nothing_to_change(live: Live) -> None:
    one = await made(live, "rules", "n")
    await ask(live, "PATCH", f"rules/directives/{one['id']}", 400, json={})
    await ask(live, "PATCH", f"rules/directives/{one['id']}", 422, json={"content": ""})
    for id in ("x", str(uuid4())):
        await ask(live, "GET", f"rules/directives/{id}", 404)


async def test_another_bank_sees_none(live: Live) -> None:
    one = await made(live, "own", "n")
    await made(live, "other", "m")
    await ask(live, "GET", f"other/directives/{one['id']}", 404)
    await ask(live, "DELETE", f"other/directives/{one['id']}", 404)
    await ask(live, "DELETE", "own")
    await ask(live, "PUT", "own", json={})
    assert (await ask(live, "GET", "own/directives?active_only=false"))["total"] == 0


SCOPES: dict[str, tuple[Filters, list[str]]] = {
    "none": (Filters(), ["all"]),
    "any": (Filters(tags=("a",)), ["all", "a", "ab"]),
    "strict": (Filters(tags=("a", "b"), tags_match=TagsMatch.ALL_STRICT), ["all", "ab"]),
    "exact": (Filters(tags=("a",), tags_match=TagsMatch.EXACT), ["all", "a"]),
    "groups": (Filters(tag_groups=(TagLeaf(("b",)),)), ["all", "ab"]),
    "elsewhere": (Filters(tags=("z",), tags_match=TagsMatch.ANY_STRICT), ["all"]),
}


@pytest.mark.parametrize("scope", sorted(SCOPES))
async def test_which_hold_for_an_answer(live: Live, scope: str) -> None:
    bank = f"scoped {scope}"
    for name, tags in {"all": [], "a": ["a"], "ab": ["a", "b"]}.items():
        await made(live, bank, name, tags=tags)
    await made(live, bank, "off", is_active=False)
    filters, names = SCOPES[scope]
    pool = live.services.pool
    found = await directives.for_reflect(pool, DEFAULT_TENANT, bank, filters)
    assert [one.name for one in found.applied] == names
    assert {one.name for one in found.applied + found.left_out} == {"all", "a", "ab"}
    every = await directives.for_reflect(pool, DEFAULT_TENANT, bank, filters, apply_all=True)
    assert ([one.name for one in every.applied], every.left_out) == (["all", "a", "ab"], ())
