"""What a fact's text is surrounded with for the arms; the stored text stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import FourfoldError, ModelChanged, Unavailable
from retrieval.ingest.context import WriteContext
from retrieval.ingest.facts import Fact, Prepared
from retrieval.keyword.analyser import Analyser, IndexedText
from retrieval.protocols import Embedder
from retrieval.settings import RetainSettings
from retrieval.store.heads import made_by
from retrieval.store.segments.merge import SegmentPart, join
from retrieval.text import tokens
from retrieval.text.months import MONTHS
from retrieval.types import FactType, Floats, Ints


def together(first: Prepared, second: Prepared) -> Prepared:
    """The facts of both, in this order. Unavailable where two models made their vectors."""
    if first.vector_set != second.vector_set:
        raise ModelChanged(first.vector_set, second.vector_set)
    parts = [
        SegmentPart(0, len(first), first.postings),
        SegmentPart(len(first), len(second), second.postings),
    ]
    return Prepared(
        [*first.facts, *second.facts],
        np.concatenate([first.vectors, second.vectors]),
        first.vector_set,
        join("postings", parts).arrays,
        np.concatenate([first.tokens, second.tokens]),
        [*first.signals, *second.signals],
        first.analyser if first.analyser == second.analyser else "",
    )


def _month(time: datetime) -> str:
    return f"{MONTHS[time.month - 1]} {time.year}"


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
        f"{MONTHS[time.month - 1]} {time.day} {time.year}"
        for time in (fact.occurred_start, fact.occurred_end)
        if time is not None
    )
    return " ".join([*parts, *days]) or None


@dataclass(frozen=True, slots=True)
class _Read:
    """What the words of facts come to; see Prepared."""

    postings: Mapping[str, NDArray[Any]]
    tokens: Ints
    signals: list[str | None]
    analyser: str


def _read(
    analyser: Callable[[RetainSettings], Analyser], settings: RetainSettings, facts: Sequence[Fact]
) -> _Read:
    found = [signals(fact) for fact in facts]
    own = analyser(settings)
    return _Read(
        own.weigh(_documents(facts, found)),
        tokens.counts([fact.text for fact in facts]),
        found,
        own.version,
    )


def _documents(facts: Sequence[Fact], found: Sequence[str | None]) -> list[IndexedText]:
    return [
        IndexedText(fact.text, fact.context, signal)
        for fact, signal in zip(facts, found, strict=True)
    ]


async def prepare(
    deps: WriteContext,
    settings: RetainSettings,
    facts: Sequence[Fact],
    tenant: str,
    held: Vectors | None = None,
) -> Prepared:
    """Vectors, postings and counts of the facts; heavy work leaves the event loop.

    `held`: their vectors, where those are there already.
    """
    reading = deps.run(_read, deps.analyser, settings, facts)
    if held is None:
        read, vectors = await asyncio.gather(reading, embedded(deps.embedder, facts, tenant))
    else:
        read, vectors = await reading, held
    return Prepared(
        facts,
        vectors.rows,
        vectors.vector_set,
        read.postings,
        read.tokens,
        read.signals,
        read.analyser,
    )


async def weighed_by(deps: WriteContext, settings: RetainSettings, prepared: Prepared) -> Prepared:
    """`prepared` with postings of these settings: the bank may have changed its language since."""
    version = deps.analyser(settings).version
    if prepared.analyser == version:
        return prepared
    postings = await deps.run(_weigh, deps.analyser, settings, prepared)
    return replace(prepared, postings=postings, analyser=version)


def _weigh(
    analyser: Callable[[RetainSettings], Analyser], settings: RetainSettings, prepared: Prepared
) -> Mapping[str, NDArray[Any]]:
    return analyser(settings).weigh(_documents(prepared.facts, prepared.signals))


@dataclass(frozen=True, slots=True)
class Vectors:
    """Unit vectors, float32 (n, d), and the name of the model's set that they belong to."""

    rows: Floats
    vector_set: str


async def embedded(embedder: Embedder, facts: Sequence[Fact], tenant: str) -> Vectors:
    """The passage vectors of facts; Unavailable where the embedder does not give them."""
    texts = await asyncio.to_thread(lambda: [embedding_text(fact) for fact in facts])
    try:
        vectors = await embedder.embed_passages(texts, tenant=tenant)
        made = made_by(embedder)  # of this very answer
    except FourfoldError:
        raise
    except (OSError, RuntimeError) as error:
        raise Unavailable("the embedder", str(error) or type(error).__name__) from error
    if vectors.shape != (len(facts), embedder.dimension):
        raise Unavailable("the embedder", f"it gave {vectors.shape} for {len(facts)} texts")
    return Vectors(vectors, made)
