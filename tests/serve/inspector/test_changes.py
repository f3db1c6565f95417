"""What would bring a memory in is true: asked again with the change, the recall says the same."""

from __future__ import annotations

from typing import Any

import pytest

from serve.local import sample
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration

AT = "2025-11-01T12:00:00Z"
ASIDE = {"enable_graph_retrieval": False}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("types", "What happened at the mill?", {"types": ["experience"]}),
    ("tags", "What happened at the mill?", {"tags": ["bakery"], "tags_match": "all_strict"}),
    ("as_of", "What happened at the mill?", {"as_of": "2023-06-01"}),
    ("window", "Who was at the mill?", {"temporal_mode": "filter",
     "temporal_window": {"start": "2024-09-01", "end": "2024-10-31"}}),
    ("metadata", "What happened at the mill?", {"metadata_filter": {"none": "such"}}),
    ("limit", sample.QUESTION, {"limit": 4}),
    ("tokens", sample.QUESTION, {"max_tokens": 150}),
    ("tokens", "Who plays the violin?", {"max_tokens": 40}),
    ("floors", sample.QUESTION, {"min_scores": {"final": 0.3}}),
    ("cap", sample.QUESTION, {"settings": {"reranker_max_candidates": 5}}),
    ("arms", "violin", {"min_scores": {"semantic": 0.4}, "settings": ASIDE}),
    ("arms", "mill", {"budget": "low", "settings": {**ASIDE, "recall_budget_fixed_low": 3,
     "recall_budget_fixed_mid": 40}}),
    ("observation", "What did the closing of the Stone Bridge prove?",
     {"prefer_observations": True}),
]  # fmt: skip


async def explained(live: Live, body: dict[str, Any]) -> dict[str, Any]:
    url = f"{B}/{sample.BANK}/memories/recall/explain"
    answer = await live.http.post(url, json={"query_timestamp": AT, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def changed(body: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The request with the change made, as the page and any client would make it."""
    new = dict(body)
    for name, value in change.items():
        if value is None:
            new.pop(name, None)
        elif isinstance(value, dict):
            new[name] = {**new.get(name, {}), **value}
        else:
            new[name] = value
    return new


@pytest.mark.parametrize(("gate", "query", "body"), CASES, ids=lambda case: str(case)[:24])
async def test_it_is_so(live: Live, gate: str, query: str, body: dict[str, Any]) -> None:
    """For memories that this gate stops: the change that is said to have been tried, made."""
    body = {"query": query, **body}
    listed = await live.http.get(f"{B}/{sample.BANK}/memories/list?limit=500")
    everything = [item["id"] for item in listed.json()["items"]]
    stopped: list[str] = []
    for start in range(0, len(everything), 20):
        part = await explained(live, {**body, "why": everything[start : start + 20], "lists": 0})
        stopped += [one["id"] for one in part["why"] if one["stopped_at"] == gate]
    assert stopped, "no memory stops here: the case shows nothing"
    served = 0
    for id in dict.fromkeys((stopped[0], stopped[len(stopped) // 2], stopped[-1])):
        (why,) = (await explained(live, {**body, "why": [id], "check": True, "lists": 0}))["why"]
        assert why["would_need"], why
        need = why["would_need"][0]
        assert need["checked"]
        again = await explained(live, {**changed(body, need["change"]), "why": [id], "lists": 0})
        (then,) = again["why"]
        ids = [result["id"] for result in again["answer"]["results"]]
        if need["then"] == "served":
            served += 1
            assert ids.index(id) + 1 == need["rank"] == then["rank"]
        else:
            assert id not in ids
            assert then["stopped_at"] == need["then"]
    assert served, "nothing was let in"
