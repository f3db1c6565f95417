"""The cross-encoder on an accelerator: is it right, and how fast: `python -m tests.gpu.rerank`.

Random one-label BERTs of three shapes, 300 pairs of short and of long texts. First agreement:
packed attention against padded, and both against fp32 on the CPU. Then milliseconds per 300 pairs:
ours through the whole path and the forward alone, the same with padded attention, the CrossEncoder
of sentence-transformers in batches of 32 and 128 in fp32 and fp16, tokenising alone, and the
arithmetic floor (two operations per weight and token at the speed of a large matrix product here).

Stops beginning new measurements after `--limit` seconds, and says which are missing. With
`--device cpu` and `--shapes tiny` it runs anywhere, which is how it is tested.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.local.crossencoder import LocalCrossEncoder
from models.local.kernels import attention
from models.local.kernels.pack import Tokens, pack
from models.local.kernels.packed import PackedEncoder
from models.local.text import TextEncoder
from models.local.weights import find
from models.settings import Compute, RerankerSettings
from models.types import Floats, RerankRequest
from tests.bench import report
from tests.bench.rerank import texts
from tests.models.weights import make_encoder

CHECKED_PAIRS = 64
TOP = 10


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    inner: int

    @property
    def weights(self) -> int:
        """Of the products that every token goes through."""
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)


SHAPES = {
    "tiny": Shape(64, 2, 2, 128),
    "minilm-l6": Shape(384, 6, 12, 1536),
    "base-l12": Shape(768, 12, 12, 3072),
    "large-l24": Shape(1024, 24, 16, 4096),
}
WORDS = {"short": 27.0, "long": 120.0}
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-4}
"""Largest difference to fp32 on the CPU, after the sigmoid."""


class Clock:
    """Knows when to stop, and waits for the device before it reads the time."""

    def __init__(self, device: str, limit_s: float) -> None:
        self._wait: Callable[[], None] = (
            torch.cuda.synchronize if device.startswith("cuda") else lambda: None
        )
        self._end = time.monotonic() + limit_s
        self.missing: list[str] = []

    def median_ms(self, name: str, work: Callable[[], object], rounds: int) -> float:
        """NaN where the time is over."""
        if time.monotonic() > self._end:
            self.missing.append(name)
            return float("nan")
        for _ in range(2):
            work()
        taken = []
        for _ in range(rounds):
            self._wait()
            start = time.perf_counter()
            work()
            self._wait()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken) * 1e3


def make(shape: Shape, to: Path) -> Path:
    # A standard deviation of 1/sqrt(hidden) keeps the states of a random network apart.
    return make_encoder(
        to,
        "bert",
        labels=1,
        vocab_size=30522,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=512,
        initializer_range=shape.hidden**-0.5,
    )


def matmul_flops(device: str, dtype: torch.dtype) -> float:
    size = 8192 if device.startswith("cuda") else 512
    a = torch.randn(size, size, device=device, dtype=dtype)
    clock = Clock(device, 60)
    return 2 * size**3 / (clock.median_ms("product", lambda: a @ a, 10) / 1e3)


async def scores(model: Path, compute: Compute, query: str, documents: Sequence[str]) -> Floats:
    reranker = LocalCrossEncoder(RerankerSettings(model=str(model), compute=compute))
    await reranker.start()
    found = (await reranker.rerank(RerankRequest(query, documents))).scores
    await reranker.close()
    assert found is not None
    return np.asarray(1 / (1 + np.exp(-found)), np.float32)


async def agreement(model: Path, device: str) -> dict[str, Any]:
    """Differences after the sigmoid, and the overlap of the ten best (near-ties count as equal)."""
    query, documents = texts(CHECKED_PAIRS, 40.0, seed=3)
    exact = await scores(model, Compute(device="cpu", precision="fp32"), query, documents)
    tenth = np.sort(exact)[-TOP]
    found: dict[str, Any] = {"spread": float(exact.std()), "held": True}
    for name in ("fp16", "bf16") if device.startswith("cuda") else ("fp32",):
        compute = Compute(device=device, precision=name)
        got = await scores(model, compute, query, documents)
        alone = await scores(model, replace(compute, batch_tokens=600), query, documents)
        tolerance = TOLERANCE[
            {"fp16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)
        ]
        best = exact[np.argsort(-got)[:TOP]]
        found[name] = {
            "max_diff": float(np.abs(got - exact).max()),
            "max_diff_of_batches": float(np.abs(got - alone).max()),
            "top_10": float((best >= tenth - 2 * tolerance).mean()),
        }
        held = found[name]["max_diff"] <= tolerance and found[name]["top_10"] >= 0.99
        found["held"] = found["held"] and held
    return found


def packed_and_padded(
    model: Path, device: str, dtype: torch.dtype, tokens: Sequence[Tokens]
) -> tuple[Callable[[], object], Callable[[], object], float]:
    """The forward with either attention, and the largest difference of their states relative to the
    states' size."""
    folder = find(str(model))
    encoder = PackedEncoder(
        folder.config, folder.tensors(), torch.device(device), dtype, firsts_only=True
    )
    parts, start, size = [], 0, 0
    for index, token in enumerate(tokens):
        if size + len(token) > 16_384:
            parts.append(pack(tokens[start:index]))
            start, size = index, 0
        size += len(token)
    parts.append(pack(tokens[start:]))

    def padded(part: Any) -> torch.Tensor:
        offsets = torch.from_numpy(part.offsets).to(device)
        return encoder(part, attention.Padded(offsets, int(part.lengths.max())))

    states, reference = encoder(parts[0]).float(), padded(parts[0]).float()
    difference = ((states - reference).abs().max() / reference.abs().max()).item()
    return (
        lambda: [encoder(part) for part in parts],
        lambda: [padded(part) for part in parts],
        difference,
    )


def measure(
    name: str, model: Path, shape: Shape, device: str, pairs: int, rounds: int, clock: Clock
) -> dict[str, dict[str, float]]:
    """Rows of milliseconds per call of `pairs` pairs, one for each length of text."""
    on_gpu = device.startswith("cuda")
    dtype = torch.float16 if on_gpu else torch.float32
    flops = matmul_flops(device, dtype)
    rows = {}
    for kind, words in WORDS.items():
        query, documents = texts(pairs, words, seed=4)
        text = TextEncoder(find(str(model)))
        tokens = text.pairs(query, documents)
        total = sum(len(token) for token in tokens)
        row = {"tokens": float(total), "floor": 2 * total * shape.weights / flops * 1e3}
        label = f"{name} {kind}"
        row["tokenise"] = clock.median_ms(label, lambda: text.pairs(query, documents), rounds)  # noqa: B023
        packed, padded, row["packed vs padded"] = packed_and_padded(model, device, dtype, tokens)
        row["packed"] = clock.median_ms(label, packed, rounds)
        row["padded"] = clock.median_ms(label, padded, rounds)
        row |= ours(model, device, query, documents, rounds, clock, label)
        for precision in ("fp32", "fp16") if on_gpu else ("fp32",):
            for batch in (32, 128):
                column = f"st {precision} b{batch}"
                work = theirs(model, device, precision, batch, query, documents)
                row[column] = clock.median_ms(f"{label} {column}", work, max(3, rounds // 3))
        best = min((v for k, v in row.items() if k.startswith("st ") and v == v), default=np.nan)
        row["pairs/s"] = pairs / row["ours"] * 1e3
        row["pairs/s, 4 callers"] = pairs / row["ours, 4 callers"] * 1e3
        row["ratio"] = best / row["ours"]
        rows[label] = row
    return rows


def ours(
    model: Path,
    device: str,
    query: str,
    documents: Sequence[str],
    rounds: int,
    clock: Clock,
    label: str,
) -> dict[str, float]:
    """The whole path: one caller, and each of four at once."""
    with asyncio.Runner() as runner:
        reranker = LocalCrossEncoder(
            RerankerSettings(model=str(model), compute=Compute(device=device))
        )
        runner.run(reranker.start())

        async def callers(count: int) -> None:
            await asyncio.gather(
                *(reranker.rerank(RerankRequest(query, documents)) for _ in range(count))
            )

        found = {
            "ours": clock.median_ms(label, lambda: runner.run(callers(1)), rounds),
            "ours, 4 callers": clock.median_ms(label, lambda: runner.run(callers(4)), rounds) / 4,
        }
        runner.run(reranker.close())
    return found


def theirs(
    model: Path, device: str, precision: str, batch: int, query: str, documents: Sequence[str]
) -> Callable[[], object]:
    from sentence_transformers import CrossEncoder

    dtype = {"fp32": torch.float32, "fp16": torch.float16}[precision]
    encoder = CrossEncoder(str(model), device=device, model_kwargs={"dtype": dtype})
    pairs = [(query, document) for document in documents]
    return lambda: encoder.predict(pairs, batch_size=batch, show_progress_bar=False)


def run(
    shapes: Sequence[str], device: str, pairs: int, rounds: int, limit_s: float
) -> dict[str, Any]:
    clock = Clock(device, limit_s)
    accelerator = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    found: dict[str, Any] = {
        **report.machine(),
        "device": accelerator,
        "torch": torch.__version__,
        "pairs": pairs,
        "agreement": {},
        "rows": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        made = {name: make(SHAPES[name], Path(folder) / name) for name in shapes}
        for name, model in made.items():
            found["agreement"][name] = asyncio.run(agreement(model, device))
            print(name, json.dumps(found["agreement"][name]), flush=True)
        for name, model in made.items():
            rows = measure(name, model, SHAPES[name], device, pairs, rounds, clock)
            found["rows"] |= rows
            for label, row in rows.items():
                shown = {k: round(v, 4) for k, v in row.items()}
                print(label, json.dumps(shown), flush=True)
    found["missing"] = clock.missing
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpu rerank", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="+", default=["minilm-l6", "base-l12", "large-l24"])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=270.0, help="seconds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = run(given.shapes, given.device, given.pairs, given.rounds, given.limit)
    columns = ("ours", "ours, 4 callers", "packed", "padded", "floor", "pairs/s", "ratio")
    report.table(f"ms per {given.pairs} pairs on {found['device']}", columns, found["rows"])
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1))
    wrong = [name for name, row in found["agreement"].items() if not row["held"]]
    sys.exit(f"scores differ too much: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
