"""An embedder that is replaced by one of another model, of equal dimension, while it is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from unittest import mock
from uuid import uuid4

import numpy as np
import pytest

from models.passthrough import Passthrough
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.errors import Conflict, ModelChanged
from retrieval.ingest.importing import import_memories
from retrieval.keyword.analysers import analyser_for
from retrieval.mental import search
from retrieval.recall import search as arrays
from retrieval.recall.engine import RecallEngine
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.tags import EVERYTHING
from retrieval.types import Floats, RecallQuery
from serve.cluster.remote import RemoteEmbedder
from serve.opening.translation import OpenedReranker
from tests.retrieval.store.servers import HashEmbedder, database, deps
from tests.serve import stages
from tests.serve.stages import StageHandle, handle


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with database() as opened:
        yield opened


class Other(HashEmbedder):
    """Of equal dimension, and of no use for the vectors of the first."""

    def _embed(self, texts: Sequence[str]) -> Floats:
        return np.roll(super()._embed(texts), 5, axis=1)


OLD, NEW = HashEmbedder(32, "old"), Other(32, "new")
TEXTS = [f"the red boat number{i} sails north" for i in range(12)]


@pytest.fixture
def stage() -> StageHandle:
    return stages.embedder(OLD)


@pytest.fixture
def embedder(stage: StageHandle) -> RemoteEmbedder:
    return RemoteEmbedder(handle(stage), 5.0)


@pytest.fixture
async def recaller(pool: Pool, embedder: RemoteEmbedder) -> AsyncIterator[RecallEngine]:
    residency = Residency(pool, ResidencySettings())
    with ThreadPoolExecutor(1) as threads:
        retriever = LocalRetriever(
            pool,
            residency,
            embedder,
            RecallSettings(),
            threads,
            lambda head: analyser_for(RetainSettings().with_overrides(head.config)),
        )
        yield RecallEngine(pool, retriever, OpenedReranker(Passthrough()), RecallSettings())
        await residency.close()


def query(bank: str) -> RecallQuery:
    return RecallQuery(tenant="t", bank_id=bank, text=TEXTS[0], now=datetime.now(UTC))


@pytest.mark.unit
async def test_the_first_call_learns_what_the_model_is(
    stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    assert (embedder.model_id, embedder.dimension) == ("", 0)
    made = await embedder.embed_queries(["a"])
    assert (embedder.model_id, embedder.dimension) == ("old", 32)
    assert np.array_equal(made, await OLD.embed_queries(["a"]))
    await embedder.embed_queries(["b"])
    assert stage.calls == ["describe", "embed", "embed"]


class Reader(HashEmbedder):
    """Knows how it reads."""

    def legibility(self, text: str) -> float | None:
        return float(len(text))


@pytest.mark.unit
async def test_how_legible_a_question_is_comes_with_its_vector(
    stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    await embedder.embed_queries(["a question"])
    assert embedder.legibility("a question") is None  # this model does not say
    stage.model = Reader(32, "old")
    await embedder.embed_queries(["a question", "and more"])
    assert embedder.legibility("a question") == 10.0
    assert embedder.legibility("another question") is None
    await embedder.embed_passages(["a question"])
    assert embedder.legibility("a question") is None
    assert stage.calls == ["describe", "embed", "embed", "embed"]


@pytest.mark.unit
async def test_a_query_takes_the_new_model_and_a_write_is_refused_once(
    stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    await embedder.embed_queries(["a"])
    stage.model = NEW
    with pytest.raises(ModelChanged, match="makes 'new:32' now, not 'old:32'"):
        await embedder.embed_passages(["a"])
    assert embedder.model_id == "new"
    stage.model = OLD
    await embedder.embed_queries(["a"])
    assert embedder.model_id == "old"


@pytest.mark.unit
async def test_an_answer_that_another_call_has_overtaken_is_not_taken(
    stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    await embedder.embed_queries(["a"])
    stage.delay_s = 0.5
    slow = asyncio.create_task(embedder.embed_passages(["of the old model"]))
    while stage.calls.count("embed") < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    embedder._known = ("new", 32)  # as a call of somebody else leaves it
    with pytest.raises(ModelChanged):
        await slow


@pytest.mark.integration
async def test_recalls_and_writes_through_a_roll(
    pool: Pool, stage: StageHandle, embedder: RemoteEmbedder, recaller: RecallEngine
) -> None:
    """No similarity between vectors of two models; no row in a set that is not its model's."""
    bank, ingest = f"roll-{uuid4().hex[:8]}", deps(pool, embedder=embedder)
    memories = [{"text": text, "key": text} for text in TEXTS]
    await import_memories(ingest, "t", bank, memories)
    assert (await banks.head(pool, "t", bank)).vector_set == "old:32"
    found = await recaller.recall(query(bank))
    assert "degraded" not in found.body
    assert found.body["results"][0]["scores"]["semantic"] > 0.5

    stage.model = NEW
    kept = await banks.head(pool, "t", bank)
    with pytest.raises(ModelChanged):  # 503: repeat it
        await import_memories(ingest, "t", bank, [{"text": "x"}])
    with pytest.raises(Conflict, match="made with 'old:32', this server makes 'new:32'"):
        await import_memories(ingest, "t", bank, [{"text": "x"}])
    assert await banks.head(pool, "t", bank) == kept
    found = await recaller.recall(query(bank))
    assert found.body["degraded"] == ["semantic"]
    assert found.body["results"], "words still find"
    assert all(not one["scores"].get("semantic") for one in found.body["results"])

    fresh = f"{bank}-new"
    await import_memories(ingest, "t", fresh, memories)
    assert (await banks.head(pool, "t", fresh)).vector_set == "new:32"
    kinds = await pool.fetch(
        "select b.bank_id, s.kind from segments s join banks b using (bank)"
        " where b.bank_id = any($1) and s.kind like 'vectors:%'",
        [bank, fresh],
    )
    assert {tuple(row) for row in kinds} == {(bank, "vectors:old:32"), (fresh, "vectors:new:32")}

    stage.model = OLD
    assert "degraded" not in (await recaller.recall(query(bank))).body


@pytest.mark.integration
async def test_the_score_is_told_how_legible_the_question_is(
    pool: Pool, stage: StageHandle, embedder: RemoteEmbedder, recaller: RecallEngine
) -> None:
    bank = f"legible-{uuid4().hex[:8]}"
    await import_memories(deps(pool, embedder=embedder), "t", bank, [{"text": t} for t in TEXTS])
    with mock.patch.object(arrays, "pool", wraps=arrays.pool) as made:
        await recaller.recall(query(bank))
        assert {call.args[1].legible for call in made.call_args_list} == {None}
        made.reset_mock()
        stage.model = Reader(32, "old")
        await recaller.recall(query(bank))
        assert {call.args[1].legible for call in made.call_args_list} == {float(len(TEXTS[0]))}


@pytest.mark.integration
async def test_a_roll_between_embedding_and_writing(
    pool: Pool, stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    """A write goes by the model that made its vectors, whatever the embedder is by then."""
    bank = f"roll-{uuid4().hex[:8]}"
    await import_memories(deps(pool, embedder=embedder), "t", bank, [{"text": TEXTS[0]}])

    class Turning(RemoteEmbedder):
        """Becomes another model as soon as its answer was taken."""

        async def embed_passages(self, *args: object, **named: object) -> object:  # type: ignore[override]
            made = await super().embed_passages(*args, **named)  # type: ignore[arg-type]
            asyncio.get_running_loop().call_soon(setattr, self, "_known", ("new", 32))
            return made

    turning = Turning(handle(stage), 5.0)
    await import_memories(deps(pool, embedder=turning), "t", bank, [{"text": TEXTS[1]}])
    assert turning.model_id == "new"
    kinds = await pool.fetch(
        "select distinct kind from segments join banks using (bank) where bank_id = $1"
        " and kind like 'vectors:%'",
        bank,
    )
    assert [row["kind"] for row in kinds] == ["vectors:old:32"]


@pytest.mark.integration
async def test_documents_are_found_by_vectors_of_one_model(
    pool: Pool, stage: StageHandle, embedder: RemoteEmbedder
) -> None:
    bank = f"roll-{uuid4().hex[:8]}"
    head = await banks.ensure(pool, "t", bank)
    for name in ("boats", "kilns"):
        await pool.execute(
            "insert into mental_models (bank, id, name, source_query, content, max_tokens)"
            " values ($1, $2, $2, $2, $3, 100)",
            head.bank,
            name,
            f"all about {name}",
        )

    async def ask() -> list[tuple[str, float]]:
        return await search.search(
            pool, embedder, RetainSettings(), "t", bank, "boats", wanted=EVERYTHING
        )

    async def sets() -> set[str]:
        rows = await pool.fetch("select vector_set from mental_models where bank = $1", head.bank)
        return {row["vector_set"] for row in rows}

    assert (await ask())[0][0] == "boats"
    stage.model = NEW
    assert (await ask())[0][0] == "boats"
    await ask()
    assert await sets() <= {"old:32", "new:32"}
    rows = await pool.fetch(
        "select name, vector, vector_set from mental_models where bank = $1", head.bank
    )
    for row in rows:
        text = f"{row['name']}\n{row['name']}\nall about {row['name']}"
        model = OLD if row["vector_set"] == "old:32" else NEW
        assert np.allclose(np.frombuffer(row["vector"], np.float32), model._embed([text])[0])
