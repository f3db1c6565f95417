"""What can be read of a bank: rows by ordinal, lists and filters, and never another bank's."""

from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from retrieval.errors import InvalidInput, NotFound, TooMuch
from retrieval.ingest.curation import patch_memory
from retrieval.ingest.importing import import_memories
from retrieval.store import (
    banks,
    chunks,
    documents,
    entities,
    memories,
    metadata,
    metadata_scan,
    operation_views,
    stats,
    tags,
)
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.types import FactType, Ints, TagAll, TagAny, TagLeaf, TagNot, TagsMatch
from tests.retrieval import test_metadata as table
from tests.retrieval.store.servers import deps

pytestmark = pytest.mark.integration

ITEMS: list[dict[str, Any]] = [
    {
        "key": "ann",
        "text": "Ann baked bread",
        "context": "kitchen",
        "tags": ["home"],
        "metadata": {"n": 3, "kind": "food"},
        "entities": ["Ann"],
        "document_id": "d1",
        "mentioned_at": "2024-01-03",
        "occurred_start": "2024-01-02",
    },
    {
        "key": "bo",
        "text": "Bo sold 100% of it",
        "type": "experience",
        "tags": ["home", "work"],
        "metadata": {"n": "20", "kind": "trade"},
        "entities": ["Bo"],
        "document_id": "d1",
        "mentioned_at": "2024-01-02",
    },
    {"key": "cy", "text": "Cy slept", "mentioned_at": "2024-01-01", "metadata": {"n": "x"}},
    {"key": "never", "text": "Nobody came", "mentioned_at": None},
    {
        "key": "o",
        "text": "They live on bread",
        "type": "observation",
        "sources": ["ann", "bo"],
        "mentioned_at": "2024-01-04",
    },
    {
        "key": "oo",
        "text": "Bread matters",
        "type": "observation",
        "sources": ["o"],
        "mentioned_at": "2024-01-05",
        "tags": ["Work"],
    },
]
_FILLED: list[tuple[str, int, dict[str, str]]] = []


class Filled:
    def __init__(self, pool: Pool, bank_id: str, bank: int, ids: dict[str, str]) -> None:
        self.pool, self.bank_id, self.bank, self.ids = pool, bank_id, bank, ids

    async def listed(self, **filters: Any) -> list[str]:
        found = await memories.list_memories(self.pool, "default", self.bank_id, **filters)
        names = {id: key for key, id in self.ids.items()}
        assert found["total"] >= len(found["items"])
        return [names[item["id"]] for item in found["items"]]


@pytest.fixture
async def filled(pool: Pool) -> Filled:
    if not _FILLED:  # once for all tests: they only read
        bank_id = f"bank-{uuid4().hex[:8]}"
        ids = (await import_memories(deps(pool), "default", bank_id, ITEMS))["ids"]
        await import_memories(deps(pool), "other", bank_id, ITEMS)
        head = await banks.head(pool, "default", bank_id)
        _FILLED.append((bank_id, head.bank, ids))
    return Filled(pool, *_FILLED[0])


def ordinals(*values: int) -> Ints:
    return np.array(values, np.int32)


async def test_rows_come_in_the_order_asked(filled: Filled) -> None:
    found = await memories.rows(filled.pool, filled.bank, ordinals(4, 0, 99, 2))
    assert [row.ordinal for row in found] == [4, 0, 2]
    assert [row.fact_type for row in found] == [
        FactType.OBSERVATION,
        FactType.WORLD,
        FactType.WORLD,
    ]
    assert found[0].source_ids == (filled.ids["ann"], filled.ids["bo"])
    assert await memories.rows(filled.pool, filled.bank, ordinals()) == []
    assert await memories.rows(filled.pool, filled.bank, ordinals(4, 0, 99, 2), 0) == found
    assert await memories.rows(filled.pool, filled.bank, ordinals(4, 0, 99, 2), 1) == []
    texts = await memories.texts(filled.pool, filled.bank, ordinals(1, 0))
    assert [(t[0], t[1], t[2]) for t in texts] == [
        (1, "Bo sold 100% of it", None),
        (0, "Ann baked bread", "kitchen"),
    ]
    assert texts[1][3] is not None
    wanted = [filled.ids["bo"], str(uuid4()), filled.ids["ann"]]
    by_id = await memories.by_ids(filled.pool, filled.bank, wanted)
    assert [row.ordinal for row in by_id] == [1, 0]


async def test_observations_have_the_entities_of_their_sources(filled: Filled) -> None:
    found = await memories.entity_names(filled.pool, filled.bank, ordinals(0, 2, 4, 5))
    names = {ordinal: [name for _, name in named] for ordinal, named in found.items()}
    assert names == {0: ["Ann"], 4: ["Ann", "Bo"], 5: ["Ann", "Bo"]}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ({"kind": {"eq": "food"}}, [0]),
        ({"n": {"eq": 3}}, [0]),
        ({"n": {"eq": "3.0"}}, []),
        ({"n": {"gte": 3}}, [0, 1]),
        ({"n": {"gte": "3"}}, [0, 2]),
        ({"n": {"gt": 3, "lt": 100}}, [1]),
        ({"n": {"lte": 20}, "kind": {"in": ["food", "none"]}}, [0]),
        ({"kind": {"in": [None, "trade"]}}, [1, 2, 3, 4, 5]),
        ({"kind": {"eq": None}, "n": {"exists": True}}, [2]),
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"n": {"exists": True}}, [0, 1, 2]),
        ({"n": {"exists": False}}, [3, 4, 5]),
        ({"nothing": {"eq": 1}}, []),
    ],
)
async def test_metadata(
    filled: Filled,
    predicate: dict[str, Any],
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predicates = metadata.compiled(predicate)
    found = await metadata_scan.matching(filled.pool, filled.bank, predicates)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    monkeypatch.setattr(memories, "_PAGE_OF_TESTS", 1)
    paged = await metadata_scan.matching(filled.pool, filled.bank, predicates, 0)
    assert paged.tolist() == expected
    assert len(await metadata_scan.matching(filled.pool, filled.bank, predicates, 1)) == 0


async def test_the_database_reads_metadata_as_the_table_does(pool: Pool) -> None:
    """Every value of the table against every operand, the first search being the database's."""
    values = sorted({stored for stored, _ in table.SAME + table.DIFFERENT if stored is not None})
    bank_id = f"bank-{uuid4().hex[:8]}"
    rows = [{"text": f"line {i}", "metadata": {"k": value}} for i, value in enumerate(values)]
    await import_memories(deps(pool), "default", bank_id, [*rows, {"text": "without"}])
    bank = (await banks.head(pool, "default", bank_id)).bank
    kept = [*values, None]
    for wanted in [wanted for _, wanted in table.SAME + table.DIFFERENT]:
        for predicate in ({"eq": wanted}, {"in": [wanted, "x"], "exists": True}):
            found = await metadata_scan.matching(pool, bank, metadata.compiled({"k": predicate}))
            expected = [i for i, value in enumerate(kept) if table.oracle(value, predicate)]
            assert found.tolist() == expected, predicate


LISTED = [
    ("Das Ge\u00adsamt\u00adkonzept liegt bei Anna", "gesamtKONZEPT"),
    ("the word is pine\u2060apple", "pineapple"),
    ("the word is pineapple", "pine\u2060apple"),
    ("O'Brien's kiln", "obrien"),
    ("O\u2019Brien's kiln", "O'BRIEN"),
    ("Cafe\u0301 Zürich", "café zurich"),
    ("Cafe Zurich", "CAFÉ"),
    ("İstanbul", "istanbul"),
    ("ΟΔΟΣ", "οδός"),
    ("ＰＡＹ－９９３１", "pay-9931"),
    ("مَدْرَسَةٌ", "مدرسة"),
    ("ﾃﾞｰﾀ", "データ"),
    ("two\u00a0blanks\nhere", "two blanks here"),
    ("two\n\nlines here", "two lines"),
    ("100%_sure\\", "%_SURE\\"),
    ("ж" * 12_000 + " needle", "Needle"),
    ("ж" * 4_990 + "needle" + "ж" * 6_000, "needle"),
]


async def test_q_of_lists_folds_as_recall_does(pool: Pool) -> None:
    bank_id = f"bank-{uuid4().hex[:8]}"
    rows = [{"key": str(i), "text": text} for i, (text, _) in enumerate(LISTED)]
    rows += [{"text": "another line", "context": text} for text, _ in LISTED[:3]]
    rows += [{"text": f"filler ж {i}"} for i in range(450)]  # pages of those that are folded here
    ids = (await import_memories(deps(pool), "default", bank_id, rows))["ids"]
    for i, (text, q) in enumerate(LISTED):
        found = await memories.list_memories(pool, "default", bank_id, q=q, limit=500)
        assert ids[str(i)] in {item["id"] for item in found["items"]}, text
        assert found["total"] == len(found["items"]) < 10
    for q, total in (("filler", 450), ("nowhere", 0), ("ж nowhere", 0), ("''", 0), ("\u00ad", 2)):
        found = await memories.list_memories(pool, "default", bank_id, q=q, limit=1)
        assert found["total"] == total, q
    assert (await memories.list_memories(pool, "default", bank_id, q="filler", type="experience"))[
        "total"
    ] == 0


async def test_q_of_documents_folds_too(pool: Pool) -> None:
    bank_id = f"bank-{uuid4().hex[:8]}"
    names = ["Café-Notes", "Stra\u00dfe 1", "plain", "O'Brien_1"]
    await import_memories(
        deps(pool), "default", bank_id, [{"text": "x", "document_id": name} for name in names]
    )
    for q, expected in (("CAFE", 0), ("strasse", 1), ("PLAIN", 2), ("obrien_", 3), ("ｐlａin", 2)):
        found = await documents.list_documents(pool, "default", bank_id, q=q)
        assert [item["id"] for item in found["items"]] == [names[expected]], q


async def test_only_shown_sources_lend_their_entities(filled: Filled) -> None:
    shown = [filled.ids["ann"], filled.ids["o"]]
    found = await memories.entity_names(filled.pool, filled.bank, ordinals(4, 5), 0, shown)
    assert {ordinal: [name for _, name in own] for ordinal, own in found.items()} == {
        4: ["Ann"],
        5: ["Ann"],
    }
    assert await memories.entity_names(filled.pool, filled.bank, ordinals(4, 5), 0, []) == {}


async def test_origins(filled: Filled) -> None:
    found = await memories.origins(filled.pool, filled.bank, ordinals(5), 0)
    assert {seen.id for seen in found} == {filled.ids[key] for key in ("oo", "o", "ann", "bo")}
    ann = next(seen for seen in found if seen.id == filled.ids["ann"])
    assert (list(ann.tags), ann.metadata) == (["home"], {"n": "3", "kind": "food"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["oo", "o", "ann", "bo", "cy", "never"]),
        ({"limit": 2, "offset": 1}, ["o", "ann"]),
        ({"limit": 0}, []),
        ({"type": "experience"}, ["bo"]),
        ({"q": "BREAD"}, ["oo", "o", "ann"]),
        ({"q": "100%"}, ["bo"]),
        ({"q": "kitch"}, ["ann"]),
        ({"q": "a_n"}, []),
        ({"document_id": "d1"}, ["ann", "bo"]),
        ({"state": "invalidated"}, []),
        ({"consolidation_state": "pending"}, ["ann", "bo", "cy", "never"]),
        ({"consolidation_state": "done"}, []),
        ({"time_field": "mentioned_at"}, ["oo", "o", "ann", "bo", "cy"]),
        (
            {"time_field": "mentioned_at", "start_date": "2024-01-02", "end_date": "2024-01-04"},
            ["ann", "bo"],
        ),
        ({"time_field": "occurred_start"}, ["ann"]),
        ({"start_date": "2999-01-01"}, []),
        ({"tags": ["home"]}, ["o", "ann", "bo", "cy", "never"]),
        ({"tags": ["home"], "tags_match": "any_strict"}, ["ann", "bo"]),
        ({"tags": ["home", "work"], "tags_match": "all"}, ["o", "bo", "cy", "never"]),
        ({"tags": ["home", "work"], "tags_match": "all_strict"}, ["bo"]),
        ({"tags": ["home"], "tags_match": "exact"}, ["ann"]),
        ({"tags": [], "tags_match": "exact"}, ["o", "cy", "never"]),
        ({"tags": [], "tags_match": "all_strict"}, ["oo", "o", "ann", "bo", "cy", "never"]),
    ],
)
async def test_lists(filled: Filled, filters: dict[str, Any], expected: list[str]) -> None:
    assert await filled.listed(**filters) == expected


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"type": "opinion"}, "type"),
        ({"state": "odd"}, "state"),
        ({"consolidation_state": "odd"}, "consolidation_state"),
        ({"entity_id": "7"}, "entity_id"),
        ({"tags": ["a"], "tags_match": "some"}, "tags_match"),
        ({"time_field": "text"}, "time_field"),
        ({"start_date": "soon"}, "start_date"),
        ({"limit": -1}, "limit"),
        ({"offset": -1}, "offset"),
    ],
)
async def test_bad_filters(filled: Filled, filters: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await filled.listed(**filters)
    assert caught.value.field == field


async def test_memories_of_an_entity(filled: Filled) -> None:
    listed = await entities.list_entities(filled.pool, "default", filled.bank_id)
    ann = next(e for e in listed["items"] if e["canonical_name"] == "Ann")
    assert await filled.listed(entity_id=ann["id"]) == ["ann"]
    shown = await entities.get(filled.pool, "default", filled.bank_id, ann["id"])
    assert (shown["mention_count"], shown["observations"], shown["aliases"]) == (1, [], [])


async def test_shapes(filled: Filled) -> None:
    listed = await memories.list_memories(filled.pool, "default", filled.bank_id, type="world")
    item = next(i for i in listed["items"] if i["id"] == filled.ids["ann"])
    assert item["entities"] == "Ann"
    assert item["fact_type"] == "world"
    assert item["date"] == "2024-01-02T00:00:00+00:00"
    assert item["proof_count"] == 1
    assert item["source_memory_ids"] == []
    cy = next(i for i in listed["items"] if i["id"] == filled.ids["cy"])
    assert (cy["context"], cy["entities"], cy["metadata"], cy["tags"]) == ("", "", {"n": "x"}, [])
    shown = await memories.get(filled.pool, "default", filled.bank_id, filled.ids["o"])
    assert (shown["type"], shown["entities"], shown["proof_count"]) == (
        "observation",
        ["Ann", "Bo"],
        2,
    )
    assert [s["text"] for s in shown["source_memories"]] == [
        "Ann baked bread",
        "Bo sold 100% of it",
    ]
    assert shown["history"] == []


async def test_what_is_not_there(filled: Filled) -> None:
    pool, bank = filled.pool, filled.bank_id
    some = str(uuid4())
    for look in (
        memories.get(pool, "default", bank, some),
        memories.history(pool, "default", bank, some),
        memories.list_memories(pool, "default", "no such bank"),
        documents.get(pool, "default", bank, "no"),
        chunks.of_document(pool, "default", bank, "no"),
        chunks.get(pool, "default", "no"),
        entities.get(pool, "default", bank, some),
        stats.stats(pool, "default", "no such bank"),
        tags.list_tags(pool, "default", "no such bank"),
        operation_views.cancel(pool, "default", bank, some),
    ):
        with pytest.raises(NotFound):
            await look
    for bad in (
        memories.get(pool, "default", bank, "7"),
        entities.get(pool, "default", bank, "7"),
        operation_views.get(pool, "default", bank, "7"),
        operation_views.list_operations(pool, "default", bank, status="odd"),
        chunks.of_document(pool, "default", bank, "d1", limit=0),
    ):
        with pytest.raises(InvalidInput):
            await bad


async def test_another_tenants_memory_is_not_there(filled: Filled) -> None:
    with pytest.raises(NotFound):
        await memories.get(filled.pool, "other", filled.bank_id, filled.ids["ann"])
    with pytest.raises(NotFound):
        await patch_memory(
            deps(filled.pool), "other", filled.bank_id, filled.ids["ann"], {"text": "mine"}
        )


async def test_tags_in_use(filled: Filled) -> None:
    async def listed(**filters: Any) -> list[tuple[str, int]]:
        found = await tags.list_tags(filled.pool, "default", filled.bank_id, **filters)
        return [(item["tag"], item["count"]) for item in found["items"]]

    assert await listed() == [("home", 2), ("Work", 1), ("work", 1)]
    assert await listed(q="WO*") == [("Work", 1), ("work", 1)]
    assert await listed(q="*m*") == [("home", 2)]
    assert await listed(q="hom") == []
    assert await listed(q="ＷÖrk") == [("Work", 1), ("work", 1)]
    assert await listed(q="w*r*k") == [("Work", 1), ("work", 1)]
    assert await listed(q="w*w*k") == await listed(q="work*work") == []
    assert await listed(q="*") == await listed()
    assert await listed(limit=1, offset=1) == [("Work", 1)]
    assert await listed(source="mental_models") == []
    past = await tags.list_tags(filled.pool, "default", filled.bank_id, offset=9)
    assert (past["items"], past["total"]) == ([], 3)


async def test_a_page_of_long_memories_is_bounded_in_bytes(pool: Pool) -> None:
    bank_id = f"bank-{uuid4().hex[:8]}"
    items = [{"text": f"{i} " + "long " * 39_000} for i in range(100)]
    await import_memories(deps(pool), "default", bank_id, items)
    with pytest.raises(TooMuch, match="ask for 8") as refused:
        await memories.list_memories(pool, "default", bank_id, limit=100)
    assert refused.value.field == "limit"
    fitting = int(str(refused.value).split("ask for ")[1].split()[0])
    found = await memories.list_memories(pool, "default", bank_id, limit=fitting)
    assert (len(found["items"]), found["total"]) == (fitting, 100)
    with pytest.raises(TooMuch):
        await memories.list_memories(pool, "default", bank_id, limit=fitting + 1)
    await banks.delete(pool, "default", bank_id)


async def test_entities_by_a_part_of_their_names(pool: Pool) -> None:
    bank_id = f"bank-{uuid4().hex[:8]}"
    items = [{"text": "t", "entities": ["José Marques", "Ann Berg", "100%"]}]
    await import_memories(deps(pool), "default", bank_id, items)

    async def listed(q: str) -> list[str]:
        found = await entities.list_entities(pool, "default", bank_id, q=q)
        assert found["total"] == len(found["items"])
        return [item["canonical_name"] for item in found["items"]]

    assert await listed("ＪＯＳÉ  m") == ["José Marques"]
    assert await listed("ber") == ["Ann Berg"]
    assert await listed("%") == ["100%"]
    assert await listed("_") == []


async def test_numbers(filled: Filled) -> None:
    found = await stats.stats(filled.pool, "default", filled.bank_id)
    assert found["nodes_by_fact_type"] == {"world": 3, "experience": 1, "observation": 2}
    assert (found["total_nodes"], found["total_documents"], found["total_observations"]) == (
        6,
        1,
        2,
    )
    assert found["pending_consolidation"] == 4
    assert found["last_memory_write_at"] is not None
    scopes = await memories.observation_scopes(filled.pool, "default", filled.bank_id)
    assert scopes["scopes"] == [{"tags": [], "count": 1}, {"tags": ["Work"], "count": 1}]


async def test_documents(filled: Filled) -> None:
    listed = await documents.list_documents(filled.pool, "default", filled.bank_id, q="D")
    (item,) = listed["items"]
    assert (item["id"], item["memory_unit_count"], item["text_length"]) == ("d1", 2, 0)
    shown = await documents.get(filled.pool, "default", filled.bank_id, "d1")
    assert shown["nodes_by_fact_type"] == {"world": 1, "experience": 1}
    assert shown["original_text"] is None


@pytest.fixture
async def village(pool: Pool) -> str:
    """A bank where what is seen of its entities depends on the tags looked at."""

    def told(key: str, tags: list[str], names: list[str], day: int, **more: Any) -> dict[str, Any]:
        return {
            "key": key, "text": key, "tags": tags, "entities": names,
            "mentioned_at": f"2024-02-{day:02}", **more,
        }  # fmt: skip

    bank_id = f"village-{uuid4().hex[:8]}"
    items = [
        told("fair", ["market"], ["Mia", "Olaf"], 1),
        told("eggs", ["market", "farm"], ["Mia", "Olaf"], 2, occurred_start="2023-05-05"),
        told("barn", ["farm"], ["Olaf", "Pia"], 3),
        told("song", [], ["Mia"], 4),
        told("gone", ["market"], ["Pia"], 5),
    ]
    done = await import_memories(deps(pool), "default", bank_id, items)
    await patch_memory(
        deps(pool), "default", bank_id, done["ids"]["gone"], {"state": "invalidated"}
    )
    return bank_id


FARM = TagLeaf(("farm",))
MARKET = TagLeaf(("market",))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (tags.TagFilter(["market"]), {"Mia": 3, "Olaf": 2}),
        (tags.TagFilter(["market"], TagsMatch.ANY_STRICT), {"Mia": 2, "Olaf": 2}),
        (tags.TagFilter(["market", "farm"], TagsMatch.ANY_STRICT), {"Olaf": 3, "Mia": 2, "Pia": 1}),
        (tags.TagFilter(["market", "farm"], TagsMatch.ALL_STRICT), {"Mia": 1, "Olaf": 1}),
        (tags.TagFilter(["farm"], TagsMatch.EXACT), {"Olaf": 1, "Pia": 1}),
        (tags.TagFilter([], TagsMatch.EXACT), {"Mia": 1}),
        (tags.TagFilter(["Market"], TagsMatch.ANY_STRICT), {}),
        (tags.TagFilter(groups=[FARM, TagNot(MARKET)]), {"Olaf": 1, "Pia": 1}),
        (tags.TagFilter(groups=[TagAny((TagAll((FARM, MARKET)), TagLeaf((), TagsMatch.EXACT)))]),
         {"Mia": 2, "Olaf": 1}),
        (tags.TagFilter(groups=[TagLeaf(())]), {}),
        (tags.TagFilter(groups=[TagLeaf((), TagsMatch.ANY)]), {"Mia": 1}),
        (tags.TagFilter(groups=[TagLeaf((), TagsMatch.ALL_STRICT)]), 
         {"Olaf": 3, "Mia": 2, "Pia": 1}),
        (tags.TagFilter(groups=[TagNot(TagLeaf((), TagsMatch.ALL_STRICT))]), {"Mia": 1}),
        (tags.TagFilter(match=TagsMatch.EXACT, groups=[FARM]), {}),
    ],
)  # fmt: skip
async def test_entities_as_the_memories_with_these_tags_show_them(
    pool: Pool, village: str, wanted: tags.TagFilter, expected: dict[str, int]
) -> None:
    listed = await entities.list_entities(pool, "default", village, wanted=wanted)
    counts = {item["canonical_name"]: item["mention_count"] for item in listed["items"]}
    assert list(counts.items()) == list(expected.items())
    assert listed["total"] == len(expected)
    graph = await entities.graph(pool, "default", village, wanted=wanted)
    shown = {node["data"]["label"]: node["data"]["mentionCount"] for node in graph["nodes"]}
    assert shown == expected
    assert graph["total_entities"] == len(expected)


async def test_one_entity_and_its_company_under_tags(pool: Pool, village: str) -> None:
    everyone = await entities.list_entities(pool, "default", village)
    ids = {item["canonical_name"]: item["id"] for item in everyone["items"]}
    market = tags.TagFilter(["market"], TagsMatch.ANY_STRICT)
    mia = await entities.get(pool, "default", village, ids["Mia"], wanted=market)
    assert (mia["mention_count"], mia["first_seen"][:10], mia["last_seen"][:10]) == (
        2, "2023-05-05", "2024-02-01",
    )  # fmt: skip
    with pytest.raises(NotFound):  # only an invalidated memory has her at the market
        await entities.get(pool, "default", village, ids["Pia"], wanted=market)

    def pairs(graph: dict[str, Any]) -> list[tuple[str, int, str]]:
        names = {node["data"]["id"]: node["data"]["label"] for node in graph["nodes"]}
        return [
            (
                " ".join(sorted(names[edge["data"][end]] for end in ("source", "target"))),
                edge["data"]["weight"],
                edge["data"]["lastCooccurred"][:10],
            )
            for edge in graph["edges"]
        ]

    graph = await entities.graph(pool, "default", village, wanted=market)
    assert pairs(graph) == [("Mia Olaf", 2, "2024-02-01")]
    farm = tags.TagFilter(["farm"], TagsMatch.ANY_STRICT)
    graph = await entities.graph(pool, "default", village, wanted=farm)
    assert sorted(pairs(graph)) == [("Mia Olaf", 1, "2023-05-05"), ("Olaf Pia", 1, "2024-02-03")]
    graph = await entities.graph(pool, "default", village, wanted=farm, min_count=2)
    assert (pairs(graph), graph["total_entities"], graph["total_edges"]) == ([], 1, 0)
    page = await entities.list_entities(pool, "default", village, wanted=farm, limit=1, offset=2)
    assert ([item["canonical_name"] for item in page["items"]], page["total"]) == (["Pia"], 3)
    past = await entities.list_entities(pool, "default", village, wanted=farm, offset=9)
    assert (past["items"], past["total"]) == ([], 3)


async def test_a_graph_has_as_many_edges_as_asked(pool: Pool) -> None:
    bank_id = f"knot-{uuid4().hex[:8]}"
    item = {"key": "all", "text": "They met", "entities": ["Ada", "Ben", "Cleo", "Dov"]}
    await import_memories(deps(pool), "default", bank_id, [item])
    graph = await entities.graph(pool, "default", bank_id, limit=4)
    assert (len(graph["nodes"]), len(graph["edges"]), graph["total_edges"]) == (4, 4, 6)


async def test_documents_by_time(pool: Pool) -> None:
    bank_id = f"dated-{uuid4().hex[:8]}"
    for name in ("old", "mid", "new"):
        item = {"key": name, "text": name, "document_id": name, "tags": [name]}
        await import_memories(deps(pool), "default", bank_id, [item])
    bank = (await banks.head(pool, "default", bank_id)).bank
    times = {"old": (1, 9), "mid": (2, 8), "new": (3, 7)}

    async def age(connection: Connection) -> None:
        for name, (made, changed) in times.items():
            await connection.execute(
                "update documents set created_at = make_timestamptz(2024, 3, $3, 0, 0, 0, 'UTC'),"
                " updated_at = make_timestamptz(2024, 3, $4, 0, 0, 0, 'UTC')"
                " where bank = $1 and document_id = $2",
                bank, name, made, changed,
            )  # fmt: skip

    await write(pool, age)

    async def listed(**filters: Any) -> tuple[list[str], int]:
        found = await documents.list_documents(pool, "default", bank_id, **filters)
        return [item["id"] for item in found["items"]], found["total"]

    assert await listed() == (["old", "mid", "new"], 3)
    assert await listed(time_field="created_at") == (["new", "mid", "old"], 3)
    assert await listed(start_date="2024-03-08") == (["old", "mid"], 2)
    assert await listed(end_date="2024-03-08T00:00:00Z") == (["new"], 1)
    between = {"start_date": "2024-03-02T01:00:00+01:00", "end_date": "2024-03-03"}
    assert await listed(time_field="created_at", **between) == (["mid"], 1)
    window = {"time_field": "created_at", "start_date": "2024-03-01", "end_date": "2024-03-03"}
    assert await listed(**window, limit=1, offset=1) == (["old"], 2)
    assert await listed(**window, q="ol") == (["old"], 1)
    for filters, field in (
        ({"time_field": "mentioned_at"}, "time_field"),
        ({"start_date": "soon"}, "start_date"),
        ({"end_date": "2024-13-01"}, "end_date"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await listed(**filters)
        assert caught.value.field == field
