"""Rerankers and embedders that behave as a case asks.

Where a case is about scores the stub is an object; where it is about the protocol (limits,
refusals, silence) it is the stand-in of text-embeddings-inference, on a real socket.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.types import Scores
from retrieval.protocols import RerankRequest
from tests.models.tei_server import Reply, TeiServer


@dataclass(slots=True)
class ScoreStub:
    """A reranker with fixed scores: `by_text` gives the score of the document that ends with a
    text, `default` that of all others."""

    by_text: Mapping[str, float]
    default: float = 0.0
    scale: str = "unknown"
    reads_text: bool = True

    async def rerank(self, request: RerankRequest) -> Scores:
        scores = np.array([self._score(document) for document in request.documents], np.float32)
        return Scores(scores, self.scale, "stub")

    def _score(self, document: str) -> float:
        for text, score in self.by_text.items():
            if document.endswith(text):
                return score
        return self.default


def number(value: Any) -> float:
    """A score as a case writes it: a number, or NaN and infinities by name or as null."""
    return math.nan if value is None else float(value)


def script(server: TeiServer, responses: Sequence[Mapping[str, Any]]) -> None:
    """Lets the server give these answers first; a status of 200 stands for its own answer."""
    refusals = [given for given in responses if given["status"] != 200]
    if refusals != list(responses[: len(refusals)]):
        raise ValueError("a refusal after an answer cannot be scripted")
    body = {"error": "Model is overloaded", "error_type": "Overloaded"}
    server.scripted.extend(
        Reply(given["status"], given.get("body", body), given.get("headers", {}))
        for given in refusals
    )


def refusing_url() -> str:
    """A URL where nobody listens: its port was free a moment ago."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
