"""Rerankers that behave well and badly, over the protocol that real ones speak."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from models.types import Scores
from retrieval.protocols import RerankRequest


def words(text: str) -> set[str]:
    """Words of four letters and more, which leaves out most of those that carry nothing."""
    return set(re.findall(r"\w{4,}", text.lower()))


@dataclass(slots=True)
class Scripted:
    """Answers with `score` of (question, document) for the first `len(documents) - short`
    documents; keeps what it was given to read."""

    score: Callable[[str, str], float]
    short: int = 0
    scale: str = "probability"
    reads_text: bool = True
    read: list[str] = field(default_factory=list)

    async def rerank(self, request: RerankRequest) -> Scores:
        self.read = list(request.documents)
        given = self.read[: len(self.read) - self.short]
        scores = np.array([self.score(request.query, document) for document in given], np.float32)
        return Scores(scores, self.scale, "scripted")


def overlap(question: str, document: str) -> float:
    """The share of the question's words that the document has: reads words and nothing else."""
    asked = words(question)
    return len(asked & words(document)) / max(1, len(asked))


class Hanging:
    """Never answers, whatever its deadline."""

    reads_text = True

    async def rerank(self, request: RerankRequest) -> Scores:
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")
