"""The reranker chain before a TEI that refuses, is slow, restarts and changes, while recalls run.

Whatever it does, an answer is TEI's own, to the last document, or the fused order marked as
degraded; and once TEI is well, TEI answers again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from models.catalog import build_reranker
from models.chain import FailoverChain
from models.settings import RerankerSettings
from models.types import ModelError, RerankRequest, Scores
from tests.models.tei_server import TeiServer
from tests.models.test_tei import DOCUMENTS, QUERY, expected

pytestmark = pytest.mark.integration

WELL_WITHIN_S = 60.0


@dataclass
class Answers:
    right: int = 0
    degraded: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, scores: Scores) -> None:
        if scores.degraded:
            assert scores.scores is None
            self.degraded += 1
        elif scores.scores is None or not np.allclose(scores.scores, expected(), rtol=1e-5):
            self.wrong.append(str(scores)[:200])
        else:
            self.right += 1


@asynccontextmanager
async def chain(server: TeiServer, limit_s: float = 5.0) -> AsyncIterator[FailoverChain]:
    member = RerankerSettings(provider="tei", url=server.url, timeout_s=limit_s)
    built = build_reranker([member])
    assert isinstance(built, FailoverChain)
    await built.start()
    try:
        yield built
    finally:
        await built.close()


async def _rerank(one: FailoverChain) -> Scores:
    return await one.rerank(RerankRequest(QUERY, DOCUMENTS, deadline=time.monotonic() + 20))


async def _recalls(chains: list[FailoverChain], stop: asyncio.Event, seen: Answers) -> None:
    """Callers that ask until they are told to stop, two for each chain."""

    async def ask(one: FailoverChain) -> None:
        while not stop.is_set():
            try:
                seen.add(await _rerank(one))
            except ModelError as error:
                seen.wrong.append(repr(error))
            await asyncio.sleep(0.01)

    await asyncio.gather(*(ask(one) for one in chains for _ in range(2)))


async def _until_right(one: FailoverChain) -> None:
    stop_at = time.monotonic() + WELL_WITHIN_S
    while (await _rerank(one)).degraded:
        assert time.monotonic() < stop_at, "TEI is well and is not asked"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def load(*chains: FailoverChain) -> AsyncIterator[Answers]:
    seen, stop = Answers(), asyncio.Event()
    running = asyncio.create_task(_recalls([*chains], stop, seen))
    try:
        yield seen
    finally:
        stop.set()
        await running


async def _more(seen: Answers, answers: int) -> None:
    stop_at = time.monotonic() + WELL_WITHIN_S
    wanted = seen.right + seen.degraded + answers
    while seen.right + seen.degraded < wanted and not seen.wrong:
        assert time.monotonic() < stop_at
        await asyncio.sleep(0.02)


async def test_several_processes_before_a_small_tei() -> None:
    """Each holds its permits, together they ask for more than TEI takes: it says 429."""
    with TeiServer(max_concurrent_requests=120, max_client_batch_size=32) as server:
        server.delay_s = 0.02
        async with chain(server) as a, chain(server) as b, chain(server) as c:
            async with load(a, b, c) as seen:
                await _more(seen, 30)
            await _until_right(a)
        assert not seen.wrong
        assert seen.right
        assert server.refused, "nobody was refused: this proves nothing"
        assert server.most_texts <= 120


async def test_slow_batches_cost_their_limit_and_not_more() -> None:
    with TeiServer() as server:
        async with chain(server, limit_s=0.5) as one:
            async with load(one) as seen:
                await _more(seen, 6)
                server.delay_s = 3.0
                await _more(seen, 20)
                assert seen.degraded >= 10
                assert one.open_circuits() == ["tei"]
                server.delay_s = 0.0
            server.hanging.clear()
            await _until_right(one)
        assert not seen.wrong


async def test_a_restart() -> None:
    with TeiServer() as server:
        async with chain(server) as one:
            async with load(one) as seen:
                await _more(seen, 6)
                await asyncio.to_thread(server.stop)
                await _more(seen, 10)
                await asyncio.to_thread(server.start)
                await _until_right(one)
                right = seen.right
                await _more(seen, 6)
            assert seen.right > right
        assert not seen.wrong


async def test_another_model_with_smaller_limits_takes_its_place() -> None:
    with TeiServer(max_client_batch_size=32) as server:
        async with chain(server) as one:
            async with load(one) as seen:
                await _more(seen, 6)
                await asyncio.to_thread(server.stop)
                server.max_client_batch_size, server.max_input_length = 8, 64
                server.largest_batch = 0
                await asyncio.to_thread(server.start)
                await _until_right(one)
                await _more(seen, 6)
            assert server.largest_batch <= 8
        assert not seen.wrong
