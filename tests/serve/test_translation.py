"""Errors of models reach retrieval and the API as retrieval's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import models.types as raised
from models.passthrough import Passthrough
from retrieval import errors
from retrieval.protocols import RerankRequest
from serve.http.errors import refusal
from serve.opening.translation import OpenedEmbedder, OpenedReranker, translated

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("error", "kind", "said", "status"),
    [
        (raised.Overloaded("the queue is full", 7.2), errors.Overloaded, "the queue is full", 503),
        (raised.DeadlineExceeded("batching"), errors.DeadlineExceeded, "during batching", 504),
        (
            raised.Unavailable("tei", "it is not started"),
            errors.Unavailable,
            "tei is not available: it is not started",
            503,
        ),
        (raised.DeviceLost("cuda:0", "gone"), errors.Unavailable, "cuda:0 is not available", 503),
        (raised.BadOutput("not finite"), errors.Unavailable, "the embedder is not", 503),
        (
            raised.RemoteError("openai", "slow down", retry_after_s=12.5),
            errors.Unavailable,
            "openai: slow down",
            503,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors(
    error: raised.ModelError, kind: type[errors.FourfoldError], said: str, status: int
) -> None:
    found = translated(error, "the embedder")
    assert type(found) is kind
    assert said in str(found)
    answer = refusal(found)
    assert answer.status_code == status
    seconds = getattr(error, "retry_after_s", None)
    if seconds is not None:
        assert answer.headers["retry-after"] == str(int(np.ceil(seconds)))


class Broken:
    """An embedder and a member of a chain whose every call fails."""

    name, model_id, dimension, reads_text = "broken", "m", 3, True

    async def _fail(self, *_given: Any, **_named: Any) -> Any:
        raise raised.BadOutput("no score is a number")

    embed_queries = embed_passages = rerank = check_health = start = close = _fail

    def load(self) -> raised.Load:
        return raised.Load(queued_calls=4)

    def legibility(self, text: str) -> float | None:
        return None


async def test_every_call_translates() -> None:
    embedder, reranker = OpenedEmbedder(Broken()), OpenedReranker(Broken())
    for work in (
        embedder.embed_queries(["a"]),
        embedder.embed_passages(["a"]),
        embedder.check_health(),
        reranker.rerank(RerankRequest("a", ["b"])),
        reranker.check_health(),
    ):
        with pytest.raises(errors.Unavailable, match="no score is a number"):
            await work
    assert (embedder.model_id, embedder.dimension, embedder.load().queued_calls) == ("m", 3, 4)
    assert (reranker.name, reranker.reads_text, reranker.load().queued_calls) == ("broken", True, 4)


async def test_what_succeeds_passes() -> None:
    reranker = OpenedReranker(Passthrough("rrf"))
    assert (await reranker.rerank(RerankRequest("a", []))).member == "rrf"
    assert not reranker.reads_text


class OnDevice(Passthrough):
    runs_on = "bf16 on cpu"


def test_a_reranker_says_what_it_is_and_what_it_runs_on() -> None:
    assert OpenedReranker(Passthrough("fused")).name == "fused"
    assert OpenedReranker(OnDevice("local")).name == "local (bf16 on cpu)"
