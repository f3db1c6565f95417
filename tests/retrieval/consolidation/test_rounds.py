"""From memories to observations: when it runs, what is shown, what comes of it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from retrieval.consolidation import queue
from retrieval.errors import (
    InvalidInput,
    ModelCut,
    ModelExhausted,
    ModelRefused,
    RateLimited,
    Unavailable,
)
from retrieval.ingest import curation
from retrieval.store import banks, memories, operation_views, operations, outdated
from tests.retrieval.consolidation.world import (
    World,
    create,
    each,
    end,
    handle,
    shown,
    update,
)
from tests.retrieval.llm.scripted import Asked

pytestmark = pytest.mark.integration


async def test_memories_become_observations(world: World) -> None:
    world.model.rule = each
    ids = await world.add("Ann likes tea.", {"text": "Bo rows.", "key": "b", "tags": ["x"]})
    assert [o["status"] for o in await world.operations()] == ["pending"]
    await world.run()
    found = await world.observations()
    assert [(o["text"], o["tags"], o["proof_count"]) for o in found] == [
        ("Ann likes tea.", [], 1),
        ("Bo rows.", ["x"], 1),
    ]
    assert found[1]["source_memory_ids"] == [ids["b"]]
    assert await world.pending() == []
    assert len(world.model.asked) == 2  # one call a scope
    result = await world.result()
    assert (result["memories"], result["done"], result["observations_created"]) == (2, 2, 2)
    assert result["usage"]["calls"] == 2
    assert await world.run() == 0  # consolidating queues nothing


async def test_an_observation_gathers_evidence(world: World) -> None:
    world.model.rule = each
    await world.add("Ann likes tea.")
    await world.run()
    (first,) = await world.observations()
    await world.add({"text": "Ann likes tea.", "key": "again"})
    await world.run()
    (second,) = await world.observations()
    assert second["id"] == first["id"]
    assert second["proof_count"] == 2
    _, observations = shown(world.model.asked[-1])
    assert [one["text"] for one in observations] == ["Ann likes tea."]
    assert observations[0]["facts"][0].startswith("Ann likes tea. [")
    past = await memories.history(world.pool, world.tenant, world.bank, first["id"])
    assert [p["previous_text"] for p in past] == ["Ann likes tea."]


async def test_no_ids_are_shown(world: World) -> None:
    world.model.rule = each
    ids = await world.add("Ann likes tea.", "Ann likes coffee.")
    await world.run()
    ids |= await world.add("Ann likes milk.")
    await world.run()
    said = " ".join(asked.system + asked.user for asked in world.model.asked)
    assert not [id for id in ids.values() if id in said]
    assert not [o["id"] for o in await world.observations() if o["id"] in said]


async def test_a_burst_is_one_run(world: World) -> None:
    world.tune(consolidation_debounce_s=10.0)
    for i in range(5):
        await world.add(f"Ann bought {i} pears.")
    (waiting,) = await world.operations()
    assert waiting["next_retry_at"] is not None
    assert await world.run() == 0
    asked = await queue.submit(world.pool, world.tenant, world.bank, world.settings)
    assert asked == {"operation_id": waiting["id"], "deduplicated": True}
    world.model.rule = each
    assert await world.run() == 1
    assert len(await world.texts()) == 5


async def test_it_does_not_wait_longer_than_the_limit(world: World) -> None:
    world.tune(consolidation_debounce_s=10.0, consolidation_debounce_max_s=60.0)
    await world.add("Ann rows.")
    await world.pool.execute("update operations set created_at = now() - interval '55 seconds'")
    await world.add("Bo rows.")
    left = await world.pool.fetchval(
        "select extract(epoch from next_retry_at - now()) from operations"
    )
    assert 3 < left <= 5


async def test_one_waits_while_one_runs_and_never_two_run(world: World) -> None:
    world.model.rule = each
    await world.add("Ann rows.")
    claimed = await operations.claim(world.pool, types=[queue.TYPE])
    assert claimed is not None
    await world.add("Bo rows.")
    await world.add("Cy rows.")
    submitted = await queue.submit(world.pool, world.tenant, world.bank, world.settings)
    assert submitted["deduplicated"] is True
    assert sorted(o["status"] for o in await world.operations()) == ["pending", "processing"]
    assert await world.run() == 0
    await operations.release(world.pool, claimed)
    assert await world.run() == 2
    assert await world.texts() == ["Ann rows.", "Bo rows.", "Cy rows."]


async def test_rounds_follow_each_other(world: World) -> None:
    world.model.rule = each
    world.tune(consolidation_max_memories_per_round=3, consolidation_batch_size=2)
    await world.add(*(f"Ann has seen town {i}." for i in range(8)))
    assert await world.run() == 3
    assert len(await world.texts()) == 8


async def test_only_some_scopes(world: World) -> None:
    world.model.rule = each
    world.tune(enable_auto_consolidation=False)
    await world.add({"text": "Ann rows.", "tags": ["a", "x"]}, {"text": "Bo rows.", "tags": ["b"]})
    assert await world.operations() == []
    submit = queue.submit
    with pytest.raises(Exception, match="no bank"):
        await submit(world.pool, world.tenant, "nowhere", world.settings)
    await submit(world.pool, world.tenant, world.bank, world.settings, [["a"]])
    await world.run()
    assert await world.texts() == ["Ann rows."]
    await submit(world.pool, world.tenant, world.bank, world.settings, [["c"], []])
    await world.run()
    assert await world.texts() == ["Ann rows.", "Bo rows."]


async def test_switched_off(world: World) -> None:
    await banks.ensure(world.pool, world.tenant, world.bank)
    await banks.patch_config(
        world.pool, world.tenant, world.bank, {"enable_observations": False}, world.settings
    )
    await world.add("Ann rows.")
    assert await world.operations() == []
    with pytest.raises(InvalidInput, match="switched off"):
        await queue.submit(world.pool, world.tenant, world.bank, world.settings)


async def test_who_was_forgotten_is_found(world: World) -> None:
    world.model.rule = each
    await world.add("Ann rows.")
    await world.pool.execute("delete from operations")
    assert await queue.reconcile(world.pool, world.settings) == 1
    assert await queue.reconcile(world.pool, world.settings) == 0
    await world.pool.execute("update operations set status = 'failed', updated_at = now()")
    await world.pool.execute("delete from operation_lanes")
    assert await queue.reconcile(world.pool, world.settings) == 0
    await world.pool.execute("update operations set updated_at = now() - interval '1 hour'")
    assert await queue.reconcile(world.pool, world.settings) == 1
    await world.run()
    assert await world.texts() == ["Ann rows."]
    assert await queue.reconcile(world.pool, world.settings) == 0


async def test_scopes(world: World) -> None:
    """user:a and user:b told the same: two observations without a common source; shared: one."""
    world.model.rule = each
    a = await world.add({"text": "The office is closed.", "key": "a", "tags": ["user:a"]})
    b = await world.add({"text": "The office is closed.", "key": "b", "tags": ["user:b"]})
    await world.run()
    found = await world.observations()
    assert {tuple(o["tags"]): o["source_memory_ids"] for o in found} == {
        ("user:a",): [a["a"]],
        ("user:b",): [b["b"]],
    }


async def test_shared_meets_across_tags(world: World) -> None:
    world.model.rule = each
    world.tune(default_observation_scopes="shared")
    await world.add({"text": "The office is closed.", "key": "a", "tags": ["user:a"]})
    await world.add({"text": "The office is closed.", "key": "b", "tags": ["user:b"]})
    await world.run()
    (one,) = await world.observations()
    assert (one["tags"], one["proof_count"]) == ([], 2)
    assert len(world.model.asked) == 1


async def test_every_scope_is_finished_for_itself(world: World) -> None:
    world.tune(default_observation_scopes="per_tag", consolidation_llm_parallelism=1)
    world.model.answers = [
        lambda asked: each(asked),
        lambda asked: (_ for _ in ()).throw(ModelExhausted("no quota", 60)),
    ]
    world.model.rule = each
    await world.add({"text": "Ann rows.", "tags": ["a", "b"]})
    await world.run()
    assert [o["tags"] for o in await world.observations()] == [["a"]]
    assert await world.pending() == ["Ann rows."]
    (waiting,) = await world.operations()
    assert waiting["status"] == "pending"
    assert waiting["error_message"] == "no quota"
    assert waiting["retry_count"] == 0
    await queue.submit(world.pool, world.tenant, world.bank, world.settings)
    await world.run()
    assert sorted(o["tags"] for o in await world.observations()) == [["a"], ["b"]]
    assert await world.pending() == []
    assert len(world.model.asked) == 3  # the finished scope was not asked about again


@pytest.mark.parametrize(
    "error",
    [
        ModelExhausted("quota", 5.0),
        RateLimited("budget", 5.0),
        Unavailable("the language model", "down"),
    ],
    ids=["quota", "budget", "down"],
)
async def test_what_is_nobodys_fault_marks_nothing(world: World, error: Exception) -> None:
    def fails(asked: Asked) -> Any:
        raise error

    world.model.rule = fails
    await world.add("Ann rows.")
    assert await world.run() == 1
    assert (await world.failed(), await world.pending()) == ([], ["Ann rows."])
    (waiting,) = await world.operations()
    assert (waiting["status"], waiting["retry_count"]) == ("pending", 0)
    assert waiting["next_retry_at"] is not None
    world.model.rule = each
    await queue.submit(world.pool, world.tenant, world.bank, world.settings)
    await world.run()
    assert await world.texts() == ["Ann rows."]


async def test_one_bad_memory_is_found_by_halving(world: World) -> None:
    def answer(asked: Asked) -> Any:
        return "I cannot" if "poison" in asked.user else each(asked)

    world.model.rule = answer
    await world.add(*(f"Ann saw town {i}." for i in range(7)), "Ann took poison.")
    await world.run()
    assert await world.failed() == ["Ann took poison."]
    assert len(await world.texts()) == 7
    assert len(world.model.asked) <= 6 * 8
    (item,) = await world.items(consolidation_state="failed")
    assert "no JSON" in item["consolidation_error"]
    result = await world.result()
    assert (result["done"], result["failed"], result["waiting"]) == (7, 1, 0)
    world.model.rule = each
    recovered = await queue.recover(world.pool, world.tenant, world.bank, world.settings, True)
    assert recovered == {"retried_count": 1}
    await world.run()
    assert len(await world.texts()) == 8
    assert await world.failed() == []


@pytest.mark.parametrize("error", [ModelRefused("I would rather not"), ModelCut("too long")])
async def test_what_is_declined_is_not_asked_again(world: World, error: Exception) -> None:
    def answer(asked: Asked) -> Any:
        if "poison" in asked.user:
            raise error
        return each(asked)

    world.model.rule = answer
    await world.add("Ann rows.", "Ann took poison.", "Bo rows.", "Cy rows.")
    await world.run()
    assert await world.failed() == ["Ann took poison."]
    assert await world.texts() == ["Ann rows.", "Bo rows.", "Cy rows."]
    assert len(world.model.asked) == 5


async def test_a_question_is_never_asked_identically_again(world: World) -> None:
    world.model.answers = ["no", "no", {"actions": [create("Ann rows.", "F1")]}]
    await world.add("Ann rows.")
    await world.run()
    assert await world.texts() == ["Ann rows."]
    asked = [one.messages for one in world.model.asked]
    assert len(asked) == 3
    assert asked[0] != asked[1]
    assert "cannot be used" in asked[1][-1]["content"]


async def test_facts_of_dropped_actions_are_asked_about_again(world: World) -> None:
    texts = [f"Ann saw town {i}." for i in range(8)]

    def answer(asked: Asked) -> Any:
        found = each(asked)
        if len(found["actions"]) == 8:
            found["actions"][3]["observation"] = "O99"
            found["actions"][3]["do"] = "update"
        return found

    world.model.rule = answer
    await world.add(*texts)
    await world.run()
    assert await world.texts() == texts
    assert (await world.result())["actions_dropped"] == 1
    assert len(world.model.asked) == 2


async def test_limits_of_scopes(world: World) -> None:
    world.model.rule = each
    world.tune(
        max_observations_per_scope=2,
        observation_scope_limits=[{"scope": ["team:*"], "limit": 1}],
    )
    await world.add(*({"text": f"Ann saw town {i}.", "tags": ["x"]} for i in range(4)))
    await world.add(*({"text": f"Bo saw town {i}.", "tags": ["team:a"]} for i in range(4)))
    await world.add(*(f"Cy saw town {i}." for i in range(4)))
    await world.run()
    counts = [len([t for t in await world.texts() if t.startswith(n)]) for n in ("Ann", "Bo", "Cy")]
    assert counts == [2, 1, 4]
    assert await world.pending() == []
    assert (await world.result())["capped"] == 5


async def test_cancelled_before_its_next_commit(world: World) -> None:
    world.tune(consolidation_llm_batch_size=1)
    asked = 0

    def answer(one: Asked) -> Any:
        nonlocal asked
        asked += 1
        return each(one)

    world.model.rule = answer
    await world.add("Ann rows.", "Bo rows.", "Cy rows.")
    (waiting,) = await world.operations()
    original = world.model.chat

    async def chat(operation: str, messages: Any, **more: Any) -> Any:
        found = await original(operation, messages, **more)
        if asked == 2:
            await operation_views.cancel(world.pool, world.tenant, world.bank, waiting["id"])
        return found

    world.model.chat = chat  # type: ignore[method-assign]
    await world.run()
    assert await world.texts() == ["Ann rows."]
    assert await world.pending() == ["Bo rows.", "Cy rows."]
    assert [o["status"] for o in await world.operations()] == ["cancelled"]


async def test_what_changes_meanwhile_grounds_nothing(world: World) -> None:
    ids = await world.add("Ann rows.", "Bo rows.", "Cy rows.", "Di rows.")
    original = world.model.chat
    world.model.rule = each

    async def chat(operation: str, messages: Any, **more: Any) -> Any:
        found = await original(operation, messages, **more)
        if len(world.model.asked) == 1:
            made = world.deps.ingest
            change = curation.patch_memory
            await change(made, world.tenant, world.bank, ids["Ann rows."], {"text": "Ann swims."})
            await change(made, world.tenant, world.bank, ids["Bo rows."], {"state": "invalidated"})
            await curation.delete_memory(made, world.tenant, world.bank, ids["Cy rows."])
        return found

    world.model.chat = chat  # type: ignore[method-assign]
    await world.run(1)
    assert await world.texts() == ["Di rows."]
    assert await world.pending() == ["Ann swims."]
    await world.run()
    assert await world.texts() == ["Ann swims.", "Di rows."]


async def test_a_source_that_goes_takes_its_observation(world: World) -> None:
    def joined(asked: Asked) -> Any:
        facts, _ = shown(asked)
        return {"actions": [create("Ann likes tea and milk.", *(f["fact"] for f in facts))]}

    world.model.rule = joined
    ids = await world.add("Ann likes tea.", "Ann likes milk.")
    await world.run()
    assert (await world.observations())[0]["proof_count"] == 2
    await curation.delete_memory(
        world.deps.ingest, world.tenant, world.bank, ids["Ann likes milk."]
    )
    assert await world.texts() == []
    assert await world.pending() == ["Ann likes tea."]
    world.model.rule = each
    await world.run()
    assert await world.texts() == ["Ann likes tea."]


async def test_survivors_are_shown_together(world: World) -> None:
    texts = [f"Ann saw town {i}." for i in range(12)]

    def joined(asked: Asked) -> Any:
        facts, _ = shown(asked)
        return {"actions": [create("Ann saw towns.", *(f["fact"] for f in facts))]}

    world.model.rule = joined
    world.tune(consolidation_llm_batch_size=64)
    ids = await world.add(*texts)
    await world.run()
    world.tune(consolidation_llm_batch_size=3)
    await curation.delete_memory(world.deps.ingest, world.tenant, world.bank, ids[texts[0]])
    await world.add("Ann rows.")
    await world.run()
    assert [len(shown(a)[0]) for a in world.model.asked[1:]] == [11, 1]


async def test_clearing_observations_queues_a_run(world: World) -> None:
    world.model.rule = each
    ids = await world.add("Ann rows.")
    await world.run()
    answer = await curation.delete_derived(
        world.deps.ingest, world.tenant, world.bank, ids["Ann rows."]
    )
    assert answer["deleted_count"] == 1
    assert await world.pending() == ["Ann rows."]
    assert await world.run() == 1
    await curation.clear(world.deps.ingest, world.tenant, world.bank, "observation")
    assert await world.texts() == []
    await world.run()
    assert await world.texts() == ["Ann rows."]


async def test_near_duplicates_are_judged(world: World) -> None:
    world.tune(consolidation_dedup_threshold=0.8)
    await world.add("Ann likes green tea very much indeed.")
    world.model.answers = [{"actions": [create("Ann likes green tea very much indeed.", "F1")]}]
    await world.run()
    (first,) = await world.observations()
    near = "Ann likes green tea very much indeed today."
    world.model.answers = [
        {"actions": [create(near, "F1")]},
        {"reason": "yes", "same": True},
    ]
    await world.add(near)
    await world.run()
    (second,) = await world.observations()
    assert (second["id"], second["proof_count"]) == (first["id"], 2)
    # An answer that cannot be read keeps both; other numbers, negations are no question at all.
    other = "Ann likes green tea very much indeed tonight."
    world.model.answers = [{"actions": [create(other, "F1")]}, "perhaps"]
    await world.add(other)
    await world.run()
    assert len(await world.texts()) == 2
    asked = len(world.model.asked)
    apart = "Ann likes not green tea very much indeed."
    world.model.answers = [{"actions": [create(apart, "F1")]}]
    await world.add(apart)
    await world.run()
    assert len(await world.texts()) == 3
    assert len(world.model.asked) == asked + 1


async def test_an_update_into_a_twin_joins_both(world: World) -> None:
    world.tune(consolidation_dedup_threshold=0.8)
    world.model.rule = each
    await world.add("Ann likes green tea very much indeed.")
    await world.add("Ann sells boats.")
    await world.run()
    first = {o["text"]: o for o in await world.observations()}
    near = "Ann likes green tea very much indeed today."

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {"actions": [update(handle(observations, "boats"), near, "F1")]}

    world.model.answers = [answer, {"reason": "yes", "same": True}]
    await world.add(near)
    await world.run()
    (only,) = await world.observations()
    assert only["id"] == first["Ann likes green tea very much indeed."]["id"]
    assert (only["text"], only["proof_count"]) == (near, 3)
    past = await memories.history(world.pool, world.tenant, world.bank, only["id"])
    assert past[0]["previous_text"] == "Ann likes green tea very much indeed."


@pytest.mark.parametrize("threshold", [0.8, 1.0])
async def test_an_update_takes_the_text_of_another_observation(
    world: World, threshold: float
) -> None:
    world.tune(consolidation_dedup_threshold=threshold)
    world.model.rule = each
    tea, boats = "Ann likes green tea very much indeed.", "Ann sells boats."
    await world.add(tea)
    await world.add(boats)
    await world.run()

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {"actions": [update(handle(observations, "boats"), tea, "F1")]}

    world.model.rule = answer
    await world.add(tea + " Indeed.")
    await world.run()
    assert await world.operations(status="failed") == []
    assert await world.pending() == []
    found = await world.observations()
    assert [one["text"] for one in found] == [tea] * (1 if threshold < 1 else 2)
    head = await banks.head(world.pool, world.tenant, world.bank)
    bank = await world.residency.open(head)
    ids = np.array([list(UUID(one["id"]).bytes) for one in found], np.uint8)
    vectors = bank.vectors.rows(bank.ordinal_of(ids))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-3)
    assert vectors @ vectors[0] == pytest.approx(1, abs=1e-3)


async def test_ends_and_their_evidence(world: World) -> None:
    world.model.rule = each
    await world.add(
        {"text": "Ann lives in Rome.", "key": "r", "occurred_start": "2019-03-01",
         "entities": ["Ann", "Rome"]}
    )  # fmt: skip
    await world.run()
    (rome,) = await world.observations()
    ids = await world.add(
        {"text": "Ann moved to Porto.", "key": "p", "occurred_start": "2024-05-02",
         "entities": ["Ann", "Porto"]}
    )  # fmt: skip

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {
            "actions": [
                end(handle(observations, "Rome"), "F1", until="2024-05-02"),
                create("Ann lives in Porto.", "F1"),
            ]
        }

    world.model.rule = answer
    await world.run()
    porto, rome = await world.observations()
    assert rome["valid_until"] == porto["valid_from"] == "2024-05-02T00:00:00+00:00"
    assert rome["superseded_by"] == porto["id"]
    assert porto["valid_until"] is None
    # The end rests on the news: without them the old state is as it was.
    world.model.rule = each
    await curation.delete_memory(world.deps.ingest, world.tenant, world.bank, ids["p"])
    await world.run()
    (again,) = await world.observations()
    assert (again["text"], again["valid_until"]) == ("Ann lives in Rome.", None)


async def test_what_changes_nothing_is_not_consolidated_again(world: World) -> None:
    from retrieval.ingest.entities.curation import merge_entities
    from retrieval.store import entities

    world.model.rule = each
    item = {"text": "Ann met Annie.", "key": "a", "entities": ["Ann", "Annie"],
            "mentioned_at": "2024-05-01"}  # fmt: skip
    await world.add(item)
    await world.run()
    listed = await entities.list_entities(world.pool, world.tenant, world.bank)
    first, second = (e["id"] for e in listed["items"])
    await merge_entities(world.deps.ingest, world.tenant, world.bank, first, [second])
    await world.add(item)
    assert await world.pending() == []
    await world.run()
    assert len(world.model.asked) == 1
    await world.add({**item, "mentioned_at": "2024-05-02"})
    assert await world.pending() == ["Ann met Annie."]


async def test_documents_tell_what_was_made_of_them(world: World) -> None:
    from retrieval.store import history

    world.model.rule = each
    await world.add({"text": "Ann rows.", "document_id": "d"})
    await world.run()
    (made,) = await world.observations()
    told = await history.of_document(world.pool, world.tenant, world.bank, "d")
    newest = told["items"][0]
    assert newest["kind"] == "consolidation"
    assert newest["observations_created"] == {"count": 1, "ids": [made["id"]]}
    assert UUID(newest["operation_id"])


async def test_without_anybody_to_decide(world: World) -> None:
    await world.add("Ann rows.")
    world.changes = {"model": None}
    await world.run()
    (failed,) = await world.operations()
    assert failed["status"] == "failed"
    assert "language model" in failed["error_message"]


async def test_scopes_are_consolidated_at_once(world: World) -> None:
    running = most = 0
    together = asyncio.Event()
    world.tune(consolidation_llm_parallelism=3)
    original = world.model.chat
    world.model.rule = each

    async def chat(operation: str, messages: Any, **more: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            together.set()
        await asyncio.wait_for(together.wait(), 60)
        running -= 1
        return await original(operation, messages, **more)

    world.model.chat = chat  # type: ignore[method-assign]
    await world.add(*({"text": f"Ann saw town {i}.", "tags": [f"t{i}"]} for i in range(6)))
    await world.run()
    assert len(await world.texts()) == 6
    assert most == 3


async def test_observations_that_newer_memories_concern(world: World) -> None:
    """Those about whose entities something of the same tags waits to be consolidated."""
    world.model.rule = each
    await world.add(
        {"text": "Ann lives in Rome.", "entities": ["Ann"], "tags": ["a", "b"]},
        {"text": "Bo rows.", "entities": ["Bo"]},
    )
    await world.run()
    ann, bo = await world.observations()
    head = await banks.head(world.pool, world.tenant, world.bank)

    async def now_outdated() -> set[str]:
        return await outdated.observations(world.pool, head.bank, [ann["id"], bo["id"]])

    assert await now_outdated() == set()
    await world.add(
        {"text": "Ann moved.", "entities": ["Ann"], "tags": ["a"]},
        {"text": "Cy rows.", "entities": ["Cy"]},
    )
    assert await now_outdated() == set()
    await world.add({"text": "Ann left.", "entities": ["Ann"], "tags": ["b", "a"]})
    assert await now_outdated() == {ann["id"]}
    await world.run()
    assert await now_outdated() == set()
