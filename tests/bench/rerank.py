"""Cross-encoder throughput on CPU: `python -m tests.bench.rerank`.

In one run and on the same weights (the packaged MiniLM-L6 encoder under a seeded one-label head),
300 pairs of one query against documents of log-normal length: sentence-transformers' CrossEncoder
with its defaults, against ours in int8, bf16 and fp32 through the whole path (tokenising, batcher,
owner thread). CPU time of the process, one thread; rounds alternate, medians count. Agreement is
of logits with the baseline's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch

from models.local.crossencoder import LocalCrossEncoder
from models.local.device import cpu_computes_bf16, cpu_computes_int8
from models.settings import Compute, RerankerSettings
from models.types import Floats, RerankRequest
from tests.bench import report
from tests.models.weights import make_cross_encoder, tokenizer_folder

GOALS = {"int8": 6.0, "bf16": 4.0, "fp32": 1.5}


def texts(pairs: int, mean_words: float, seed: int = 0) -> tuple[str, list[str]]:
    """A query of nine words and documents of log-normal length (sigma 0.5)."""
    chance = np.random.default_rng(seed)
    vocabulary = (tokenizer_folder() / "vocab.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isalpha() and len(word) > 2][2_000:12_000]
    lengths = np.clip(chance.lognormal(np.log(mean_words) - 0.125, 0.5, pairs), 3, 300)
    made = [" ".join(chance.choice(words, int(length))) for length in lengths]
    return " ".join(chance.choice(words, 9)), made


async def cpu_seconds(work: Callable[[], Awaitable[Floats]]) -> tuple[float, Floats]:
    start = time.process_time()
    scores = await work()
    return time.process_time() - start, scores


async def bench(pairs: int, words: float, rounds: int) -> dict[str, Any]:
    query, documents = texts(pairs, words)
    with tempfile.TemporaryDirectory() as folder:
        model = make_cross_encoder(Path(folder))
        return await _bench(model, query, documents, rounds)


async def _bench(model: Path, query: str, documents: list[str], rounds: int) -> dict[str, Any]:
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(model), device="cpu")
    ours = {}
    has = {"int8": cpu_computes_int8(), "bf16": cpu_computes_bf16(), "fp32": True}
    for name in has:
        if not has[name]:
            continue
        compute = Compute(device="cpu", precision=name, threads=1)
        ours[name] = LocalCrossEncoder(RerankerSettings(model=str(model), compute=compute))
        await ours[name].start()
    torch.set_num_threads(1)

    async def baseline() -> Floats:
        pairs = [(query, document) for document in documents]
        return np.asarray(
            theirs.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False),
            np.float32,
        )

    def path(reranker: LocalCrossEncoder) -> Callable[[], Awaitable[Floats]]:
        async def run() -> Floats:
            scores = (await reranker.rerank(RerankRequest(query, documents))).scores
            assert scores is not None
            return scores

        return run

    paths = {"sentence-transformers": baseline} | {name: path(r) for name, r in ours.items()}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    scores: dict[str, Floats] = {}
    for round_ in range(rounds + 1):
        for name, work in paths.items():
            taken, scores[name] = await cpu_seconds(work)
            if round_:
                seconds[name].append(taken)
    tokens = ours["fp32"].load().tokens / (rounds + 1)
    for reranker in ours.values():
        await reranker.close()
    return {
        "pairs": len(documents),
        "mean_tokens": tokens / len(documents),
        "rounds": rounds,
        "paths": _rows(seconds, scores, len(documents)),
    }


def _rows(
    seconds: Mapping[str, list[float]], scores: Mapping[str, Floats], pairs: int
) -> dict[str, dict[str, float]]:
    base, exact = median(seconds["sentence-transformers"]), scores["sentence-transformers"]
    top = set(np.argsort(-exact)[:10].tolist())
    rows = {}
    for name, taken in seconds.items():
        got = scores[name]
        best = np.argsort(-got)[:10]
        rows[name] = {
            "CPU-s": median(taken),
            "pairs/CPU-s": pairs / median(taken),
            "ratio": base / median(taken),
            "max |Δ|/σ": float(np.abs(got - exact).max() / exact.std()),
            "correlation": float(np.corrcoef(got, exact)[0, 1]),
            "top-10 same": len(top & set(best.tolist())) / 10,
        }
        if name in GOALS:
            rows[name]["goal"] = GOALS[name]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench rerank", description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--words", type=float, default=27.0, help="mean words of a document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = asyncio.run(bench(given.pairs, given.words, given.rounds))
    columns = ("CPU-s", "pairs/CPU-s", "ratio", "goal", "max |Δ|/σ", "correlation", "top-10 same")
    title = f"{found['pairs']} pairs, mean {found['mean_tokens']:.0f} tokens, one thread"
    report.table(title, columns, found["paths"])
    print(json.dumps(record := {**report.machine(), **found}))
    if given.json:
        given.json.write_text(json.dumps(record, indent=1))
    missed = [name for name, row in found["paths"].items() if row["ratio"] < row.get("goal", 0)]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
