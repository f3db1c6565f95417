"""What a fact's text is surrounded with for the arms; the stored text stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from retrieval import tokens
from retrieval.errors import FourfoldError, Unavailable
from retrieval.ingest.deps import IngestDeps
from retrieval.ingest.facts import Fact, Prepared
from retrieval.keyword.analyser import Analyser, Document
from retrieval.protocols import Embedder
from retrieval.settings import RetainSettings
from retrieval.store.splice import Part, join
from retrieval.types import FactType, Floats

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def together(first: Prepared, second: Prepared) -> Prepared:
    """The facts of both, in this order."""
    parts = [
        Part(0, len(first), first.postings),
        Part(len(first), len(second), second.postings),
    ]
    return Prepared(
        [*first.facts, *second.facts],
        np.concatenate([first.vectors, second.vectors]),
        join("postings", parts).arrays,
        np.concatenate([first.tokens, second.tokens]),
        [*first.signals, *second.signals],
        first.analyser if first.analyser == second.analyser else "",
    )


def _month(time: datetime) -> str:
    return f"{_MONTHS[time.month - 1]} {time.year}"


def embedding_text(fact: Fact) -> str:
    """The text that is embedded: with month and names; an observation's is bare."""
    if fact.fact_type is FactType.OBSERVATION:
        return fact.text
    parts = [fact.text]
    if (start := fact.event_date) is not None:
        end = fact.occurred_end
        if end is not None and end != start:
            parts.append(f"(happened from {_month(start)} to {_month(end)})")
        else:
            parts.append(f"(happened in {_month(start)})")
    if fact.mentions:
        parts.append("[" + ", ".join(mention.name for mention in fact.mentions) + "]")
    return " ".join(parts)


def signals(fact: Fact) -> str | None:
    """Names and readable dates for the keyword arm; None if there are none."""
    parts = [mention.name for mention in fact.mentions]
    days = dict.fromkeys(
        f"{_MONTHS[time.month - 1]} {time.day} {time.year}"
        for time in (fact.occurred_start, fact.occurred_end)
        if time is not None
    )
    return " ".join([*parts, *days]) or None


async def prepare(
    deps: IngestDeps, settings: RetainSettings, facts: Sequence[Fact], tenant: str
) -> Prepared:
    """Vectors, postings and counts of the facts; heavy work leaves the event loop."""
    found = [signals(fact) for fact in facts]
    documents = [
        Document(fact.text, fact.context, signal) for fact, signal in zip(facts, found, strict=True)
    ]
    texts = [fact.text for fact in facts]
    analyser = deps.analyser(settings)
    analysing = asyncio.to_thread(analyser.weigh, documents)
    counting = asyncio.to_thread(tokens.counts, texts)
    vectors, postings, counts = await asyncio.gather(
        embedded(deps.embedder, facts, tenant), analysing, counting
    )
    return Prepared(facts, vectors, postings, counts, found, analyser.version)


async def weighed_by(analyser: Analyser, prepared: Prepared) -> Prepared:
    """`prepared` with postings of this analyser: the bank may have changed its language since."""
    if prepared.analyser == analyser.version:
        return prepared
    documents = [
        Document(fact.text, fact.context, signal)
        for fact, signal in zip(prepared.facts, prepared.signals, strict=True)
    ]
    postings = await asyncio.to_thread(analyser.weigh, documents)
    return replace(prepared, postings=postings, analyser=analyser.version)


async def embedded(embedder: Embedder, facts: Sequence[Fact], tenant: str) -> Floats:
    """The passage vectors of facts; Unavailable where the embedder does not give them."""
    texts = [embedding_text(fact) for fact in facts]
    try:
        vectors = await embedder.embed_passages(texts, tenant=tenant)
    except FourfoldError:
        raise
    except (OSError, RuntimeError) as error:
        raise Unavailable("the embedder", str(error) or type(error).__name__) from error
    if vectors.shape != (len(facts), embedder.dimension):
        raise Unavailable("the embedder", f"it gave {vectors.shape} for {len(facts)} texts")
    return vectors
