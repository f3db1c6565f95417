"""Import into a real database: all or nothing, replaced by key, errors that name the field."""

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pytest

from retrieval.errors import InvalidInput, NotFound
from retrieval.ingest.importing import import_memories
from retrieval.settings import RetainSettings
from retrieval.store import banks, memories
from retrieval.store.database.pool import Pool
from retrieval.types import FactType, LinkType
from tests.retrieval.store.servers import HashEmbedder, Replica, deps

pytestmark = pytest.mark.integration

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def bank_id() -> str:
    return f"bank-{uuid4().hex[:8]}"


async def replica(pool: Pool, bank: str) -> Replica:
    return await Replica.of(pool, await banks.head(pool, "default", bank))


async def test_every_field_comes_back(pool: Pool) -> None:
    bank = bank_id()
    answer = await import_memories(
        deps(pool, clock=lambda: NOW),
        "default",
        bank,
        [
            {
                "key": "k1",
                "text": "Ann moved to Oslo",
                "type": "experience",
                "context": "diary",
                "occurred_start": "2024-05-01",
                "occurred_end": "2024-05-02T10:00:00+02:00",
                "mentioned_at": "2024-06-01T00:00:00Z",
                "entities": ["Ann", {"text": "Oslo", "type": "PLACE"}, " ann "],
                "tags": ["moves", "moves", "home"],
                "metadata": {"n": 3, "ok": True, "none": None, "s": "x"},
                "document_id": "d/1",
            }
        ],
    )
    assert answer["imported"] == 1
    head = await banks.head(pool, "default", bank)
    (row,) = await memories.rows(pool, head.bank, np.array([0], np.int32))
    assert row.id == answer["ids"]["k1"]
    assert (row.text, row.context, row.document_id) == ("Ann moved to Oslo", "diary", "d/1")
    assert row.fact_type is FactType.EXPERIENCE
    assert row.occurred_start == datetime(2024, 5, 1, tzinfo=UTC)
    assert row.occurred_end == datetime(2024, 5, 2, 8, tzinfo=UTC)
    assert row.mentioned_at == datetime(2024, 6, 1, tzinfo=UTC)
    assert row.tags == ("moves", "home")
    assert row.metadata == {"n": "3", "ok": "true", "s": "x"}
    names = await memories.entity_names(pool, head.bank, np.array([0], np.int32))
    assert [name for _, name in names[0]] == ["Ann", "Oslo"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, NOW),
        ({"occurred_start": "2020-01-02"}, datetime(2020, 1, 2, tzinfo=UTC)),
        ({"occurred_start": "2020-01-02", "mentioned_at": None}, None),
        ({"mentioned_at": "unset"}, None),
        ({"mentioned_at": "2019-01-01T00:00:00"}, datetime(2019, 1, 1, tzinfo=UTC)),
    ],
)
async def test_when_it_was_mentioned(
    pool: Pool, given: dict[str, object], expected: datetime | None
) -> None:
    bank = bank_id()
    await import_memories(
        deps(pool, clock=lambda: NOW), "default", bank, [{"text": "fact", **given}]
    )
    head = await banks.head(pool, "default", bank)
    (row,) = await memories.rows(pool, head.bank, np.array([0], np.int32))
    assert row.mentioned_at == expected


async def test_embedded_and_indexed_text(pool: Pool) -> None:
    embedder = HashEmbedder()
    bank = bank_id()
    await import_memories(
        deps(pool, embedder=embedder),
        "default",
        bank,
        [
            {"key": "a", "text": "Ann left", "occurred_start": "2024-05-01", "entities": ["Ann"]},
            {
                "key": "b",
                "text": "A trip",
                "occurred_start": "2024-05-01",
                "occurred_end": "2024-06-03",
            },
            {"key": "c", "text": "Timeless", "mentioned_at": None},
            {"text": "Ann travels", "type": "observation", "sources": ["a", "b"]},
            {"text": "Tom naps", "mentioned_at": None},
            {"text": "Cy naps", "mentioned_at": None, "entities": []},
        ],
    )
    assert embedder.seen == [
        "Ann left (happened in May 2024) [Ann]",
        "A trip (happened from May 2024 to June 2024)",
        "Timeless",
        "Ann travels",
        "Tom naps [Tom]",
        "Cy naps",
    ]
    rows = await pool.fetch(
        "select m.text_signals from memory_units m join banks b using (bank)"
        " where bank_id = $1 order by ordinal",
        bank,
    )
    signals = ["Ann May 1 2024", "May 1 2024 June 3 2024", None, None, "Tom", None]
    assert [row[0] for row in rows] == signals


@pytest.mark.parametrize(
    ("items", "field", "words"),
    [
        ([{"text": "ok"}, {"key": "x"}], "memories[1].text", "key 'x'"),
        ([{"text": "ok", "txet": 1}], "memories[0].txet", "is not a field"),
        ([{"text": " \x00 "}], "memories[0].text", "blank"),
        ([{"text": 3}], "memories[0].text", "string"),
        ([{"text": "a", "key": "z"}, {"text": "b", "key": "z"}], "memories[1].key", "memories[0]"),
        ([{"text": "a", "type": "opinion"}], "memories[0].type", "experience"),
        ([{"text": "a", "occurred_start": "May"}], "memories[0].occurred_start", "ISO 8601"),
        (
            [{"text": "a", "occurred_start": "2024-02-02", "occurred_end": "2024-02-01"}],
            "memories[0].occurred_end",
            "before",
        ),
        ([{"text": "a", "tags": [1]}], "memories[0].tags[0]", "string"),
        ([{"text": "a", "metadata": {"k": []}}], "memories[0].metadata.k", "string"),
        (
            [{"text": "a", "metadata": {"k": 9.80934561231233026e19}}],
            "memories[0].metadata.k",
            "text",
        ),
        ([{"text": "a", "proof_count": 1.5}], "memories[0].proof_count", "whole number"),
        ([{"text": "a", "sources": ["b"]}], "memories[0].sources", "observation"),
        (
            [{"key": "q", "text": "a", "type": "observation", "sources": ["b"]}],
            "memories[0].sources[0]",
            "key 'q'",
        ),
        (
            [{"key": "q", "text": "a", "links": [{"to": "nope", "type": "causes"}]}],
            "memories[0].links[0].to",
            "'nope'",
        ),
        (
            [{"key": "q", "text": "a", "links": [{"to": "q", "type": "likes"}]}],
            "memories[0].links[0].type",
            "caused_by",
        ),
        (
            [{"key": "q", "text": "a", "links": [{"to": "q", "type": "causes", "weight": 2}]}],
            "memories[0].links[0].weight",
            "0 to 1",
        ),
    ],
)
async def test_bad_items_change_nothing(
    pool: Pool, items: list[dict[str, object]], field: str, words: str
) -> None:
    bank = bank_id()
    with pytest.raises(InvalidInput, match="memories") as caught:
        await import_memories(deps(pool), "default", bank, items)
    assert caught.value.field == field
    assert words in str(caught.value)
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)


async def test_same_key_replaces(pool: Pool) -> None:
    bank, ingest = bank_id(), deps(pool)
    first = await import_memories(
        ingest,
        "default",
        bank,
        [
            {"key": "a", "text": "Ann likes tea", "document_id": "d"},
            {"key": "b", "text": "It rained", "document_id": "d"},
            {"key": "c", "text": "No picnic", "links": [{"to": "b", "type": "caused_by"}]},
            {"key": "o", "text": "Ann is calm", "type": "observation", "sources": ["a"]},
            {"key": "p", "text": "Weather was bad", "type": "observation", "sources": ["b", "c"]},
        ],
    )
    before = await replica(pool, bank)
    again = await import_memories(
        ingest,
        "default",
        bank,
        [
            {
                "key": "b",
                "text": "It poured",
                "document_id": "d",
                "links": [{"to": "a", "type": "enables"}],
            }
        ],
    )
    ids = first["ids"]
    assert again["ids"]["b"] == ids["b"]
    after = await replica(pool, bank)
    assert after.head.version == before.head.version + 1
    assert after.head.next_ordinal == 6
    assert sorted(after.ids()) == sorted([ids["a"], ids["b"], ids["c"], ids["o"]])
    assert after.delta.tombstones.tolist() == [1, 4]
    stated = {link for link in after.links() if link[2] != LinkType.SEMANTIC}
    assert stated == {
        (ids["c"], ids["b"], LinkType.CAUSED_BY),
        (ids["b"], ids["a"], LinkType.ENABLES),
    }
    assert after.column("position")[5] == before.column("position")[1]


async def test_proof_is_the_number_of_live_sources(pool: Pool) -> None:
    bank = bank_id()
    await import_memories(
        deps(pool),
        "default",
        bank,
        [
            {"text": "seen", "type": "observation", "sources": ["a", "b", "a"]},
            {"text": "told", "type": "observation", "sources": ["a"], "proof_count": 7},
            {"text": "bare", "type": "observation"},
            {"key": "a", "text": "one"},
            {"key": "b", "text": "two"},
        ],
    )
    held = await replica(pool, bank)
    assert held.column("proof").tolist() == [2, 7, -1, -1, -1]
    sources = held.columns[0].arrays
    assert np.diff(sources["source_ptr"]).tolist() == [2, 1, 0, 0, 0]


async def test_semantic_links_join_old_and_new(pool: Pool) -> None:
    bank, ingest = bank_id(), deps(pool)
    await import_memories(
        ingest,
        "default",
        bank,
        [
            {"key": "a", "text": "the red boat sails north", "mentioned_at": None},
            {"key": "b", "text": "taxes are due in april", "mentioned_at": None},
        ],
    )
    answer = await import_memories(
        ingest,
        "default",
        bank,
        [
            {"key": "c", "text": "the red boat sails south", "mentioned_at": None},
            {"key": "d", "text": "the red boat sails west", "mentioned_at": None},
            {
                "key": "e",
                "text": "the red boat sails east",
                "mentioned_at": None,
                "type": "experience",
            },
        ],
    )
    held = await replica(pool, bank)
    pairs = {frozenset(link[:2]) for link in held.links() if link[2] == LinkType.SEMANTIC}
    a, c, d = (held.ids()[i] for i in (0, 2, 3))
    assert answer["ids"]["c"] == c
    assert pairs == {frozenset((a, c)), frozenset((a, d)), frozenset((c, d))}


async def test_order_inside_a_document_is_kept(pool: Pool) -> None:
    bank, ingest = bank_id(), deps(pool)
    for start in (0, 3):
        await import_memories(
            ingest,
            "default",
            bank,
            [{"text": f"turn {start + i}", "document_id": "s"} for i in range(3)],
        )
    held = await replica(pool, bank)
    assert held.column("position").tolist() == [0, 1, 2, 3, 4, 5]
    assert set(held.column("document").tolist()) == {0}
    times = held.column("mentioned_at")
    assert len(set(times[:3].tolist())) == 1


async def test_nul_bytes_and_surrogates_are_taken_out(pool: Pool) -> None:
    bank = bank_id()
    await import_memories(
        deps(pool),
        "default",
        bank,
        [{"text": "a\x00b \ud800", "tags": ["t\x00"], "metadata": {"k\x00": "v\x00"}}],
    )
    head = await banks.head(pool, "default", bank)
    (row,) = await memories.rows(pool, head.bank, np.array([0], np.int32))
    assert (row.text, row.tags, row.metadata) == ("ab ?", ("t",), {"k": "v"})


async def test_names_are_recognised_where_none_are_given(pool: Pool) -> None:
    bank = bank_id()
    await import_memories(
        deps(pool, settings=RetainSettings(retain_recognise_names=True)),
        "default",
        bank,
        [{"text": "We met Ann Lee in Oslo"}, {"text": "We met Bo", "entities": ["Bob"]}],
    )
    head = await banks.head(pool, "default", bank)
    found = await memories.entity_names(pool, head.bank, np.array([0, 1], np.int32))
    assert [[name for _, name in found[i]] for i in (0, 1)] == [["Ann Lee", "Oslo"], ["Bob"]]


async def test_many_writers_on_many_banks(pool: Pool) -> None:
    """Far more writers than connections: all get their turn, no bank sees another's memories."""
    names = [bank_id() for _ in range(6)]
    ingest = [deps(pool) for _ in range(2)]

    async def one(bank: str, i: int) -> None:
        items = [{"text": f"{bank} {i} {j}", "entities": ["Ann", bank]} for j in range(3)]
        await import_memories(ingest[i % 2], "default", bank, items)

    await asyncio.gather(*(one(bank, i) for i in range(6) for bank in names))
    for bank in names:
        held = await replica(pool, bank)
        assert held.head.version == 6
        rows = await memories.rows(pool, held.head.bank, np.arange(18, dtype=np.int32))
        assert len(rows) == 18
        assert {row.text.split()[0] for row in rows} == {bank}
        assert {row.name for row in held.delta.entities} == {"Ann", bank}


async def test_nothing_to_import_makes_no_bank(pool: Pool) -> None:
    bank = bank_id()
    answer = await import_memories(deps(pool), "default", bank, [])
    assert answer == {"imported": 0, "ids": {}}
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)


async def test_another_embedding_model_is_refused(pool: Pool) -> None:
    from retrieval.errors import Conflict

    bank = bank_id()
    await import_memories(deps(pool), "default", bank, [{"text": "a"}])
    other = deps(pool, embedder=HashEmbedder(model_id="other"))
    with pytest.raises(Conflict, match="hash:64"):
        await import_memories(other, "default", bank, [{"text": "b"}])
