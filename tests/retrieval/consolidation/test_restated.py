"""What another document says again joins what was made of it, and nobody is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.retrieval.consolidation.world import World, create, each, end, handle, shown

pytestmark = pytest.mark.integration


def said(text: str, document: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "document_id": document, "key": f"{document} {text}", **more}


async def test_a_restatement_is_evidence(world: World) -> None:
    world.model.rule = each
    first = await world.add(said("Ann likes tea.", "a"), said("Bo rows.", "a"))
    await world.run()
    assert len(world.model.asked) == 1
    again = await world.add(said("ann  likes TEA", "b"), said("Bo rows.", "c"))
    await world.run()
    assert len(world.model.asked) == 1, "nothing was asked"
    ann, bo = await world.observations()
    assert (ann["text"], ann["proof_count"]) == ("Ann likes tea.", 2)
    ids = [first["a Ann likes tea."], again["b ann  likes TEA"]]
    assert sorted(ann["source_memory_ids"]) == sorted(ids)
    assert bo["proof_count"] == 2
    assert await world.pending() == []
    result = await world.result()
    assert (result["done"], result["usage"]["calls"]) == (2, 0)
    await world.add(said("Ann likes tea.", "d"))  # what restates a restatement restates the first
    await world.run()
    assert [o["proof_count"] for o in await world.observations()] == [3, 2]
    assert len(world.model.asked) == 1


async def test_what_is_new_is_asked_about_all_the_same(world: World) -> None:
    world.model.rule = each
    await world.add(said("Ann likes tea.", "a"))
    await world.run()
    await world.add(said("Ann likes tea.", "b"), said("Cy bakes bread.", "b"))
    await world.run()
    assert [fact["text"] for fact in shown(world.model.asked[-1])[0]] == ["Cy bakes bread."]
    assert len(world.model.asked) == 2
    assert [o["proof_count"] for o in await world.observations()] == [2, 1]
    assert await world.pending() == []


@pytest.mark.parametrize(
    "other", [{"tags": ["x"]}, {"occurred_start": "2024-05-01"}, {"type": "experience"}]
)
async def test_what_differs_is_no_restatement(world: World, other: dict[str, Any]) -> None:
    world.model.rule = each
    await world.add(said("Ann likes tea.", "a"))
    await world.run()
    await world.add(said("Ann likes tea.", "b", **other))
    await world.run()
    assert len(world.model.asked) == 2


async def test_what_nothing_was_made_of_is_asked_about(world: World) -> None:
    await world.add(said("Ann likes tea.", "a"))
    await world.run()
    await world.add(said("Ann likes tea.", "b"))
    await world.run()
    assert len(world.model.asked) == 2
    assert await world.pending() == []


async def test_what_is_over_is_not_borne_out_unasked(world: World) -> None:
    world.model.rule = each
    await world.add(said("Ann lives in Rome.", "a"))
    await world.run()
    world.model.answers.append(
        lambda asked: {
            "actions": [
                end("O1", "F1", until="2025-01-01"),
                create("Ann lives in Porto.", handle(shown(asked)[0], "Porto")),
            ]
        }
    )
    await world.add(said("Ann lives in Porto.", "b", mentioned_at="2025-01-01"))
    await world.run()
    world.model.rule = lambda asked: {"actions": []}
    await world.add(said("Ann lives in Rome.", "c"))
    await world.run()
    assert len(world.model.asked) == 3


async def test_a_source_that_goes_takes_only_itself(world: World) -> None:
    from retrieval.ingest.curation import delete_document

    world.model.rule = each
    await world.add(said("Ann likes tea.", "a"))
    await world.run()
    await world.add(said("Ann likes tea.", "b"))
    await world.run()
    await delete_document(world.deps.ingest, world.tenant, world.bank, "a")
    await world.run()
    texts = await world.texts()
    assert texts == ["Ann likes tea."]
    assert [o["proof_count"] for o in await world.observations()] == [1]
