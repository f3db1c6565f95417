"""What the keyword arm costs and finds: `python -m tests.bench.keyword [--million] [--quality]`.

Banks of 10,000 and 100,000 memories of about 32 words with Zipf's frequencies (with --million one
more), asked 3 rare, 6 mixed and 12 words drawn as the texts draw theirs; the 100 best of three
types. In the same run the same texts and questions go to PostgreSQL's own text search (ts_rank_cd
over a GIN index, up to 100,000 memories) and to the package bm25s; its ten best must be ours.

Figures are CPU milliseconds of one thread; those of PostgreSQL are of its backend process, to the
clock tick. With --quality: the analyser and BM25 alone on the evaluation sets.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec

import asyncpg
import bm25s
import numpy as np

from retrieval.keyword import bm25
from retrieval.keyword.analyser import Analyser, IndexedText
from retrieval.keyword.backends import Native
from retrieval.keyword.postings import Postings, merge
from retrieval.store.segments.format import pack, unpack
from retrieval.types import FactType
from tests.bench import metrics, report, sets
from tests.retrieval.keyword.server import Server, embedded
from tests.support.system import Memory

P = ParamSpec("P")

TYPES: Final = tuple(FactType)
LIMIT: Final = 100
WORDS: Final = 60_000
BATCH: Final = 100
CHUNK: Final = 10_000
ROUNDS: Final = 100
GOALS: Final = {"3 rare": 1.0, "6 mixed": 2.0, "12 natural": 4.0}
"""p50 at 100,000 memories, CPU ms."""


class Corpus:
    """Texts and questions of one seed."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.size = size
        self._rng = np.random.default_rng(seed)
        chance = 1.0 / (np.arange(WORDS) + 2.7) ** 1.07
        self._chance = chance / chance.sum()
        self.words = np.array([_word(i) for i in range(WORDS)], dtype=object)

    def texts(self) -> Iterator[list[str]]:
        for begin in range(0, self.size, CHUNK):
            yield self.draw(min(CHUNK, self.size - begin))

    def draw(self, count: int) -> list[str]:
        ends = np.cumsum(self._rng.poisson(32, count).clip(3))
        drawn = self.words[self._rng.choice(WORDS, int(ends[-1]), p=self._chance)]
        return [" ".join(part) for part in np.split(drawn, ends[:-1])]

    def question(self, kind: str) -> str:
        match kind:
            case "3 rare":
                drawn = self._rng.integers(3_000, 30_000, 3)
            case "6 mixed":
                common, rare = self._rng.integers(5, 300, 3), self._rng.integers(1_000, 20_000, 3)
                drawn = np.concatenate((common, rare))
            case _:
                drawn = self._rng.choice(WORDS, 12, p=self._chance)
        return " ".join(self.words[drawn])


def _word(number: int) -> str:
    out, rest = "", number + 1
    while rest:
        out += "bcdfghklmnprstvz"[rest % 16] + "aeiou"[rest // 16 % 5]
        rest //= 80
    return out + "x"


@dataclass(frozen=True, slots=True)
class Built:
    corpus: Corpus
    analyser: Analyser
    postings: Postings
    payload: bytes  # one merged segment
    chunks: Sequence[Sequence[str]]
    types: Any


def build(size: int) -> Built:
    corpus, analyser = Corpus(size), Analyser("none")
    chunks, segments = [], []
    for texts in corpus.texts():
        segments.append(analyser.weigh([IndexedText(text) for text in texts]))
        chunks.append(texts)
    merged = merge(segments)
    types = np.random.default_rng(1).integers(0, 3, size).astype(np.uint8)
    return Built(corpus, analyser, Postings.empty().append(merged, 0), pack(merged), chunks, types)


def search(built: Built, postings: Postings, text: str) -> bm25.ScoredMatches:
    matches = bm25.scores(postings, built.analyser.query(text))
    bm25.top(matches, built.types, TYPES, LIMIT)
    return matches


def spent(work: Callable[P, object], *given: P.args, **named: P.kwargs) -> float:
    """CPU milliseconds of this process."""
    begin = time.process_time()
    work(*given, **named)
    return 1000 * (time.process_time() - begin)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    return {"p50": float(np.median(values)), "p95": float(np.percentile(values, 95))}


def ours(built: Built) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    dead = np.ones(built.corpus.size, np.bool_)
    dead[np.random.default_rng(2).integers(0, built.corpus.size, built.corpus.size // 20)] = False
    for name, postings in (
        ("bm25, warm", built.postings),
        ("bm25, warm, 5% dead", built.postings.with_live(dead)),
    ):
        for kind in GOALS:
            asked = [built.corpus.question(kind) for _ in range(ROUNDS)]
            search(built, postings, asked[0])
            took = [spent(search, built, postings, text) for text in asked]
            rows[f"{name}: {kind}"] = percentiles(took)

    def cold(text: str) -> None:
        search(built, Postings.empty().append(unpack(built.payload), 0), text)

    for kind in GOALS:
        took = [spent(cold, built.corpus.question(kind)) for _ in range(20)]
        rows[f"bm25, from the stored segment: {kind}"] = percentiles(took)
    return rows


def appends(built: Built) -> dict[str, dict[str, float]]:
    analysed, packed, held = [], [], []
    postings = built.postings
    for _ in range(ROUNDS):
        documents = [IndexedText(text) for text in built.corpus.draw(BATCH)]
        begin = time.process_time()
        segment = built.analyser.weigh(documents)
        middle = time.process_time()
        payload = pack(segment)
        end = time.process_time()
        postings = postings.append(unpack(payload), postings.end)
        analysed.append(1000 * (middle - begin))
        packed.append(1000 * (end - middle))
        held.append(1000 * (time.process_time() - end))
    return {
        f"append {BATCH}: analyse": percentiles(analysed),
        f"append {BATCH}: pack": percentiles(packed),
        f"append {BATCH}: into the resident postings": percentiles(held),
    }


def peer_package(built: Built) -> tuple[dict[str, dict[str, float]], float]:
    """bm25s over the same terms, and how many of its ten best are ours."""
    words = [text.split() for texts in built.chunks for text in texts]
    index = bm25s.BM25(method="lucene", k1=bm25.K1, b=bm25.B)
    index.index(words, show_progress=False)
    rows, same = {}, []
    for kind in GOALS:
        took = []
        for _ in range(20):
            text = built.corpus.question(kind)
            known = [word for word in dict.fromkeys(text.split()) if word in index.vocab_dict]
            begin = time.process_time()
            found, theirs = index.retrieve([known], k=LIMIT, show_progress=False, n_threads=0)
            took.append(1000 * (time.process_time() - begin))
            matches = bm25.scores(built.postings, built.analyser.query(" ".join(known)))
            mine = bm25.best(matches.ordinals, matches.scores, 10)
            # Equal scores may stand in any order there.
            least = mine.scores[-1] / (bm25.K1 + 1) * (1 - 1e-5) if len(mine) else np.inf
            near = [int(o) for o, s in zip(found[0], theirs[0], strict=True) if s >= least]
            same.append(np.isin(mine.ordinals, near).mean() if len(mine) else 1.0)
        rows[f"bm25s: {kind}"] = percentiles(took)
    return rows, float(np.mean(same))


async def stock(built: Built, most: int) -> tuple[dict[str, dict[str, float]], float]:
    """ts_rank_cd + GIN on the same texts, and bytes per posting of a row-per-posting table."""
    install = embedded()
    if install is None:
        return {}, float("nan")
    with Server(install) as server:
        connection = await asyncpg.connect(
            host=str(server.folder), user="postgres", database="postgres"
        )
        try:
            await connection.execute("create table banks (bank bigint primary key)")
            await connection.execute("insert into banks values (1); set work_mem = '64MB'")
            native = Native("simple")
            for statement in native.ddl():
                await connection.execute(statement)
            at = 0
            for texts in built.chunks:
                await connection.execute(
                    native.insert(
                        "select 1::bigint bank, u.*, null::text context, null::text text_signals"
                        " from unnest($1::int[], $2::smallint[], $3::text[])"
                        " u(ordinal, fact_type, text)"
                    ),
                    list(range(at, at + len(texts))),
                    built.types[at : at + len(texts)].tolist(),
                    texts,
                )
                at += len(texts)
            await connection.execute(f"vacuum analyze {native.table}")
            pid = await connection.fetchval("select pg_backend_pid()")
            found = {}
            for kind in GOALS:
                took, before = [], _process_cpu(pid)
                for _ in range(most):
                    begin = time.perf_counter()
                    text = built.corpus.question(kind)
                    await native.search(connection, 1, text, TYPES, LIMIT)
                    took.append(1000 * (time.perf_counter() - begin))
                mean = 1000 * (_process_cpu(pid) - before) / most
                found[f"native, wall (mean CPU {mean:.0f}): {kind}"] = percentiles(took)
            return found, await _row_per_posting(connection, built)
        finally:
            await connection.close()


def _process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _row_per_posting(connection: Any, built: Built) -> float:
    await connection.execute(
        "create table posting (bank bigint, term bigint, ordinal int, tf real, length int,"
        " primary key (bank, term, ordinal) include (tf, length))"
    )
    segment = built.analyser.weigh([IndexedText(text) for text in built.chunks[0]])
    terms = np.repeat(segment["term"].view(np.int64), np.diff(segment["ptr"])).tolist()
    documents, tf = segment["document"].tolist(), segment["tf"].tolist()
    rows = [(1, t, d, f, 32) for t, d, f in zip(terms, documents, tf, strict=True)]
    await connection.copy_records_to_table("posting", records=rows)
    size: int = await connection.fetchval("select pg_total_relation_size('posting')")
    return size / len(rows)


def quality() -> dict[str, dict[str, float]]:
    """The analyser and BM25 alone. LoCoMo once as plain turns, once with the signals (speaker and
    date) that a retain gives a memory."""
    rows = {}
    for name in ("scifact", "cranfield", "cisi", "locomo"):
        for signalled in (False, True) if name == "locomo" else (False,):
            found, ideal = [], []
            for bank in sets.load(name).banks:
                asked, gold = bank.questions, [question.gold for question in bank.questions]
                ranked = _ranked(bank.memories, [q.text for q in asked], signalled)
                gains = metrics.gains(ranked, gold, LIMIT)
                found += list(gains[0])
                ideal += [np.pad(row, (0, 400 - len(row))) for row in gains[1]]
            gain, best = np.array(found), np.array(ideal)
            rows[f"{name}{', signals' if signalled else ''}"] = {
                "R@10": float(np.nanmean(metrics.recall(gain, best, 10))),
                "R@100": float(np.nanmean(metrics.recall(gain, best, 100))),
                "nDCG@10": float(np.nanmean(metrics.ndcg(gain, best, 10))),
            }
    return rows


def _ranked(
    memories: Sequence[Memory], questions: Sequence[str], signalled: bool
) -> list[list[str]]:
    analyser = Analyser()
    documents = [
        IndexedText(memory["text"], text_signals=_signals(memory) if signalled else None)
        for memory in memories
    ]
    postings = Postings.empty().append(analyser.weigh(documents), 0)
    out = []
    for text in questions:
        matches = bm25.scores(postings, analyser.query(text))
        hits = bm25.best(matches.ordinals, matches.scores, LIMIT)
        out.append([memories[ordinal]["key"] for ordinal in hits.ordinals])
    return out


def _signals(memory: Memory) -> str:
    day = np.datetime64(memory["occurred_start"][:10]).item()
    return " ".join([*memory["entities"], f"{day:%B} {day.day} {day.year}"])


async def bench(sizes: Sequence[int]) -> list[dict[str, Any]]:
    reports = []
    for size in sizes:
        built = build(size)
        postings = len(built.postings.tiers[0].tf)
        rows = {**ours(built), **appends(built)}
        extra, same = peer_package(built)
        rows |= extra
        each = len(built.payload) / postings
        per_row = float("nan")
        if size <= 100_000:
            extra, per_row = await stock(built, 30 if size < 100_000 else 5)
            rows |= extra
        report.table(f"keyword, {size:,} memories, ms", ("p50", "p95"), rows)
        print(
            f"{postings:,} postings; {each:.1f} bytes each packed (resident"
            f" {built.postings.nbytes / postings:.1f}), {per_row:.0f} as a row:"
            f" 1/{per_row / each:.1f}; bm25s' ten best are ours: {same:.3f}\n"
        )
        reports.append({"memories": size, "rows": rows, "same_as_bm25s": same})
        if size == 100_000:
            for kind, goal in GOALS.items():
                took = rows[f"bm25, warm: {kind}"]["p50"]
                verdict = "ok" if took <= goal else "MISSED"
                print(f"{kind}: {took:.2f} ms, goal {goal:.0f} ms: {verdict}")
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench keyword", description=__doc__.split("\n")[0])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--quality", action="store_true", help="only the evaluation sets")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.quality:
        found = quality()
        report.table("BM25 alone", ("R@10", "R@100", "nDCG@10"), found)
        result: Any = found
    else:
        result = asyncio.run(bench((10_000, 100_000, *((1_000_000,) if given.million else ()))))
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "result": result}, indent=1))


if __name__ == "__main__":
    main()
