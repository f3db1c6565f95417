"""Exact vector search against a plain fp32 pass, against FAISS and against pgvector's HNSW.

    fourfold bench vectors [--sizes 600,10000,100000] [--pgvector 10000,100000] [--ivf 100000]

One type, k = 300, unit vectors of 384 dimensions with the low inner dimension of real embeddings.
Figures are medians of CPU milliseconds per query on one thread; for pgvector those of its server
process, with recall against exact search, at ef_search 300 (the least that finds 300) and 1000 (the
most there is). A share is that of rows a filter lets through. `plain` is the same store without a
survey (banks of 20,000 rows and more have one: codes for a first pass, moments without a pass); its
answers must be the same to the last bit. A table of its own shows what a survey costs and saves at
sizes around that: a recall asks for the moments, the best 300 of one or of three types and the
similarities of 3,000 other rows. `--ivf` adds inverted lists (the setting bank_ivf_rows) against
the exact scan, for one type and for three, with their recall on new questions.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.flat import FlatBackend, FlatVectors
from retrieval.bank.vectors.ivf import DEPTHS, IvfBackend, IvfVectors
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.pool import PoolSettings, open_pool
from retrieval.types import Bools, Doubles, FactType, Floats, Ints

_faiss: Any = faiss  # its type stubs know the C++ signatures, not Python's

DIMENSION = 384
K = 300
QUERIES = 20
"""So many different ones a database is asked: the same one again finds its pages at hand."""
SHARES = (None, 0.5, 0.1, 0.01, 0.001)


@dataclass(frozen=True)
class Figure:
    size: int
    batch: int
    share: float | None
    ours_ms: float
    plain_ms: float
    faiss_ms: float
    blas_ms: float
    pgvector_ms: float | None = None
    pgvector_wall_ms: float | None = None
    pgvector_recall: float | None = None
    pgvector_found: float | None = None
    pgvector_deep_ms: float | None = None
    pgvector_deep_recall: float | None = None


def vectors(size: int, seed: int = 0) -> Floats:
    """Unit rows around a few thousand topics in 48 of 384 dimensions, with noise in all."""
    chance = np.random.default_rng(seed)
    mixing = chance.standard_normal((48, DIMENSION), dtype=np.float32)
    topics = chance.standard_normal((max(8, size // 100), 48), dtype=np.float32)
    rows = np.empty((size, DIMENSION), np.float32)
    for first in range(0, size, 65536):
        part = slice(first, min(first + 65536, size))
        count = part.stop - part.start
        latent = topics[chance.integers(0, len(topics), count)]
        latent = latent + 0.7 * chance.standard_normal((count, 48), dtype=np.float32)
        rows[part] = latent @ mixing
        rows[part] += 0.5 * chance.standard_normal((count, DIMENSION), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def cpu_ms(work: Callable[[], object], budget_s: float = 0.6) -> float:
    """The median of at least three runs, after one that warms."""
    work()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget_s and len(times) < 200):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def stored(
    rows: Floats, backend: FlatBackend, types: NDArray[np.uint8] | None = None
) -> FlatVectors:
    """A bank of these rows, all of one type unless said otherwise."""
    size = len(rows)
    types = np.zeros(size, np.uint8) if types is None else types
    population = AliveSet.empty().extended(types, np.empty(0, np.int32))
    return backend.empty().extended([rows], np.zeros(size, np.bool_), population)


def exact(store: FlatVectors, queries: Floats, allowed: Bools | None) -> list[Ints]:
    if len(queries) == 1:
        return [store.scan(queries[0]).top(K, allowed, FactType.WORLD).ordinals]
    return [scan.top(K, allowed, FactType.WORLD).ordinals for scan in store.scan_many(queries)]


def measure(size: int, batches: Sequence[int]) -> tuple[FlatVectors, Floats, list[Figure]]:
    rows = vectors(size)
    store = stored(rows, FlatBackend())
    bare = replace(store, survey=None)
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(rows)
    del rows
    queries = vectors(max(QUERIES, *batches), seed=1)
    figures = []
    for batch in batches:
        asked = np.ascontiguousarray(queries[:batch])
        for share in SHARES:
            allowed = mask(size, share)
            k = min(K, size if allowed is None else max(1, int(allowed.sum())))
            parameters = None
            if allowed is not None:
                bits = np.packbits(allowed, bitorder="little")
                selector = _faiss.IDSelectorBitmap(bits)
                parameters = _faiss.SearchParameters(sel=selector)
            found = exact(store, asked, allowed)
            for mine, theirs in zip(found, exact(bare, asked, allowed), strict=True):
                assert np.array_equal(mine, theirs)
            _, plain = index.search(asked, k, params=parameters)
            for mine, theirs in zip(found, plain, strict=True):
                # Equal up to how two roundings order near ties.
                assert len(np.intersect1d(mine, theirs)) >= 0.99 * len(mine)
            matrix = store.matrix

            def blas(matrix: Floats = matrix, asked: Floats = asked, k: int = k) -> None:
                table = matrix @ asked[0] if len(asked) == 1 else asked @ matrix.T
                np.argpartition(table, table.shape[-1] - min(k, table.shape[-1]))

            figures.append(
                Figure(
                    size,
                    batch,
                    share,
                    cpu_ms(lambda: exact(store, asked, allowed)) / batch,  # noqa: B023
                    cpu_ms(lambda: exact(bare, asked, allowed)) / batch,  # noqa: B023
                    cpu_ms(lambda: index.search(asked, k, params=parameters)) / batch,  # noqa: B023
                    cpu_ms(blas) / batch,
                )
            )
    return store, queries, figures


def mask(size: int, share: float | None) -> Bools | None:
    if share is None:
        return None
    return np.asarray(np.random.default_rng(size).random(size) < share)


def copied(first: int, buckets: Doubles, rows: Floats) -> bytes:
    """Rows of the table, numbered from `first`, as COPY reads them in its binary format."""
    lengths = [("fields", ">i2"), ("a", ">i4"), ("id", ">i4"), ("b", ">i4"), ("bucket", ">f4")]
    vector = [("c", ">i4"), ("dimension", ">i2"), ("unused", ">i2"), ("e", ">f4", DIMENSION)]
    table = np.zeros(len(rows), np.dtype([*lengths, *vector]))
    table["fields"], table["a"], table["b"], table["c"] = 3, 4, 4, 4 + 4 * DIMENSION
    table["id"] = first + np.arange(len(rows))
    table["bucket"], table["dimension"], table["e"] = buckets, DIMENSION, rows
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + table.tobytes() + b"\xff\xff"


async def pgvector(store: FlatVectors, queries: Floats, figures: list[Figure]) -> list[Figure]:
    """The same searches by an HNSW index in the embedded Postgres, one query at a time."""
    rows = store.matrix
    size = len(rows)
    out = []
    with tempfile.TemporaryDirectory() as folder:
        # Room for table and index: what outgrows it is built and read several times slower.
        gigabytes = f"{1 + size * 4 // 1_000_000}GB"
        room = {"maintenance_work_mem": gigabytes, "shared_buffers": gigabytes}
        server = EmbeddedPostgres(Path(folder), settings=room)
        dsn = await asyncio.to_thread(server.start)
        long = 3600.0  # an index of 100,000 takes minutes
        pool = await open_pool(PoolSettings(dsn, command_timeout_s=long, statement_timeout_s=long))
        try:
            async with pool.acquire() as connection:
                await connection.execute("create extension vector")
                await connection.execute(
                    f"create table v (id int, bucket real, e vector({DIMENSION}))"
                )
                chance = np.random.default_rng(size).random(size)
                for first in range(0, size, 5000):
                    part = slice(first, first + 5000)
                    await connection.copy_to_table(
                        "v",
                        source=BytesIO(copied(first, chance[part], rows[part])),
                        format="binary",
                    )
                start = time.perf_counter()
                await connection.execute("set max_parallel_maintenance_workers = 0")
                await connection.execute(
                    "create index on v using hnsw (e vector_ip_ops) with (m = 16)"
                )
                print(f"pgvector: index of {size} built in {time.perf_counter() - start:.0f} s")
                await connection.execute("analyze v")
                await connection.execute("set hnsw.iterative_scan = strict_order")
                await connection.execute("set hnsw.max_scan_tuples = 200000")
                process = Path(f"/proc/{connection.get_server_pid()}/schedstat")
                for figure in figures:
                    if figure.batch == 1:
                        out.append(await _ask(connection, process, store, queries, figure))
                    else:
                        out.append(figure)
        finally:
            await pool.close()
            await asyncio.to_thread(server.stop)
    return out


async def _ask(
    connection: Any, process: Path, store: FlatVectors, queries: Floats, figure: Figure
) -> Figure:
    share = 1.0 if figure.share is None else figure.share
    allowed = mask(figure.size, figure.share)
    where = "" if figure.share is None else f"where bucket < {share}"
    statement = await connection.prepare(
        f"select id from v {where} order by e <#> $1::text::vector limit {K}"
    )
    asked = [
        ("[" + ",".join(map(str, query)) + "]", exact(store, query[None], allowed)[0])
        for query in queries[:QUERIES]
    ]

    async def ask(depth: int) -> tuple[float, float, float, float]:
        """CPU ms, wall ms, recall and rows found, at this ef_search."""
        await connection.execute(f"set hnsw.ef_search = {depth}")
        recall, found = [], []
        before, start = _ran(process), time.perf_counter()
        for _ in range(5):
            answers = [[row[0] for row in await statement.fetch(text)] for text, _ in asked]
        wall = time.perf_counter() - start
        cpu = _ran(process) - before
        for ids, (_, truth) in zip(answers, asked, strict=True):
            recall.append(len(np.intersect1d(ids, truth)) / max(1, len(truth)))
            found.append(len(ids))
        each = 1e3 / (5 * len(asked))
        return cpu * each, wall * each, statistics.mean(recall), statistics.mean(found)

    cpu, wall, recall, found = await ask(K)
    deep, _, deep_recall, _ = await ask(1000)
    return replace(
        figure,
        pgvector_ms=cpu,
        pgvector_wall_ms=wall,
        pgvector_recall=recall,
        pgvector_found=found,
        pgvector_deep_ms=deep,
        pgvector_deep_recall=deep_recall,
    )


def _ran(process: Path) -> float:
    """Seconds a process ran so far, to the nanosecond (its CPU times are counted in ticks)."""
    return int(process.read_text().split()[0]) / 1e9


def crossover(size: int) -> Table:
    """Gathering rows one by one against one pass over all: where the second starts to win."""
    store = stored(vectors(size), FlatBackend())
    query = vectors(1, seed=1)[0]
    table = Table(title=f"Gather or scan, {size:,} rows", title_justify="left", box=None)
    for name in ("share", "gather ms", "scan ms"):
        table.add_column(name, justify="right")
    everyone = np.arange(size, dtype=np.int32)
    scanned = cpu_ms(lambda: store.dense(query))
    for share in (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7):
        chosen = everyone[np.random.default_rng(2).random(size) < share]
        gathered = cpu_ms(lambda: store.gathered(query, chosen))  # noqa: B023
        table.add_row(f"{share:.2f}", f"{gathered:.3f}", f"{scanned:.3f}")
    return table


def recalled(
    store: FlatVectors,
    queries: Floats,
    kinds: Sequence[FactType],
    allowed: Bools | None,
    others: Ints,
) -> None:
    """What one recall asks of a bank's vectors, for each query."""
    for query in queries:
        scan = store.scan(query)
        scan.moments(None)
        for kind in kinds:
            scan.top(K, allowed, kind)
        scan.at(others)


def surveys(sizes: Sequence[int]) -> Table:
    """What a bank's survey costs when it is loaded, and saves in the questions of a recall."""
    table = Table(title="A recall's questions, CPU ms", title_justify="left", box=None)
    for name in (
        "rows", "types", "filter", "with survey", "without", "x", "made in s", "MB", "of MB",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for size, mixed in itertools.product(sizes, (False, True)):
        rows, queries = vectors(size), vectors(8, seed=1)
        chance = np.random.default_rng(size)
        types = chance.choice(3, size, p=[0.6, 0.3, 0.1]).astype(np.uint8)
        kinds = list(FactType) if mixed else [FactType.WORLD]
        types = types if mixed else np.zeros(size, np.uint8)
        bare = stored(rows, FlatBackend(size + 1), types)
        start = time.process_time()
        store = stored(rows, FlatBackend(1), types)
        made = time.process_time() - start
        both = store, bare
        others = chance.choice(size, 3000).astype(np.int32)
        for share in (None, 0.5, 0.1):
            allowed = mask(size, share)
            questions = [partial(recalled, of, queries, kinds, allowed, others) for of in both]
            ours, plain = (cpu_ms(question) / len(queries) for question in questions)
            table.add_row(
                f"{size:,}",
                "3" if mixed else "1",
                "none" if share is None else f"{share:.0%}",
                f"{ours:.3f}",
                f"{plain:.3f}",
                f"{plain / ours:.1f}",
                f"{made:.2f}",
                f"{(store.nbytes - bare.nbytes) / 1e6:.0f}",
                f"{bare.nbytes / 1e6:.0f}",
            )
    return table


def inverted(size: int) -> Table:
    """Inverted lists against the exact scan: CPU ms, and the least share of the true 300 of any
    type found."""
    table = Table(title=f"Inverted lists, {size:,} rows", title_justify="left", box=None)
    for name in ("types", "filter", "lists ms", "exact ms", "x", "recall"):
        table.add_column(name, justify="right")
    rows = vectors(size + 20)
    rows, queries = rows[:size], rows[size:]
    for mixed in (False, True):
        types = np.random.default_rng(2).choice(3, size, p=[0.6, 0.3, 0.1]).astype(np.uint8)
        types = types if mixed else np.zeros(size, np.uint8)
        kinds = list(FactType) if mixed else [FactType.WORLD]
        population = AliveSet.empty().extended(types, np.empty(0, np.int32))
        start = time.process_time()
        store = IvfBackend(1).empty().extended([rows], np.zeros(size, np.bool_), population)
        assert store.lists is not None
        more, of = (store.nbytes - store.exact.nbytes) / 1e6, store.exact.nbytes / 1e6
        print(
            f"{store.lists.probes.tolist()} of {len(store.lists.centroids)} lists hold the best"
            f" {list(DEPTHS)}; made in {time.process_time() - start:.1f} CPU s,"
            f" {more:.0f} MB beside {of:.0f}"
        )
        for share in SHARES:
            allowed = mask(size, share)

            def ask(
                of: FlatVectors | IvfVectors,
                some: Floats = queries[:5],
                kinds: Sequence[FactType] = kinds,
                allowed: Bools | None = allowed,
            ) -> list[list[Ints]]:
                scans = [of.scan(query) for query in some]
                return [[scan.top(K, allowed, t).ordinals for scan in scans] for t in kinds]

            recall = [
                np.mean([np.isin(hits, mine).mean() for hits, mine in zip(*both, strict=True)])
                for both in zip(ask(store.exact, queries), ask(store, queries), strict=True)
            ]
            lists, scan = (cpu_ms(partial(ask, of)) / 5 for of in (store, store.exact))
            table.add_row(
                str(len(kinds)),
                "none" if share is None else f"{share:.1%}",
                f"{lists:.3f}",
                f"{scan:.3f}",
                f"{scan / lists:.1f}",
                f"{min(recall):.3f}",
            )
    return table


def show(figures: Sequence[Figure]) -> None:
    table = Table(title="CPU ms per query, k = 300", title_justify="left", box=None)
    for name in (
        "rows", "batch", "filter", "ours", "plain", "x", "FAISS flat", "x", "BLAS", "pgvector", "x",
        "wall", "recall", "found", "ef 1000", "recall",
    ):  # fmt: skip
        table.add_column(name, justify="right")

    def number(value: float | None, places: int = 3) -> str:
        return "" if value is None else f"{value:.{places}f}"

    for f in figures:
        table.add_row(
            f"{f.size:,}",
            str(f.batch),
            "none" if f.share is None else f"{f.share:.1%}",
            number(f.ours_ms),
            number(f.plain_ms),
            number(f.plain_ms / f.ours_ms, 1),
            number(f.faiss_ms),
            number(f.faiss_ms / f.ours_ms, 1),
            number(f.blas_ms),
            number(f.pgvector_ms),
            number(f.pgvector_ms and f.pgvector_ms / f.ours_ms, 1),
            number(f.pgvector_wall_ms),
            number(f.pgvector_recall),
            number(f.pgvector_found, 0),
            number(f.pgvector_deep_ms),
            number(f.pgvector_deep_recall),
        )
    Console(width=145).print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench vectors", description=__doc__)
    parser.add_argument("--sizes", default="600,10000,100000")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--pgvector", default="10000", help="sizes; empty: leave it out")
    parser.add_argument("--surveys", default="10000,20000,50000", help="sizes; empty: leave it out")
    parser.add_argument("--ivf", default="", help="sizes for inverted lists")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    faiss.omp_set_num_threads(1)
    threadpool_limits(1)
    print(f"OPENBLAS_CORETYPE={os.environ.get('OPENBLAS_CORETYPE', '(unset)')}")
    with_pgvector = {int(s) for s in given.pgvector.split(",") if s}
    every: list[Figure] = []
    for size in (int(s) for s in given.sizes.split(",") if s):
        store, queries, figures = measure(size, [int(b) for b in given.batches.split(",")])
        if size in with_pgvector:
            figures = asyncio.run(pgvector(store, queries, figures))
        show(figures)
        every += figures
    Console(width=130).print(crossover(50_000))
    if given.surveys:
        Console(width=130).print(surveys([int(s) for s in given.surveys.split(",")]))
    for size in (int(s) for s in given.ivf.split(",") if s):
        Console(width=130).print(inverted(size))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(f) for f in every], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
