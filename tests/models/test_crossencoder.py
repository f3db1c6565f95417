"""The local cross-encoder on real weights: agreement, heads, truncation, refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.local.crossencoder import LocalCrossEncoder
from models.local.device import cpu_computes_int8
from models.local.engine import STALLED_S
from models.local.kernels import int8
from models.local.kernels.pack import Pack
from models.settings import Compute, RerankerSettings
from models.types import (
    DeadlineExceeded,
    DeviceLost,
    Floats,
    Load,
    RerankRequest,
    Unavailable,
    WrongModel,
)
from tests.models.weights import make_encoder, with_config

pytestmark = pytest.mark.integration

EXACT = Compute(precision="fp32", threads=1)
IN_INT8 = Compute(device="cpu", precision="int8", threads=1)
needs_int8 = pytest.mark.skipif(
    not (cpu_computes_int8() and int8.available()), reason="this CPU has no int8 arithmetic"
)
QUERY = "where is the red lamp"
WORDS = ["lamp", "door", "river", "stone", "music", "letter", "garden", "winter", "bridge", "red"]


def documents(count: int, seed: int = 0) -> list[str]:
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(WORDS, chance.integers(1, 40))) for _ in range(count)]


@asynccontextmanager
async def reranker(
    model: Path, compute: Compute = EXACT, **settings: Any
) -> AsyncIterator[LocalCrossEncoder]:
    made = LocalCrossEncoder(RerankerSettings(model=str(model), compute=compute, **settings))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def scores_of(made: LocalCrossEncoder, docs: list[str], query: str = QUERY) -> Floats:
    answer = await made.rerank(RerankRequest(query, docs))
    assert answer.scores is not None
    assert answer.scores.dtype == np.float32
    return answer.scores


def theirs(folder: Path, docs: list[str]) -> Floats:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu")
    pairs = [(QUERY, doc) for doc in docs]
    return np.asarray(
        model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    )


async def test_equals_sentence_transformers(cross_encoder: Path) -> None:
    docs = documents(24)
    expected = theirs(cross_encoder, docs)
    async with reranker(cross_encoder) as ours:
        answer = await ours.rerank(RerankRequest(QUERY, docs))
    assert answer.scores is not None
    np.testing.assert_allclose(answer.scores, expected, atol=1e-4)
    assert (answer.scale, answer.member, answer.degraded) == ("logit", "local", False)
    assert expected.std() > 0.1


async def test_default_precision_agrees_on_the_top(cross_encoder: Path) -> None:
    docs = documents(60)
    async with (
        reranker(cross_encoder) as exact,
        reranker(cross_encoder, Compute(threads=1)) as fast,
    ):
        a, b = await scores_of(exact, docs), await scores_of(fast, docs)
    assert np.abs(a - b).mean() < 0.05 * a.std()
    # Near-ties may change places, but what comes first must be as good.
    assert np.mean(a[np.argsort(-a)[:10]] - a[np.argsort(-b)[:10]]) < 0.05 * a.std()


@needs_int8
async def test_int8_agrees_on_the_top_and_depends_on_no_batch(cross_encoder: Path) -> None:
    docs = documents(60)
    async with (
        reranker(cross_encoder) as exact,
        reranker(cross_encoder, IN_INT8) as fast,
    ):
        a, b = await scores_of(exact, docs), await scores_of(fast, docs)
        some = await scores_of(fast, docs[7:9])
    assert np.abs(a - b).mean() < 0.15 * a.std()
    assert np.corrcoef(a, b)[0, 1] > 0.98
    assert np.mean(a[np.argsort(-a)[:10]] - a[np.argsort(-b)[:10]]) < 0.1 * a.std()
    np.testing.assert_allclose(some, b[7:9], atol=0.05 * a.std())


@needs_int8
async def test_int8_is_refused_by_models_of_other_families(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "m", "deberta-v2", labels=1, vocab_size=30522)
    with pytest.raises(WrongModel, match="which has no int8"):
        async with reranker(folder, IN_INT8):
            pass


async def test_scores_do_not_depend_on_the_batch(small_cross_encoder: Path) -> None:
    docs = documents(40)
    async with reranker(small_cross_encoder) as ours:
        together = await scores_of(ours, docs)
        alone = np.concatenate([await scores_of(ours, [doc]) for doc in docs[:10]])
        mixed = await asyncio.gather(
            scores_of(ours, docs), scores_of(ours, documents(60, seed=1)), scores_of(ours, docs)
        )
    np.testing.assert_allclose(together[:10], alone, atol=1e-5)
    np.testing.assert_allclose(mixed[0], together, atol=1e-5)
    np.testing.assert_allclose(mixed[2], together, atol=1e-5)


@pytest.mark.parametrize("family", ["xlm-roberta", "deberta-v2", "modernbert"])
async def test_other_families(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    extra: dict[str, Any] = {"pad_token_id": 1} if family == "xlm-roberta" else {"pad_token_id": 0}
    folder = make_encoder(tmp_path / "m", family, labels=1, vocab_size=30522, **extra)
    docs = documents(12)
    async with reranker(folder) as ours:
        got = await scores_of(ours, docs)
        tokens = ours._text.pairs(QUERY, docs) if ours._text else []
    model = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    takes_types = int(getattr(model.config, "type_vocab_size", 0) or 0) > 1
    for score, token in zip(got, tokens, strict=True):
        inputs = {"input_ids": torch.from_numpy(token.ids[None].astype(np.int64))}
        if takes_types:
            inputs["token_type_ids"] = torch.from_numpy(token.types[None].astype(np.int64))
        with torch.inference_mode():
            expected = model(**inputs).logits[0, 0].item()
        assert score == pytest.approx(expected, abs=1e-4)
    assert got.std() > 0


async def test_truncation_is_counted(small_cross_encoder: Path) -> None:
    async with reranker(small_cross_encoder, max_tokens_per_doc=40) as ours:
        answer = await ours.rerank(RerankRequest(QUERY, ["short", "lamp " * 600, "door " * 600]))
        assert answer.truncated == 2
        assert ours.load().items == 3
        assert (await ours.rerank(RerankRequest(QUERY, []))).scores is not None


@pytest.mark.parametrize("key", ["sentence_transformers", "sbert_ce_default_activation_function"])
async def test_a_declared_sigmoid_makes_probabilities(
    key: str, small_cross_encoder: Path, tmp_path: Path
) -> None:
    name = "torch.nn.modules.activation.Sigmoid"
    value: Any = {"activation_fn": name} if key == "sentence_transformers" else name
    config: dict[str, Any] = {key: value}
    folder = with_config(small_cross_encoder, tmp_path / "m", **config)
    docs = documents(5)
    async with reranker(small_cross_encoder) as plain, reranker(folder) as declared:
        logits = await scores_of(plain, docs)
        answer = await declared.rerank(RerankRequest(QUERY, docs))
    assert answer.scale == "probability"
    assert answer.scores is not None
    np.testing.assert_allclose(answer.scores, 1 / (1 + np.exp(-logits)), atol=1e-5)


async def test_models_without_a_one_label_head_are_refused(tmp_path: Path) -> None:
    two = make_encoder(tmp_path / "two", "bert", labels=2)
    bare = make_encoder(tmp_path / "bare", "bert")
    headless = with_config(bare, tmp_path / "headless", id2label={"0": "LABEL_0"})
    for folder, words in ((two, "2 labels"), (bare, "BertModel"), (headless, "BertModel")):
        with pytest.raises(WrongModel, match=words):
            async with reranker(folder):
                pass
    with pytest.raises(WrongModel, match="sequence classifier"):
        async with reranker(Path("packaged")):
            pass


async def test_cancelled_and_late_calls_cost_nothing_more(cross_encoder: Path) -> None:
    async with reranker(cross_encoder) as ours:
        many = documents(300)
        call = asyncio.create_task(ours.rerank(RerankRequest(QUERY, many)))
        while not ours.load().running_batches:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(DeadlineExceeded):
            await ours.rerank(RerankRequest(QUERY, many, deadline=time.monotonic() + 0.05))
        await ours.rerank(RerankRequest(QUERY, many[:1]))
        assert ours.load().items < 150


async def test_health_fails_when_the_device_is_lost_or_hangs(
    small_cross_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reranker(small_cross_encoder) as ours:
        await ours.check_health()
        batcher = ours._engine._batcher
        monkeypatch.setattr(batcher, "load", lambda: Load(running_s=STALLED_S + 1))
        with pytest.raises(DeviceLost, match="has been running"):
            await ours.check_health()
        monkeypatch.undo()

        fault: RuntimeError = torch.OutOfMemoryError("CUDA out of memory")

        def broken(_: Pack) -> torch.Tensor:
            raise fault

        assert ours._engine._loaded is not None
        ours._engine._loaded = dataclasses.replace(ours._engine._loaded, forward=broken)
        with pytest.raises(Unavailable, match="out of memory"):
            await ours.rerank(RerankRequest(QUERY, ["x"]))
        await ours.check_health()
        fault = torch.AcceleratorError("CUDA error: unspecified launch failure", 719)
        with pytest.raises(DeviceLost):
            await ours.rerank(RerankRequest(QUERY, ["x"]))
        with pytest.raises(DeviceLost, match="launch failure"):
            await ours.check_health()


async def test_observations_cover_every_stage(small_cross_encoder: Path) -> None:
    seen: dict[str, list[float]] = {}
    made = LocalCrossEncoder(
        RerankerSettings(model=str(small_cross_encoder), compute=EXACT),
        lambda name, value: seen.setdefault(name, []).append(value),
    )
    await made.start()
    await made.rerank(RerankRequest(QUERY, documents(70)))
    await made.close()
    assert len(seen["batch_items"]) == 3
    assert sum(seen["batch_items"]) == 70
    assert len(seen["queue_s"]) == len(seen["tokenise_s"]) == 1
    assert len(seen["forward_s"]) == len(seen["padding_share"]) == len(seen["batch_s"]) == 3
    assert sum(seen["batch_tokens"]) == made.load().tokens or not made.load().tokens


async def test_before_the_start_it_says_so() -> None:
    made = LocalCrossEncoder(RerankerSettings(model="x"))
    with pytest.raises(Unavailable, match="not started"):
        await made.rerank(RerankRequest(QUERY, ["x"]))


async def test_it_says_in_which_precision_it_runs(small_cross_encoder: Path) -> None:
    made = LocalCrossEncoder(RerankerSettings(model=str(small_cross_encoder), compute=EXACT))
    assert made.runs_on == ""
    async with reranker(small_cross_encoder) as exact:
        assert exact.runs_on == "fp32 on cpu"
