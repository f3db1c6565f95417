"""What serve opens of models/ fits the seams of retrieval/: mypy checks it, this runs it."""

from __future__ import annotations

import numpy as np
import pytest

from models.catalog import build_embedder, build_reranker
from models.settings import EmbedderSettings, RerankerSettings
from models.types import Scores
from retrieval.protocols import Embedder, Reranker, RerankScores
from serve.opening.translation import OpenedReranker

pytestmark = pytest.mark.unit


def test_embedder_and_reranker_fit() -> None:
    embedder: Embedder = build_embedder(EmbedderSettings(model="packaged"))
    alone: Reranker = OpenedReranker(build_reranker([RerankerSettings(provider="rrf")]))
    chain: Reranker = OpenedReranker(build_reranker([RerankerSettings(provider="local")]))
    scores: RerankScores = Scores(np.zeros(1, np.float32), "logit", "local")
    assert isinstance(embedder, Embedder)
    assert isinstance(alone, Reranker)
    assert isinstance(chain, Reranker)
    assert scores.member == "local"
    assert not alone.reads_text
    assert chain.reads_text
