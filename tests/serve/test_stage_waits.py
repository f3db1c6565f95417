"""How long a recall waits for a stage that is not there, and a write for one that hangs."""

from __future__ import annotations

import asyncio
import time

import pytest

from models.passthrough import Passthrough
from retrieval.errors import DeadlineExceeded, Unavailable
from retrieval.protocols import RerankRequest
from serve.cluster import remote
from serve.cluster.remote import RemoteEmbedder, RemoteReranker
from serve.cluster.remote_writer import RemoteWriter
from serve.settings import Settings, parse
from tests.retrieval.store.servers import HashEmbedder
from tests.serve import stages
from tests.serve.stages import StageHandle, handle

pytestmark = pytest.mark.unit


async def test_a_stage_without_a_replica_is_not_waited_for() -> None:
    stage = stages.embedder(HashEmbedder(), replicas=0)
    embedder = RemoteEmbedder(handle(stage), 30.0)
    begin = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable, match="the embedder is not available: none of it runs"):
            await embedder.embed_queries(["a"])
    assert time.monotonic() - begin < 5
    await asyncio.sleep(0.01)
    assert stage.calls == ["describe"], "one call waits, for the autoscaler to see"
    stage.replicas = 1
    assert (await embedder.embed_queries(["a"])).shape == (1, 64)


async def test_a_stage_whose_replicas_are_not_known_yet_is_waited_for_a_little() -> None:
    reranker = RemoteReranker(handle(stages.reranker(Passthrough(), replicas=None)), 0.1)
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await reranker.rerank(RerankRequest("q", ["a"]))
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("deadline_s", [None, 60.0])
async def test_a_slow_stage_is_given_up(deadline_s: float | None) -> None:
    """Whatever time the recall has: it answers without."""
    stage = stages.embedder(HashEmbedder())
    embedder = RemoteEmbedder(handle(stage), 0.2)
    await embedder.embed_queries(["a"])
    stage.delay_s = 30.0
    begin = time.monotonic()
    deadline = None if deadline_s is None else begin + deadline_s
    with pytest.raises(DeadlineExceeded):
        await embedder.embed_queries(["b"], deadline=deadline)
    assert time.monotonic() - begin < 5


async def test_passages_wait_longer_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stages.embedder(HashEmbedder())
    embedder = RemoteEmbedder(handle(stage), 0.01)
    await embedder.embed_passages(["a"])
    stage.delay_s = 0.2
    await embedder.embed_passages(["a"])
    monkeypatch.setattr(remote, "BULK_WAIT_S", 0.05)
    stage.delay_s = 30.0
    with pytest.raises(DeadlineExceeded):
        await embedder.embed_passages(["a"])


async def test_a_writer_that_hangs_lets_its_caller_go(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        async def do(self, _method: str, _args: object) -> None:
            await asyncio.sleep(60)

    monkeypatch.setattr(remote, "BULK_WAIT_S", 0.05)
    stage = StageHandle(Hanging, None)
    writer = RemoteWriter(handle(stage))
    with pytest.raises(Unavailable, match="does not answer: look before you repeat"):
        await writer.clear("t", "b", None)
    assert stage.sessions == ["t/b"], "a bank's writes go where it is held"


def test_the_waits_are_settings() -> None:
    assert (Settings().limits.embed_wait_s, Settings().limits.rerank_wait_s) == (1.0, 2.0)
    given = parse({}, {"FOURFOLD_EMBED_WAIT_S": "0.5", "HINDSIGHT_API_RERANK_WAIT_S": "3"})
    assert (given.limits.embed_wait_s, given.limits.rerank_wait_s) == (0.5, 3.0)
