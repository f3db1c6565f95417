"""Rules in the place of a language model; previews; what the histories keep."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from retrieval.consolidation import by_rules
from retrieval.consolidation.preview import preview, strategies
from retrieval.errors import NeedsModel
from tests.retrieval.consolidation.world import World, create, each, shown
from tests.retrieval.llm.scripted import Asked

pytestmark = pytest.mark.integration


def by_the_rules(world: World) -> None:
    world.changes = {"model": None, "rules": by_rules.decide}


async def test_rules_update_end_and_create(world: World) -> None:
    by_the_rules(world)
    names = ["Ann", "Rome", "Porto", "Bo"]

    async def told(text: str, when: str) -> None:
        named = [name for name in names if name in text]
        await world.add(
            {"text": text, "occurred_start": when, "mentioned_at": when, "entities": named}
        )
        await world.run()

    await told("Ann lives in Rome.", "2019-03-01")
    await told("Ann lives in Rome.", "2020-03-01")
    (rome,) = await world.observations()
    assert rome["proof_count"] == 2
    await told("Ann lives in Porto.", "2024-05-02")
    await told("Bo lives in Porto.", "2024-06-02")
    await told("Ann likes dark chocolate.", "2024-07-02")
    found = {o["text"]: o for o in await world.observations()}
    assert set(found) == {
        "Ann lives in Rome.",
        "Ann lives in Porto.",
        "Bo lives in Porto.",
        "Ann likes dark chocolate.",
    }
    rome = found["Ann lives in Rome."]
    assert rome["valid_until"] == "2024-05-02T00:00:00+00:00"
    assert rome["superseded_by"] == found["Ann lives in Porto."]["id"]
    assert [o["valid_until"] for o in found.values() if o is not rome] == [None] * 3
    await told("Ann lives in Rome.", "2018-01-01")  # older news
    (again,) = [o for o in await world.observations() if o["text"] == "Ann lives in Rome."]
    assert again["id"] == rome["id"]
    porto = next(o for o in await world.observations() if o["text"] == "Ann lives in Porto.")
    assert porto["valid_until"] is None
    assert await world.pending() == []


async def test_rules_do_the_same_every_time(world: World) -> None:
    by_the_rules(world)
    texts = [f"Ann saw town {i}." for i in range(20)]
    await world.add(*texts)
    await world.run()
    assert await world.texts() == sorted(texts)
    assert (await world.result())["usage"]["calls"] == 0


async def test_a_preview_writes_nothing(world: World) -> None:
    world.tune(enable_auto_consolidation=False)
    await world.add(*(f"Ann saw town {i}." for i in range(20)))
    await world.add({"text": "Bo rows.", "tags": ["x"]})
    before = await world.items()
    found = await preview(world.deps, world.tenant, world.bank)
    assert (found["pending"], found["calls"], found["complete"]) == (21, 4, True)
    assert {tuple(s["tags"]): (s["memories"], s["calls"]) for s in found["scopes"]} == {
        (): (20, 3),
        ("x",): (1, 1),
    }
    assert world.model.asked == []
    world.model.rule = lambda asked: {
        "actions": [*each(asked)["actions"], create("Ann saw town 99.", "F1")]
    }
    only = await preview(world.deps, world.tenant, world.bank, [["x"]], run=True)
    assert only["pending"] == 1
    tried = only["batch"]
    assert (tried["actions"], "says 99" in tried["error"]) == ([], True)
    assert tried["dropped"]
    world.model.rule = each
    tried = (await preview(world.deps, world.tenant, world.bank, [["x"]], run=True))["batch"]
    assert [a["text"] for a in tried["actions"]] == ["Bo rows."]
    assert tried["actions"][0]["fact_ids"] == [tried["facts"][0]["id"]]
    assert tried["error"] is None
    assert await world.items() == before
    assert await world.operations() == []
    world.changes = {"model": None}
    with pytest.raises(NeedsModel):
        await preview(world.deps, world.tenant, world.bank)


async def test_a_preview_knows_the_cost(world: World) -> None:
    """Within a fifth of the tokens that are sent, observations of earlier batches included."""
    from retrieval.text import tokens

    world.tune(enable_auto_consolidation=False)
    towns = ("Rome", "Porto", "Faro", "Oslo", "Kiel", "Nice", "Bari", "Gent")
    await world.add(
        *(f"Ann visited the old harbour of {towns[i % 8]} {i} times." for i in range(40))
    )
    found = await preview(world.deps, world.tenant, world.bank)
    sent = 0

    def answer(asked: Asked) -> Any:
        nonlocal sent
        sent += sum(tokens.counts([str(m["content"]) for m in asked.messages]))
        return each(asked)

    world.model.rule = answer
    world.tune(enable_auto_consolidation=True)
    from retrieval.consolidation import queue

    await queue.submit(world.pool, world.tenant, world.bank, world.settings)
    await world.run()
    assert len(world.model.asked) == found["calls"]
    assert 0.8 * sent <= found["tokens"]["input_tokens"] <= 1.2 * sent


async def test_a_preview_of_strategies(world: World) -> None:
    world.model.rule = each
    for tags in (["user:a"], ["user:a", "x"], ["team"], []):
        await world.add(*({"text": f"Ann saw {tags} {i}.", "tags": tags} for i in range(2)))
    await world.run()
    drafts: list[dict[str, Any]] = [
        {"scopes": [{"tags": ["user:*"]}], "observations_mission": "people"},
        {"scopes": [{"tags": ["*"], "tags_match": "any_strict"}, {"tags": ["team"]}],
         "max_observations_per_scope": 3},
        {"scopes": [{"tags": ["team"]}]},
    ]  # fmt: skip
    found = await strategies(world.pool, world.tenant, world.bank, drafts, 1)
    first, second, third = found["strategies"]
    assert (first["active"], second["active"], third["active"]) == (True, True, False)
    assert (first["claimed_count"], second["claimed_count"], third["claimed_count"]) == (3, 1, 0)
    assert [r["match_count"] for r in second["rules"]] == [3, 2]
    assert [r["taken_count"] for r in second["rules"]] == [2, 1]
    assert [len(r["samples"]) for r in second["rules"]] == [1, 1]
    assert found["default"] == {"match_count": 0, "observation_count": 0, "samples": []}
    assert (found["scopes_scanned"], found["complete"]) == (4, True)


async def test_histories_have_a_limit_and_can_be_left_out(world: World) -> None:
    from retrieval.store import memories

    async def rewritten(count: int) -> str:
        for i in range(count):
            said = f"Ann rows, says witness {i}."

            def answer(asked: Asked, said: str = said) -> Any:
                facts, observations = shown(asked)
                if not observations:
                    return {"actions": [create(said, facts[0]["fact"])]}
                return {"actions": [{"reason": "r", "do": "update", "observation": "O1",
                                     "facts": [facts[0]["fact"]], "text": said}]}  # fmt: skip

            world.model.rule = answer
            await world.add({"text": said})
            await world.run()
        (one,) = await world.observations()
        return str(one["id"])

    world.tune(observation_history_max_entries=2)
    id = await rewritten(4)
    past = await memories.history(world.pool, world.tenant, world.bank, id)
    assert [p["previous_text"] for p in past] == [
        "Ann rows, says witness 2.",
        "Ann rows, says witness 1.",
    ]
    assert all(len(p["new_source_memory_ids"]) == 1 for p in past)
    world.settings = dataclasses.replace(world.settings, enable_observation_history=False)
    await rewritten(1)
    assert await memories.history(world.pool, world.tenant, world.bank, id) == past
