"""Changing and deleting: what depends on a memory follows it, other banks never notice."""

import asyncio
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from retrieval.errors import InvalidInput, NotFound
from retrieval.ingest import curation
from retrieval.ingest.entities.curation import merge_entities, prune_entities, split_entity
from retrieval.ingest.importing import import_memories
from retrieval.store import banks, documents, entities, memories
from retrieval.store.database.pool import Pool
from retrieval.types import LinkType
from tests.retrieval.store.servers import Replica, deps

pytestmark = pytest.mark.integration

ITEMS: list[dict[str, Any]] = [
    {"key": "a", "text": "Ann likes green tea", "document_id": "d", "entities": ["Ann"]},
    {
        "key": "b",
        "text": "Bo drinks coffee",
        "document_id": "d",
        "entities": ["Bo", "Ann"],
        "tags": ["own"],
        "links": [{"to": "a", "type": "caused_by", "weight": 0.5}],
    },
    {
        "key": "c",
        "text": "Ann likes black tea",
        "entities": [],
        "links": [{"to": "b", "type": "causes"}],
    },
    {"key": "o", "text": "Ann prefers tea", "type": "observation", "sources": ["a", "c"]},
    {"key": "p", "text": "Tea is loved", "type": "observation", "sources": ["o"]},
    {"key": "q", "text": "Bo wakes up", "type": "observation", "sources": ["b"]},
]


class World:
    """One bank with the items above, and a twin under the same names in another tenant."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.deps = deps(pool)
        self.bank = f"bank-{uuid4().hex[:8]}"
        self.ids: dict[str, str] = {}

    async def fill(self) -> None:
        self.ids = (await import_memories(self.deps, "default", self.bank, ITEMS))["ids"]
        await import_memories(self.deps, "twin", self.bank, ITEMS)
        self.twin = await self.replica("twin")

    async def replica(self, tenant: str = "default") -> Replica:
        return await Replica.of(self.pool, await banks.head(self.pool, tenant, self.bank))

    async def keys(self) -> set[str]:
        names = {id: key for key, id in self.ids.items()}
        return {names[id] for id in (await self.replica()).ids()}

    async def stated(self) -> set[tuple[str, str]]:
        names = {id: key for key, id in self.ids.items()}
        links = (await self.replica()).links()
        return {(names[s], names[t]) for s, t, kind in links if kind != LinkType.SEMANTIC}


@pytest.fixture
async def world(pool: Pool) -> Any:
    found = World(pool)
    await found.fill()
    yield found
    twin = await found.replica("twin")
    assert twin.ids() == found.twin.ids()
    assert twin.head == found.twin.head


async def patch(world: World, key: str, **changes: Any) -> dict[str, Any]:
    return await curation.patch_memory(world.deps, "default", world.bank, world.ids[key], changes)


async def test_deleting_a_memory_takes_what_was_derived(world: World) -> None:
    answer = await curation.delete_memory(world.deps, "default", world.bank, world.ids["a"])
    assert answer == {"success": True, "deleted_count": 3}  # a, o on it, p on that
    assert await world.keys() == {"b", "c", "q"}
    assert await world.stated() == {("c", "b")}
    listed = await memories.list_memories(
        world.pool, "default", world.bank, consolidation_state="pending"
    )
    assert listed["total"] == 2
    with pytest.raises(NotFound):
        await curation.delete_memory(world.deps, "default", world.bank, world.ids["a"])
    with pytest.raises(InvalidInput):
        await curation.delete_memory(world.deps, "default", world.bank, "7")


async def test_editing_a_memory(world: World) -> None:
    before = await world.replica()
    shown = await patch(
        world,
        "a",
        text="Ann likes white tea",
        context="kitchen",
        occurred_start="2024-01-02",
        entities=["Ann", "Cy"],
        fact_type="experience",
    )
    assert (shown["text"], shown["type"], shown["context"]) == (
        "Ann likes white tea",
        "experience",
        "kitchen",
    )
    assert shown["entities"] == ["Ann", "Cy"]
    assert shown["occurred_start"] == "2024-01-02T00:00:00+00:00"
    assert shown["edited_at"] is not None
    assert await world.keys() == {"a", "b", "c", "q"}
    assert await world.stated() == {("b", "a"), ("c", "b")}
    after = await world.replica()
    assert after.head.next_ordinal == before.head.next_ordinal + 1
    assert after.column("created_at")[-1] == before.column("created_at")[0]
    assert after.column("position")[-1] == before.column("position")[0]
    cleared = await patch(world, "a", occurred_start="")
    assert cleared["occurred_start"] is None


@pytest.mark.parametrize(
    ("key", "changes", "field"),
    [
        ("a", {}, "text"),
        ("a", {"reason": "x"}, "text"),
        ("a", {"text": " "}, "text"),
        ("a", {"fact_type": "observation"}, "fact_type"),
        ("a", {"state": "gone"}, "state"),
        ("a", {"occurred_start": "2024-02-02", "occurred_end": "2024-02-01"}, "occurred_end"),
        ("o", {"text": "x"}, "memory_id"),
    ],
)
async def test_edits_that_are_refused(
    world: World, key: str, changes: dict[str, Any], field: str
) -> None:
    before = await world.replica()
    with pytest.raises(InvalidInput) as caught:
        await patch(world, key, **changes)
    assert caught.value.field == field
    assert (await world.replica()).head == before.head


async def test_invalidating_and_restoring(world: World) -> None:
    shown = await patch(world, "a", state="invalidated", reason="wrong")
    assert (shown["state"], shown["invalidation_reason"]) == ("invalidated", "wrong")
    assert await world.keys() == {"b", "c", "q"}
    assert await world.stated() == {("c", "b")}
    listed = await memories.list_memories(world.pool, "default", world.bank, state="invalidated")
    assert [item["id"] for item in listed["items"]] == [world.ids["a"]]
    assert (await memories.list_memories(world.pool, "default", world.bank))["total"] == 3
    with pytest.raises(InvalidInput, match="restore"):
        await patch(world, "a", text="other")
    # Its links may change while it is away.
    await import_memories(
        world.deps,
        "default",
        world.bank,
        [{"key": "b", "text": "Bo drinks water", "links": [{"to": "a", "type": "caused_by"}]}],
    )
    shown = await patch(world, "a", state="valid")
    assert (shown["state"], shown["invalidation_reason"]) == ("valid", None)
    assert await world.keys() == {"a", "b", "c"}
    assert await world.stated() == {("b", "a"), ("c", "b")}
    again = await patch(world, "a", state="valid")
    assert again["updated_at"] == shown["updated_at"]


async def test_deleting_a_document(world: World) -> None:
    answer = await curation.delete_document(world.deps, "default", world.bank, "d")
    assert (answer["document_id"], answer["memory_units_deleted"]) == ("d", 2)
    assert await world.keys() == {"c"}
    with pytest.raises(NotFound):
        await curation.delete_document(world.deps, "default", world.bank, "d")
    assert (await documents.list_documents(world.pool, "default", world.bank))["total"] == 0


async def test_new_tags_for_a_document(world: World) -> None:
    before = await world.replica()
    for tags in (["x"], ["y", "z"]):
        answer = await curation.patch_document(world.deps, "default", world.bank, "d", tags)
        assert answer == {"success": True}
    found = await memories.list_memories(world.pool, "default", world.bank, document_id="d")
    assert {item["text"]: item["tags"] for item in found["items"]} == {
        "Ann likes green tea": ["y", "z"],
        "Bo drinks coffee": ["own", "y", "z"],
    }
    assert await world.keys() == {"a", "b", "c"}
    assert await world.stated() == {("b", "a"), ("c", "b")}
    after = await world.replica()
    np.testing.assert_array_equal(after.vectors[-2:], before.vectors[:2])
    tags_of = after.columns[-1].arrays
    numbers = {tag: no for no, tag in after.delta.tags}
    assert tags_of["tag"].tolist() == [numbers[t] for t in ("y", "z", "own", "y", "z")]
    with pytest.raises(NotFound):
        await curation.patch_document(world.deps, "default", world.bank, "nope", [])


async def test_new_observation_scopes_for_a_document(world: World) -> None:
    async def rescope(**changes: Any) -> None:
        await curation.patch_document(world.deps, "default", world.bank, "d", **changes)

    async def scopes(key: str) -> Any:
        shown = await memories.get(world.pool, "default", world.bank, world.ids[key])
        return shown["observation_scopes"]

    everything = await world.keys()
    await rescope(observation_scopes="combined")  # what it was, said aloud
    assert (await scopes("a"), await scopes("c")) == ("combined", None)
    assert await world.keys() == everything
    await rescope(observation_scopes=[["x"], []])
    assert (await scopes("a"), await scopes("b")) == ([["x"], []], [["x"], []])
    assert await world.keys() == {"a", "b", "c"}  # the observations are to be made anew
    document = await documents.get(world.pool, "default", world.bank, "d")
    assert document["observation_scopes"] == [["x"], []]
    await rescope(tags=["x"])
    assert await scopes("a") == [["x"], []]
    for wrong, field in (({}, "tags"), ({"observation_scopes": "per_day"}, "observation_scopes")):
        with pytest.raises(InvalidInput) as caught:
            await rescope(**wrong)
        assert caught.value.field == field


async def test_another_time_of_mention(world: World) -> None:
    shown = await patch(world, "a", mentioned_at="2021-02-03T04:05:06+01:00")
    assert shown["mentioned_at"] == "2021-02-03T03:05:06+00:00"
    assert (await world.replica()).columns[-1].arrays["mentioned_at"][0] == 1612321506 * 10**6
    assert (await patch(world, "a", mentioned_at=""))["mentioned_at"] is None
    with pytest.raises(InvalidInput, match="mentioned_at"):
        await patch(world, "a", mentioned_at="once")


async def test_clearing_a_bank(world: World) -> None:
    answer = await curation.clear(world.deps, "default", world.bank, "observation")
    assert answer == {"success": True, "deleted_count": 3}
    assert await world.keys() == {"a", "b", "c"}
    before = (await world.replica()).head
    answer = await curation.clear(world.deps, "default", world.bank)
    assert answer["deleted_count"] == 3
    head = await banks.head(world.pool, "default", world.bank)
    assert (head.generation, head.next_ordinal) == (before.generation + 1, 0)
    assert head.version > before.version
    await import_memories(world.deps, "default", world.bank, ITEMS[:1])
    assert len((await world.replica()).ids()) == 1


async def test_edits_at_the_same_time_all_count(world: World) -> None:
    await asyncio.gather(
        patch(world, "a", context="one"),
        patch(world, "a", text="Ann likes red tea"),
        patch(world, "a", occurred_start="2020-01-01"),
    )
    shown = await memories.get(world.pool, "default", world.bank, world.ids["a"])
    assert (shown["context"], shown["text"], shown["occurred_start"][:10]) == (
        "one",
        "Ann likes red tea",
        "2020-01-01",
    )


async def test_an_observation_remembers_what_it_said(world: World) -> None:
    await import_memories(
        world.deps,
        "default",
        world.bank,
        [{"key": "o", "text": "Ann adores tea", "type": "observation", "sources": ["a", "b"]}],
    )
    (past,) = await memories.history(world.pool, "default", world.bank, world.ids["o"])
    assert past["previous_text"] == "Ann prefers tea"
    assert past["new_source_memory_ids"] == [world.ids["b"]]
    shown = await memories.get(world.pool, "default", world.bank, world.ids["o"])
    assert {source["text"] for source in shown["source_memories"]} == {
        "Ann likes green tea",
        "Bo drinks coffee",
    }
    assert shown["entities"] == ["Ann", "Bo"]


# Entities by hand


async def _entity(world: World, name: str) -> dict[str, Any]:
    listed = await entities.list_entities(world.pool, "default", world.bank)
    return next(item for item in listed["items"] if item["canonical_name"] == name)


async def _names(world: World, key: str) -> list[str]:
    found = await memories.get(world.pool, "default", world.bank, world.ids[key])
    return list(found["entities"])


async def test_merging_and_splitting_entities(world: World) -> None:
    ann, bo = await _entity(world, "Ann"), await _entity(world, "Bo")
    before = await world.replica()
    merged = await merge_entities(world.deps, "default", world.bank, ann["id"], [bo["id"]])
    assert (merged["id"], merged["mention_count"], merged["aliases"]) == (ann["id"], 2, ["bo"])
    assert await _names(world, "b") == ["Ann"]
    assert (await entities.get(world.pool, "default", world.bank, bo["id"]))["id"] == ann["id"]
    after = await world.replica()
    assert after.head.next_ordinal == before.head.next_ordinal
    assert {(row.name, row.merged_into) for row in after.delta.entities} == {
        ("Ann", None),
        ("Bo", 0),
    }
    # A later mention of the merged name is the survivor.
    ids = await import_memories(
        world.deps, "default", world.bank, [{"key": "z", "text": "hm", "entities": ["bo"]}]
    )
    world.ids.update(ids["ids"])
    assert await _names(world, "z") == ["Ann"]

    split = await split_entity(world.deps, "default", world.bank, ann["id"], "Bo")
    assert (split["id"], split["canonical_name"], split["mention_count"]) == (bo["id"], "Bo", 1)
    assert await _names(world, "z") == ["Bo"]
    assert await _names(world, "b") == ["Ann"]
    other = await split_entity(
        world.deps, "default", world.bank, ann["id"], "Ann B.", [world.ids["b"]]
    )
    assert other["canonical_name"] == "Ann B."
    assert await _names(world, "b") == ["Ann B."]
    assert await _names(world, "a") == ["Ann"]
    held = await world.replica()
    part = held.columns[-1].arrays
    assert part["entity"].tolist() == [2]
    with pytest.raises(InvalidInput):
        await split_entity(world.deps, "default", world.bank, ann["id"], "X", [world.ids["c"]])
    with pytest.raises(InvalidInput):
        await merge_entities(world.deps, "default", world.bank, ann["id"], [ann["id"]])
    with pytest.raises(NotFound):
        await merge_entities(world.deps, "default", world.bank, ann["id"], [str(uuid4())])


async def test_entities_that_nothing_mentions_are_forgotten(world: World) -> None:
    await patch(world, "b", entities=["Ann"])
    assert await prune_entities(world.deps, "default", world.bank) == 1
    listed = await entities.list_entities(world.pool, "default", world.bank)
    assert [item["canonical_name"] for item in listed["items"]] == ["Ann"]
    ids = await import_memories(
        world.deps, "default", world.bank, [{"key": "z", "text": "hm", "entities": ["Bo"]}]
    )
    world.ids.update(ids["ids"])
    assert await _names(world, "z") == ["Bo"]
    # What is deleted takes them along at once.
    await curation.delete_memory(world.deps, "default", world.bank, world.ids["z"])
    listed = await entities.list_entities(world.pool, "default", world.bank)
    assert [item["canonical_name"] for item in listed["items"]] == ["Ann"]


async def test_how_entities_appear_together(world: World) -> None:
    found = await entities.graph(world.pool, "default", world.bank)
    names = {node["data"]["id"]: node["data"]["label"] for node in found["nodes"]}
    assert sorted(names.values()) == ["Ann", "Bo"]
    (edge,) = found["edges"]
    assert {names[edge["data"]["source"]], names[edge["data"]["target"]]} == {"Ann", "Bo"}
    assert (edge["data"]["weight"], found["total_entities"], found["total_edges"]) == (1, 2, 1)
