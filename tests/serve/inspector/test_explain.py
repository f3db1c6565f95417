"""An explained recall: the same answer, parts that add up, the right gate, and nothing that the
filters of the recall hide."""

from __future__ import annotations

import json
from math import exp
from typing import Any
from uuid import uuid4

import pytest

from serve.local import sample
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration

BANK = "explained"
MEMORIES: list[dict[str, Any]] = [
    {"key": "kiln", "text": "Ada fired the blue kiln in the harbour studio.", "tags": ["studio"],
     "occurred_start": "2024-05-02", "metadata": {"source": "mail"}},
    {"key": "kiln2", "text": "The blue kiln of the harbour studio cracked in May.",
     "tags": ["studio"], "occurred_start": "2024-05-20", "mentioned_at": "2024-05-21"},
    {"key": "secret", "text": "The blue kiln was insured by Zebulon for a secret sum.",
     "tags": ["secret"], "entities": ["Zebulon"], "mentioned_at": "2024-09-01"},
    {"key": "own", "text": "I glazed four bowls beside the blue kiln.", "type": "experience",
     "tags": ["studio"]},
    {"key": "far", "text": "Trains to the north leave at seven.", "tags": ["studio"]},
]  # fmt: skip


async def explained(live: Live, bank: str, query: str, **body: Any) -> dict[str, Any]:
    url = f"{B}/{bank}/memories/recall/explain"
    answer = await live.http.post(url, json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def made(live: Live) -> dict[str, str]:
    done = await live.import_memories(BANK, *MEMORIES)
    ids: dict[str, str] = done["ids"]
    return ids


async def why(live: Live, id: str, query: str = "blue kiln", **body: Any) -> dict[str, Any]:
    found = await explained(live, BANK, query, why=[id], check=True, **body)
    (one,) = found["why"]
    return dict(one)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"budget": "low", "max_tokens": 200, "limit": 4},
        {"types": ["world", "observation"], "prefer_observations": True},
        {"tags": ["flood"], "tags_match": "any_strict", "dedupe": 0.9},
        {"query_timestamp": "2025-01-15", "temporal_mode": "filter", "include": {"chunks": {}}},
    ],
    ids=lambda body: "-".join(body) or "plain",
)
async def test_the_answer_is_what_the_recall_says(live: Live, body: dict[str, Any]) -> None:
    query = (
        "What happened at the mill in October 2024?"
        if "temporal_mode" in body
        else (sample.QUESTION)
    )
    body = {"query_timestamp": "2025-01-15T12:00:00Z", **body}
    found = await explained(live, sample.BANK, query, **body)
    assert found["answer"] == await live.recall(sample.BANK, query, **body)
    assert found["answer"]["results"]


async def test_parts_add_up(live: Live) -> None:
    settings = {"recall_strategy_boosts": "graph:high", "enable_reranking": True}
    for query, tried in (
        (sample.QUESTION, {}),
        ("Who repaired the tower clock in 2024?", settings),
        ("What happened in October 2024?", {"fusion": "convex"}),
    ):
        found = await explained(live, sample.BANK, query, settings=tried)
        assert len(found["ranked"]) > 20
        for row in found["ranked"]:
            assert sum(row["steps"].values()) == pytest.approx(row["final"], abs=1e-9)
            assert sum(row["parts"].values()) == pytest.approx(row["score"], abs=1e-9)
        finals = [row["final"] for row in found["ranked"]]
        assert finals == sorted(finals, reverse=True)
        best = max(row["score"] for row in found["ranked"])
        assert best == pytest.approx(found["ranked"][0]["score"], abs=30)
        boosted = [row for row in found["ranked"] if "boosts" in row["steps"]]
        assert bool(boosted) == ("recall_strategy_boosts" in tried)


async def test_the_fused_score_is_made_of_its_parts(fused: Live) -> None:
    found = await explained(fused, sample.BANK, sample.QUESTION)
    assert found["formula"]["ordered_by"] == "fused"
    for row in found["ranked"]:
        assert exp(row["score"]) == pytest.approx(row["base"], rel=1e-6, abs=1e-12)


async def test_a_chain_of_links_is_told_with_both_hops(live: Live) -> None:
    found = await explained(live, sample.BANK, sample.QUESTION)
    texts = [memory["text"] for memory in found["memories"]]
    (behind,) = (i for i, text in enumerate(texts) if "lorries could no longer reach" in text)
    paths = {path["m"]: path for path in found["paths"]}
    assert paths[behind]["hop"] == 2
    assert paths[paths[behind]["from"]]["hop"] == 1
    assert paths[behind]["link"] == "causal"


async def test_time_words_are_placed(live: Live) -> None:
    question = "Ωmega: what was repaired in October 2024?"
    found = await explained(live, sample.BANK, question)
    (word,) = found["time"]["found"]
    assert question[word["start"] : word["end"]] == word["text"]
    assert word["used"]
    assert found["time"]["window"]["start"].startswith("2024-10-01")
    assert found["time"]["window"]["end"].startswith("2024-10-31")
    none = (await explained(live, sample.BANK, "How long ago was the flood in 2024?"))["time"]
    assert none["window"] is None
    assert "length" in none["why_none"]


async def test_spans_lie_in_their_parents(live: Live) -> None:
    found = await explained(live, sample.BANK, sample.QUESTION)
    by_name = {span["name"]: span for span in found["spans"]}
    assert by_name["admission"]["start"] == 0
    for span in found["spans"]:
        if span["parent"] is None:
            continue
        parent = by_name[span["parent"]]
        assert span["start"] >= parent["start"] - 1e-3
        assert span["start"] + span["seconds"] <= parent["start"] + parent["seconds"] + 1e-3


class TestWhyNot:
    async def test_served(self, live: Live) -> None:
        ids = await made(live)
        found = await why(live, ids["kiln"])
        assert (found["verdict"], found["stopped_at"]) == ("served", None)
        assert found["rank"] >= 1
        assert all(gate["pass"] for gate in found["gates"])

    @pytest.mark.parametrize(
        ("key", "body", "gate"),
        [
            ("own", {"types": ["world"]}, "types"),
            ("secret", {"tags": ["studio"], "tags_match": "any_strict"}, "tags"),
            ("kiln2", {"metadata_filter": {"source": "mail"}}, "metadata"),
            ("secret", {"as_of": "2024-06-01"}, "as_of"),
            (
                "secret",
                {
                    "temporal_window": {"start": "2024-05-01", "end": "2024-05-31"},
                    "temporal_mode": "filter",
                },
                "window",
            ),
            ("kiln", {"limit": 1}, "limit"),
            ("kiln2", {"min_scores": {"final": 0.999}}, "floors"),
            ("far", {"max_tokens": 25}, None),
        ],
    )
    async def test_the_right_gate_and_a_change_that_helps(
        self, live: Live, key: str, body: dict[str, Any], gate: str | None
    ) -> None:
        ids = await made(live)
        candidates = [ids[key]] if gate != "limit" else [ids["kiln"], ids["kiln2"], ids["own"]]
        found = [await why(live, id, **body) for id in candidates]
        one = next(each for each in found if each["verdict"] != "served")
        if gate is not None:
            assert one["stopped_at"] == gate
        assert [g["gate"] for g in one["gates"] if not g["pass"]] == [one["stopped_at"]]
        (need, *_) = one["would_need"]
        assert need["checked"]
        if need["then"] == "served":
            asked = {**body, **need["change"]}
            if need["change"].get("tags", 0) is None:
                asked.pop("tags")
            answer = await live.recall(BANK, "blue kiln", **asked)
            served = [result["id"] for result in answer["results"]]
            assert served.index(one["id"]) + 1 == need["rank"]
        else:  # another gate behind this one is named
            assert need["then"] in {"tokens", "arms", "limit", "floors"}

    async def test_left_out_by_name(self, live: Live) -> None:
        ids = await made(live)
        found = await why(live, ids["kiln"], exclude_ids=[ids["kiln"]])
        assert found["stopped_at"] == "excluded"
        assert found["would_need"][0]["then"] == "served"

    async def test_tokens(self, live: Live) -> None:
        found = await explained(live, sample.BANK, sample.QUESTION, max_tokens=60)
        cut = next(left for left in found["left"] if left["at"] == "tokens")
        id = found["memories"][cut["m"]]["id"]
        again = await explained(
            live, sample.BANK, sample.QUESTION, max_tokens=60, why=[id], check=True
        )
        (one,) = again["why"]
        assert one["stopped_at"] == "tokens"
        need = one["would_need"][0]
        assert (need["then"], need["checked"]) == ("served", True)
        assert need["change"]["max_tokens"] >= 60 + cut["needs"] - cut["room"]

    async def test_below_the_floor_of_an_arm(self, live: Live) -> None:
        ids = await made(live)
        tried = {"enable_graph_retrieval": False}
        found = await why(live, ids["far"], min_scores={"semantic": 0.9}, settings=tried)
        assert (found["verdict"], found["stopped_at"]) == ("not_listed", "arms")
        semantic = found["arms"]["semantic"]
        assert semantic["score"] < semantic["floor"] == 0.9
        assert {"then": "served", "checked": True}.items() <= found["would_need"][0].items()

    async def test_beyond_the_limit_of_the_arms(self, live: Live) -> None:
        found = await explained(live, sample.BANK, "mill", settings={"recall_budget_fixed_low": 1,
                                "enable_graph_retrieval": False}, budget="low")  # fmt: skip
        whole = await explained(live, sample.BANK, "mill")
        listed = {found["memories"][row[0]]["id"] for row in found["fused"]}
        lost = next(
            m["id"] for m in whole["memories"] if m["id"] not in listed and m["type"] == "world"
        )
        (one,) = (
            await explained(
                live,
                sample.BANK,
                "mill",
                why=[lost],
                check=True,
                budget="low",
                settings={"recall_budget_fixed_low": 1, "enable_graph_retrieval": False},
            )
        )["why"]
        assert one["stopped_at"] == "arms"
        assert one["arms"]["semantic"]["rank"] > one["arms"]["semantic"]["limit"] == 1
        assert one["would_need"][0]["change"] == {"budget": "mid"}
        assert one["would_need"][0]["then"] == "served"

    async def test_invalidated_and_unknown(self, live: Live) -> None:
        done = await live.import_memories("explained-more", {"key": "g", "text": "A gone kiln."},
                                          {"key": "s", "text": "A kiln that stays."})  # fmt: skip
        gone = done["ids"]["g"]
        url = f"{B}/explained-more/memories/{gone}"
        patched = await live.http.patch(url, json={"state": "invalidated", "reason": "wrong"})
        assert patched.status_code == 200, patched.text
        ids = await made(live)
        found = await explained(
            live, "explained-more", "kiln", why=[gone, str(uuid4()), ids["kiln"]]
        )
        assert [one["verdict"] for one in found["why"]] == ["invalidated", "unknown", "unknown"]


class TestWhatIsHidden:
    async def test_nothing_of_it_is_told(self, live: Live) -> None:
        ids = await made(live)
        found = await explained(
            live, BANK, "Who is Zebulon of the blue kiln?", tags=["studio"],
            tags_match="any_strict", why=[ids["secret"]], check=False,
        )  # fmt: skip
        told = json.dumps(found)
        assert "secret" not in told
        assert "insured" not in told
        assert found["reading"]["entities"] == []
        assert found["bank"]["memories"] == 4
        assert {term["term"]: term["documents"] for term in found["reading"]["terms"]}["kiln"] == 3
        (one,) = found["why"]
        assert (one["verdict"], one["stopped_at"], one["arms"]) == ("filtered", "tags", {})
        (gate,) = (gate for gate in one["gates"] if not gate["pass"])
        assert gate == {"gate": "tags", "pass": False}

    async def test_metadata_times_and_ids_too(self, live: Live) -> None:
        ids = await made(live)
        for body in (
            {"metadata_filter": {"source": "mail"}},
            {"as_of": "2024-01-01"},
            {"exclude_ids": [ids["secret"]]},
        ):
            found = await explained(live, BANK, "Zebulon blue kiln", **body)
            assert "insured" not in json.dumps(found)


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"settings": {"bm25_k1": 2}}, "settings"),
            ({"settings": {"fusion": "magic"}}, "settings"),
            ({"settings": {"nothing": 1}}, "settings"),
            ({"why": ["no id"]}, "why"),
            ({"why": [str(uuid4())] * 21}, "why"),
            ({"lists": 5000}, "lists"),
        ],
    )
    async def test_says_what_is_wrong(self, live: Live, body: dict[str, Any], field: str) -> None:
        url = f"{B}/{sample.BANK}/memories/recall/explain"
        answer = await live.http.post(url, json={"query": "mill", **body})
        assert answer.status_code in (400, 422)
        assert field in answer.text

    async def test_no_bank(self, live: Live) -> None:
        url = f"{B}/nowhere-at-all/memories/recall/explain"
        assert (await live.http.post(url, json={"query": "mill"})).status_code == 404

    async def test_a_bank_without_memories(self, live: Live) -> None:
        await live.http.put(f"{B}/explained-empty", json={})
        found = await explained(live, "explained-empty", "mill", why=[str(uuid4())])
        assert found["answer"]["results"] == []
        assert found["why"][0]["verdict"] == "unknown"
        assert found["ranked"] == found["fused"] == found["memories"] == []


async def test_large_texts_stay_small(live: Live) -> None:
    entities = [f"Name{i}" for i in range(100)]
    await live.import_memories(
        "explained-large",
        *({"key": str(i), "text": f"kiln {i} " + "x" * 20_000, "tags": [f"t{i}"],
           "entities": entities} for i in range(60)),
    )  # fmt: skip
    found = await explained(live, "explained-large", "kiln", max_tokens=100)
    del found["answer"]
    assert len(json.dumps(found)) < 2**20
    assert all(len(memory["text"]) <= 600 and memory["cut"] for memory in found["memories"])


async def test_it_is_compressed_for_who_takes_it(live: Live) -> None:
    url = f"{B}/{sample.BANK}/memories/recall/explain"
    plain = await live.http.post(url, json={"query": "mill"}, headers={"accept-encoding": "none"})
    packed = await live.http.post(url, json={"query": "mill"}, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert [r["id"] for r in packed.json()["answer"]["results"]] == [
        r["id"] for r in plain.json()["answer"]["results"]
    ]
