"""What a memory server has to find, told as small stories among sixty other memories.

One system for the module, with the packaged embedding model and a real database; no cross-encoder
answers unless a test brings its own reranker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from retrieval.settings import RecallSettings
from retrieval.types import Filters, TemporalMode, Window
from tests.support.system import System, system
from tests.system import stories
from tests.system.asking import Bank, bank
from tests.system.rerankers import Scripted, overlap

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[System]:
    async with system() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def life(run: System) -> Bank:
    return await bank(run, "life", stories.LIFE, stories.HOMES, stories.distractors())


async def test_an_outage_is_found_through_a_project(run: System) -> None:
    told = await bank(run, "atlas", stories.ATLAS, stories.distractors())
    results = (await told.recall("Was Alice affected by recent issues?")).body["results"]
    place = told.named(results).index("outage")
    assert place < 5
    assert results[place]["explain"]["path"] == {
        "from": told.ids["uses"],
        "link": "subject",
        "hop": 2,
        "via": "Kubernetes",
    }


async def test_no_word_or_vector_finds_that_outage(run: System) -> None:
    told = await bank(run, "atlas-flat", stories.ATLAS, stories.distractors())
    flat = RecallSettings(enable_graph_retrieval=False)
    assert "outage" not in (await told.keys("Was Alice affected by recent issues?", flat))[:5]


async def test_a_manager_is_known_through_the_project(run: System) -> None:
    told = await bank(run, "manager", stories.MANAGER, stories.distractors())
    found = await told.keys("Is Rosalind's manager available in July?")
    assert found[:3] == ["works", "heads", "away"]


async def test_facts_of_an_account_come_from_every_session(run: System) -> None:
    told = await bank(run, "account", stories.ACCOUNT, stories.distractors())
    found = await told.keys("What should I know before calling Fennel Foods?")
    assert set(found[:3]) == {"contract", "renewal", "discount"}


@pytest.mark.parametrize(
    ("question", "chain"),
    [
        ("Why did the delivery to the hospital come late?", ["late", "pump", "valve"]),
        ("What did the rusted cooling valve lead to?", ["valve", "pump", "late"]),
    ],
)
async def test_a_chain_of_causes_is_followed_both_ways(
    run: System, question: str, chain: list[str]
) -> None:
    told = await bank(run, f"why-{chain[0]}", stories.WHY, stories.distractors())
    results = (await told.recall(question)).body["results"]
    assert told.named(results)[:3] == chain
    assert [r["explain"].get("path", {}).get("hop", 0) for r in results[:3]] == [0, 1, 2]
    assert {r["explain"]["path"]["link"] for r in results[1:3]} == {"causal"}


@pytest.mark.parametrize(
    ("question", "event", "relation", "start", "end", "found", "outside"),
    [
        ("What did Alice do before she joined Google?", "joined", "before",
         None, "2023-03-01T00:00:00+00:00", "bakery", "bread-club"),
        ("What did we eat while we were in Lisbon?", "lisbon", "during",
         "2023-07-01T00:00:00+00:00", "2023-07-14T00:00:00+00:00", "sardines", "dumplings"),
        ("What has Alice started since joining Google?", "joined", "since",
         "2023-03-01T00:00:00+00:00", None, "bread-club", "bakery"),
        ("What did Alice do after she joined Google?", "joined", "after",
         "2023-03-01T00:00:00+00:00", None, "bread-club", "bakery"),
        ("What did Alice do until she joined Google?", "joined", "until",
         None, "2023-03-01T00:00:00+00:00", "bakery", "bread-club"),
        ("What did support write during the outage of the payment service?", "outage", "during",
         "2024-02-12T00:00:00+00:00", "2024-02-12T23:59:59.999999+00:00", "apology", "review"),
    ],
)  # fmt: skip
async def test_an_event_gives_the_window(
    life: Bank, question: str, event: str, relation: str, start: str | None, end: str | None,
    found: str, outside: str,
) -> None:  # fmt: skip
    body = (await life.recall(question, trace=True)).body
    asked = body["trace"]["query"]
    used, window = asked["temporal_event"], asked["temporal_constraint"]
    assert (used["memory_id"], used["relation"]) == (life.ids[event], relation)
    assert used["confidence"] > 0.5
    assert window["rule"] == f"event:{relation}"
    assert [t and t.isoformat() for t in (window["start"], window["end"])] == [start, end]
    order = life.named(body["results"])
    assert order.index(found) < order.index(outside)


@pytest.mark.parametrize(
    "question",
    [
        "How many days are there between Alice joining Google and our trip to Lisbon?",
        "How long ago did Alice join Google?",
        "How long after Alice joined Google did we go to Lisbon?",
        "When did Alice join Google?",
        "What did Alice do after the landing on the moon?",
    ],
)
async def test_no_window_where_dates_are_asked_for_or_the_event_is_unknown(
    life: Bank, question: str
) -> None:
    asked = (await life.recall(question, trace=True)).body["trace"]["query"]
    assert asked["temporal_constraint"] is None
    assert "temporal_event" not in asked


async def test_dates_are_found_for_a_length_of_time(life: Bank) -> None:
    question = "How many days are there between Alice joining Google and our trip to Lisbon?"
    assert {"joined", "lisbon"} <= set((await life.keys(question))[:5])


async def test_an_event_that_was_not_known_yet_gives_no_window(life: Bank) -> None:
    question = "What did support write after the outage of the payment service?"
    then = Filters(as_of=datetime(2024, 1, 1, tzinfo=UTC))
    for filters, known in ((Filters(), True), (then, False)):
        asked = (await life.recall(question, trace=True, filters=filters)).body["trace"]["query"]
        assert ("temporal_event" in asked) is known


@pytest.mark.parametrize(
    ("question", "true", "past"),
    [
        ("Where does Wiebke live now?", "ghent", "porto"),
        ("Where does Wiebke work now?", "teacher", "nurse"),
        ("What does Wiebke work as at the moment?", "teacher", "nurse"),
    ],
)
async def test_what_is_true_now_comes_before_what_was(
    life: Bank, question: str, true: str, past: str
) -> None:
    found = await life.keys(question)
    assert found.index(true) < found.index(past)
    then = await life.keys(question, now=datetime(2021, 6, 1, tzinfo=UTC))
    assert then.index(past) < then.index(true)


async def test_what_was_true_is_not_lost(life: Bank) -> None:
    found = await life.keys("Did Wiebke work as a nurse at the Saint Lucas hospital?")
    assert found[0] == "nurse"


async def test_a_window_as_a_filter_leaves_nothing_outside(life: Bank) -> None:
    question = "What did we eat in July 2023?"
    ranked, hard = (
        await life.keys(question),
        await life.keys(question, temporal_mode=TemporalMode.FILTER),
    )
    assert set(hard) == {"lisbon", "sardines"}
    assert {"sardines", "dumplings"} <= set(ranked)


async def test_an_event_filters_too(life: Bank) -> None:
    question = "What did we eat while we were in Lisbon?"
    assert set(await life.keys(question, temporal_mode=TemporalMode.FILTER)) == {
        "lisbon",
        "sardines",
    }


@pytest.mark.parametrize(("month", "inside"), [(7, "sardines"), (11, "dumplings")])
async def test_the_callers_window_is_taken_as_it_is(life: Bank, month: int, inside: str) -> None:
    window = Window(datetime(2023, month, 1, tzinfo=UTC), datetime(2023, month, 30, tzinfo=UTC))
    answer = await life.recall("Where did we eat today?", window=window, trace=True)
    constraint = answer.body["trace"]["query"]["temporal_constraint"]
    assert constraint == {"start": window.start, "end": window.end, "rule": "explicit"}
    assert life.named(answer.body["results"])[0] == inside


async def test_only_what_was_known_then(life: Bank) -> None:
    then = Filters(as_of=datetime(2023, 3, 1, tzinfo=UTC))
    known = await life.keys("Alice", filters=then)
    assert {"bakery", "joined"} <= set(known)
    assert not {"bread-club", "lisbon", "outage"} & set(known)


async def test_calibrated_scores_pick_the_candidates_where_they_are_asked_to(life: Bank) -> None:
    """The cut to the reranker's cap keeps what the fused order has on top, not what ranks have."""
    question = "What did support write after the outage of the payment service?"
    wide = RecallSettings(fusion="convex")
    narrow = RecallSettings(fusion="convex", reranker_max_candidates=4)
    results = (await life.recall(question, wide)).body["results"]
    by_place = sorted(results, key=lambda result: result["explain"]["fused_rank"])
    fused = [result["explain"]["rrf"] for result in by_place]
    assert fused == sorted(fused, reverse=True)
    assert fused[0] == 1.0
    assert fused == [pytest.approx(result["explain"]["base"]) for result in by_place]
    kept = await life.keys(question, narrow)
    assert set(kept) == set(life.named(by_place[:4]))
    by_rank = RecallSettings(reranker_max_candidates=4)
    assert set(kept) != set(await life.keys(question, by_rank))


async def test_turns_are_served_as_they_are_taken(life: Bank) -> None:
    question = "Where does Wiebke live now?"
    reader = Scripted(overlap)
    turns = RecallSettings(fusion="interleave")
    results = (await life.recall(question, turns, reader)).body["results"]
    finals = [result["scores"]["final"] for result in results]
    assert finals == list(range(len(finals), 0, -1))
    assert reader.read == []
    first = [result["explain"]["arms"] for result in results[:3]]
    assert min(rank for arms in first for rank, _ in arms.values()) == 1
    assert results[0]["explain"]["arms"]["semantic"][0] == 1


async def test_plain_link_expansion_starts_from_what_is_similar(run: System) -> None:
    told = await bank(run, "plain", stories.ATLAS, stories.distractors())
    question = "Was Alice affected by recent issues?"

    async def expanded(floor: float) -> list[str]:
        plain = RecallSettings(graph_hub_damping=False, graph_seed_min_similarity=floor)
        body = (await told.recall(question, plain, trace=True)).body
        (world, *_) = [r for r in body["trace"]["retrieval_results"] if r["method_name"] == "graph"]
        return told.named([{"id": row["node_id"]} for row in world["results"]])

    body = (await told.recall(question, RecallSettings(enable_graph_retrieval=False))).body
    similar = {
        key: result["scores"]["semantic"]
        for key, result in zip(told.named(body["results"]), body["results"], strict=True)
    }
    assert similar["lead"] == max(similar.values())
    # Only the lead is a seed: one hop along its entities, itself not in the answer.
    assert await expanded(similar["lead"] - 1e-4) == ["uses"]
    # Words alone make no seed.
    assert await expanded(similar["lead"] + 1e-4) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def complained(run: System) -> Bank:
    return await bank(run, "complained", stories.ATLAS, stories.COMPLAINTS, stories.distractors())


AFFECTED = "Is Alice with her project affected by recent issues?"


async def test_a_reader_of_words_alone_buries_the_outage(complained: Bank) -> None:
    alone = RecallSettings(graph_quota=0)
    assert "outage" not in (await complained.keys(AFFECTED, alone, Scripted(overlap)))[:10]


async def test_the_outage_survives_a_reader_of_words_that_reads_its_path(complained: Bank) -> None:
    reader = Scripted(overlap)
    settings = RecallSettings(rerank_graph_paths=True, graph_quota=0)
    found = await complained.keys(AFFECTED, settings, reader)
    assert "outage" in found[:5]
    read = next(document for document in reader.read if document.endswith("outage Tuesday"))
    assert read == (
        "Alice is the tech lead on Project Atlas; Project Atlas uses Kubernetes; "
        "Kubernetes cluster had an outage Tuesday"
    )
    plain = [text for text in reader.read if "; " not in text]
    assert any("issues at home" in text for text in plain)
    assert "Alice is the tech lead on Project Atlas" in plain


async def test_a_place_is_kept_for_what_strong_links_lead_to(complained: Bank) -> None:
    body = (
        await complained.recall(AFFECTED, RecallSettings(graph_quota=1), Scripted(overlap))
    ).body
    found = complained.named(body["results"])
    place = found.index("outage")
    assert place < 5
    assert found[place - 1] == "uses"
    assert [r["explain"].get("lifted", False) for r in body["results"]].count(True) == 1
    assert body["results"][place]["explain"]["lifted"] is True
    finals = [r["scores"]["final"] for r in body["results"]]
    assert finals == sorted(finals, reverse=True)
    # The fused order weighs links by itself: no place is kept in it.
    fused = (await complained.recall(AFFECTED, RecallSettings(graph_quota=1))).body
    assert not any("lifted" in result["explain"] for result in fused["results"])
