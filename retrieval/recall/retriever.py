"""The retriever: opens a bank at its newest version and finds the shortlist of a recall."""

from __future__ import annotations

import asyncio
import logging
import time
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack
from uuid import UUID

import asyncpg
import numpy as np

from retrieval import timex, zones
from retrieval.arms import keyword as keyword_arm
from retrieval.arms import semantic
from retrieval.bank import filters
from retrieval.bank.probe import NO_TERMS, Probe, ProbeResult
from retrieval.bank.residency import Residency
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.errors import FourfoldError, StaleSnapshot, Unavailable
from retrieval.keyword.analyser import Analyser, Query, term_hash
from retrieval.keyword.backends import KeywordBackend
from retrieval.keyword.bm25 import ScoredMatches
from retrieval.pacing import Pace
from retrieval.protocols import Embedder, Legible
from retrieval.ranking import floors
from retrieval.ranking.budgets import graph_hops, recall_budget, reranker_cap
from retrieval.ranking.shortlist import EventFound, Question, Shortlist, empty
from retrieval.recall import event, intent, search
from retrieval.recall.look import LOOKS
from retrieval.recall.look.inspection import Watch, inspect
from retrieval.settings import RecallSettings
from retrieval.stopwatch import Stopwatch, TimedStep
from retrieval.store import banks, memories, metadata_scan
from retrieval.store.heads import BankHead, made_by
from retrieval.store.metadata import compiled
from retrieval.types import Floats, Ints, RecallQuery, TemporalMode

_log = logging.getLogger(__name__)

_NAMELESS = frozenset({"season", "calendar period", "rolling", "ago", "day"})
"""Rules of time expressions ("last spring") whose words no memory of that time is likely to say."""

T = TypeVar("T")
Args = TypeVarTuple("Args")

_MOVES = 5
"""How often a bank may be rearranged during one recall."""

INLINE_SIZE = 4_000
"""Banks up to this size are searched on the event loop: their array work stays under 5 ms."""

INLINE_TEXT = 500
"""Characters of a question up to which its words are analysed on the event loop."""

LONG_SIZE = 150_000
"""Banks above this size have threads of their own: nobody waits behind their 10 ms and more, and
these are spent in kernels that let the interpreter go."""


class LocalRetriever:
    """Retrieval in this process. Safe for any number of concurrent calls."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        residency: Residency,
        embedder: Embedder,
        settings: RecallSettings,
        executor: Executor,
        analysers: Callable[[BankHead], Analyser],
        keyword: KeywordBackend | None = None,
        long_executor: Executor | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`executor`: for array work of a few milliseconds, best one thread, since most of it holds
        the interpreter; `long_executor`: for that of banks above LONG_SIZE, None takes the same."""
        self._pool = pool
        self._residency = residency
        self._embedder = embedder
        self._settings = settings
        self._executor = executor
        self._long_executor = long_executor or executor
        self._pace = pace or Pace()
        self._analysers = analysers
        self._keyword = keyword

    @property
    def residency(self) -> Residency:
        """The banks that are held here."""
        return self._residency

    async def holds(self, tenant: str, bank_id: str) -> bool:
        """Whether the bank is in memory here, in whatever version."""
        head = await banks.head(self._pool, tenant, bank_id)
        return self._residency.held(head.bank) is not None

    async def retrieve(self, query: RecallQuery, *, texts: bool) -> Shortlist:
        """See retrieval.recall.engine.Retriever."""
        return await self._settled(lambda clock: self._retrieve(query, texts, clock), query)

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """See retrieval.recall.engine.Retriever."""
        if name == "explain":
            query, texts = arguments["query"], arguments["texts"]
            watch = Watch(arguments["overrides"], arguments["ids"], arguments["lists"])
            shortlist = await self._settled(
                lambda clock: self._retrieve(query, texts, clock, watch), query
            )
            return shortlist, watch.inspection, tuple(watch.spans)
        head = await banks.head(self._pool, arguments["tenant"], arguments["bank_id"])
        bank = await self._residency.open(head)
        return await self._compute(bank, LOOKS[name], bank, arguments)

    async def _settled(
        self, work: Callable[[Stopwatch], Awaitable[Shortlist]], query: RecallQuery
    ) -> Shortlist:
        """What `work` finds, begun anew where the bank was rearranged between two of its steps."""
        clock = Stopwatch()
        async with clock.stage("parallel_retrieval", query.deadline):
            for _ in range(_MOVES):
                try:
                    return await work(clock)
                except StaleSnapshot:
                    continue
            raise Unavailable("the bank", "it keeps being rearranged")

    async def _retrieve(
        self, query: RecallQuery, texts: bool, clock: Stopwatch, watch: Watch | None = None
    ) -> Shortlist:
        seconds = clock.seconds
        begin = time.perf_counter()
        reference = timex.event_reference(query.text) if query.window is None else None
        phrases = [query.text] if reference is None else [query.text, reference.phrase]
        embedding = asyncio.create_task(self._embed(phrases, query))
        searching: asyncio.Task[ScoredMatches | None] | None = None
        try:
            clock.running = "backend_acquisition"
            head = await banks.head(self._pool, query.tenant, query.bank_id)
            clock.ended("backend_acquisition", begin)
            settings = self._settings.with_overrides(head.config)
            if watch is not None:
                settings = settings.with_overrides(watch.overrides)
            query = zones.settled(query, settings.timezone)
            budget = recall_budget(settings, query.budget, query.max_tokens)
            clock.running, since = "query_analysis", time.perf_counter()
            question = await self._question(query, settings)
            clock.mark("query_analysis", since)
            if head.next_ordinal == 0:
                return empty(head, question, budget)
            clock.running, since = "bank_open", time.perf_counter()
            if query.filters.metadata is None:  # two tasks less
                bank, metadata = await self._residency.open(head), None
            else:
                bank, metadata = await asyncio.gather(
                    self._residency.open(head), self._metadata(head, query.filters.metadata)
                )
            clock.mark("bank_open", since)
            if question.name is not None and len(bank.entities.find(question.name)):
                question = await self._question(query, settings, frozenset({question.name}))
            # An event's window is a filter of the keyword arm too, and needs the vectors first.
            late = reference is not None and query.temporal_mode is TemporalMode.FILTER
            if not late:
                searching = self._keyword_arm(bank, query, question, settings, budget, metadata)
            clock.running = "generate_query_embedding"
            vectors, ours, legible = await embedding
            clock.ended("generate_query_embedding", begin)
            analyser = self._analysers(bank.head)
            if bank.head.vector_set != ours:
                vectors = None
            terms = await self._terms(analyser, question.besides or question.text)
            asked = [
                Probe(
                    None if vectors is None else vectors[0],
                    terms if settings.enable_text_search else NO_TERMS,
                )
            ]
            if question.window is not None or not settings.event_windows:
                reference = None
            if reference is not None and vectors is not None:
                asked.append(Probe(vectors[1], await self._terms(analyser, reference.phrase)))
            clock.running = None if bank.whole else "read_ranges"
            readings = await self._readings(bank, asked, settings, query.deadline)
            clock.running = None
            if reference is not None and len(asked) > 1:
                question = await self._at_event(
                    bank, query, question, reference, asked[1], readings[1], settings, metadata
                )
            if late:
                searching = self._keyword_arm(bank, query, question, settings, budget, metadata)
            matches = None if searching is None else await searching
        finally:
            embedding.cancel()
            if searching is not None:
                searching.cancel()
        doubtful = settings.enable_text_search and (
            bank.head.analyser != analyser.version if searching is None else matches is None
        )
        plan = search.SearchPlan(
            query=_filtered(query, question),
            settings=settings,
            question=question,
            asked=asked[0],
            budget=budget,
            cap=reranker_cap(settings, query.budget),
            hops=graph_hops(settings, query.budget),
            metadata=metadata,
            semantic_floor=semantic.floor_of(settings, bank.head.vector_set),
            legible=legible,
            reading=readings[0],
            matches=matches,
            degraded=("keyword",) if doubtful else (),
        )
        since = time.perf_counter()
        found = await self._compute(bank, search.searched, bank, plan)
        clock.mark("search", since)
        shortlist = found.shortlist
        if watch is not None:
            named = await self._words(analyser, question.besides or question.text)
            watch.inspection = await self._compute(bank, inspect, plan, found, watch, named)
        if query.dedupe is not None:
            rows = await self._vectors(bank, shortlist.found.ordinals, query.deadline)
            shortlist = replace(shortlist, vectors=rows)
        if texts and settings.enable_reranking and settings.fusion != "interleave":
            clock.running, since = "hydrate_results", time.perf_counter()
            shortlist = await self._hydrated(shortlist)
            clock.mark("hydrate_texts", since)
        if watch is not None:
            watch.spans = [TimedStep(s.name, s.start - begin, s.seconds) for s in clock.spans] + [
                TimedStep(s.name, s.start - begin, s.seconds) for s in found.spans
            ]
        return replace(shortlist, seconds={**seconds, **shortlist.seconds})

    async def _embed(
        self, texts: list[str], query: RecallQuery
    ) -> tuple[Floats | None, str, float | None]:
        """Query vectors, the name of their set, and how legible the first text is to the model;
        None where the embedder failed: the other arms still answer."""
        try:
            vectors = await self._embedder.embed_queries(
                texts, tenant=query.tenant, deadline=query.deadline
            )
            ours = made_by(self._embedder)
            reader = self._embedder
            legible = reader.legibility(texts[0]) if isinstance(reader, Legible) else None
        except Exception as error:  # costs an arm, never the answer
            _log.warning("embedding failed (%s: %s)", type(error).__name__, error)
            _log.debug("where embedding failed", exc_info=error)
            return None, "", None
        if vectors.shape[0] != len(texts) or not np.isfinite(vectors).all():
            _log.warning("the embedder gave unusable vectors")
            return None, "", None
        return vectors, ours, legible

    async def _terms(self, analyser: Analyser, text: str) -> Query:
        if len(unicodedata.normalize("NFKC", text)) <= INLINE_TEXT:  # a ligature is up to 18
            return analyser.query(text)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, analyser.query, text)

    async def _words(self, analyser: Analyser, text: str) -> Mapping[int, str]:
        """The words that the keyword arm reads, by their hashes."""
        loop = asyncio.get_running_loop()
        words = await loop.run_in_executor(
            self._executor, partial(analyser.terms, text, query=True)
        )
        return {int.from_bytes(term_hash(word), "little"): word for word in words}

    def _keyword_arm(
        self,
        bank: ResidentBank,
        query: RecallQuery,
        question: Question,
        settings: RecallSettings,
        budget: int,
        metadata: Ints | None,
    ) -> asyncio.Task[ScoredMatches | None] | None:
        """What the keyword back-end finds, under way; None where the resident postings serve. The
        result is None where the back-end failed: then they serve too."""
        backend = self._keyword
        if backend is None or not settings.enable_text_search:
            return None
        given, usual = query.min_scores.keyword, settings.bm25_min_score
        floor = usual if given is None else floors.least(given, floors.ARM_DIGITS)
        asked = _filtered(query, question).filters

        async def search() -> ScoredMatches | None:
            try:
                return await keyword_arm.matches(
                    self._pool,
                    backend,
                    bank,
                    question.besides or question.text,
                    asked.types,
                    await self._compute(bank, keyword_arm.allowed, bank, asked, metadata),
                    limit=budget,
                    floor=floor,
                )
            except (FourfoldError, asyncpg.PostgresError) as error:
                _log.warning("keyword back-end %s: %s", backend.name, error)
                return None

        return asyncio.create_task(search())

    async def _question(
        self, query: RecallQuery, settings: RecallSettings, names: frozenset[str] = frozenset()
    ) -> Question:
        """The window: the caller's, or read from the text, in which `names` are no times; a failing
        analyser means none."""
        if not settings.enable_temporal_retrieval:
            return Question(query.text)
        if query.window is not None:
            return Question(query.text, query.window, "explicit")
        options = time_options(settings, names)
        try:
            if timex.is_quick(query.text):  # the way to a thread and back costs more
                found = timex.parse(query.text, query.now, options)
            else:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._executor, timex.parse, query.text, query.now, options
                )
        except Exception:
            _log.exception("time analysis failed")
            return Question(query.text)
        if found is None:
            return Question(query.text)
        besides = None
        if intent.asks_what_happened(query.text):
            named = found.rule not in _NAMELESS  # "March 2023" is among a memory's keywords
            cut = found.start if named else found.end
            besides = f"{query.text[: found.start]} {query.text[cut:]}"
        window = zones.window_seen(found.window, query.now.tzinfo)
        name = found.text if found.maybe_name else None
        return Question(query.text, window, found.rule, besides=besides, name=name)

    async def _metadata(self, head: BankHead, wanted: Mapping[str, Mapping[str, Any]]) -> Ints:
        return await metadata_scan.matching(
            self._pool, head.bank, compiled(wanted), head.generation
        )

    async def _at_event(
        self,
        bank: ResidentBank,
        query: RecallQuery,
        question: Question,
        reference: timex.EventReference,
        phrase: Probe,
        reading: ProbeResult | None,
        settings: RecallSettings,
        metadata: Ints | None,
    ) -> Question:
        """The question with the window that its event gives, if the bank knows the event."""
        found = await self._compute(
            bank, search.find_event, bank, query, phrase, settings, metadata, reading
        )
        if found is None:
            return question
        named = EventFound(
            reference.phrase,
            reference.relation,
            found.ordinal,
            str(UUID(bytes=bank.columns.id[found.ordinal].tobytes())),
            found.confidence,
        )
        window = event.window(found, reference.relation)
        columns, one = bank.columns, [found.ordinal]
        if filters.by_date(columns.occurred_start[one], columns.occurred_end[one])[0]:
            window = zones.days_of(window, query.now.tzinfo)
        return Question(question.text, window, f"event:{reference.relation}", named)

    async def _readings(
        self,
        bank: ResidentBank,
        asked: Sequence[Probe],
        settings: RecallSettings,
        deadline: float | None,
    ) -> Sequence[ProbeResult | None]:
        """What the ranges of a split bank say to each question; None where it is held whole."""
        if bank.whole:
            return [None] * len(asked)
        threads = self._threads(bank)
        return await self._ranges().readings(bank, asked, settings, deadline, threads)

    async def _vectors(self, bank: ResidentBank, ordinals: Ints, deadline: float | None) -> Floats:
        if bank.whole:
            return bank.vectors.rows(ordinals)
        return await self._ranges().rows(bank.head, ordinals, deadline)

    def _ranges(self) -> ScatterGather:
        split = self._residency.split
        assert split is not None, "a bank is split, and nobody knows where it is"
        return split

    async def _compute(
        self, bank: ResidentBank, function: Callable[[Unpack[Args]], T], *args: *Args
    ) -> T:
        """Array work: inline where it is short, otherwise off the event loop."""
        threads = self._threads(bank)
        if threads is None:
            await self._pace.turn(bank.head.tenant)
            return function(*args)
        return await asyncio.get_running_loop().run_in_executor(threads, function, *args)

    def _threads(self, bank: ResidentBank) -> Executor | None:
        """Where array work over a bank runs; None: on the event loop."""
        if bank.size <= INLINE_SIZE:
            return None
        return self._executor if bank.size <= LONG_SIZE else self._long_executor

    async def _hydrated(self, shortlist: Shortlist) -> Shortlist:
        """With the texts a cross-encoder reads; memories deleted meanwhile fall out."""
        head = shortlist.head
        rows = await memories.texts(
            self._pool, head.bank, shortlist.found.ordinals, head.generation
        )
        by_ordinal = {row[0]: row[1:] for row in rows}
        present = np.array([o in by_ordinal for o in shortlist.found.ordinals.tolist()], np.bool_)
        if not present.all():
            shortlist = search.picked(shortlist, np.flatnonzero(present).astype(np.int32))
        texts = tuple(by_ordinal[o] for o in shortlist.found.ordinals.tolist())
        return replace(shortlist, texts=texts)


def time_options(settings: RecallSettings, names: frozenset[str] = frozenset()) -> timex.Settings:
    """How the words of time in a question are read."""
    return timex.Settings(
        hemisphere=settings.hemisphere,
        fiscal_year_start_month=settings.fiscal_year_start_month,
        day_first=settings.temporal_day_first,
        names=names,
    )


def _filtered(query: RecallQuery, question: Question) -> RecallQuery:
    """With `temporal_mode: filter` the window becomes a hard filter of every arm."""
    if query.temporal_mode is TemporalMode.FILTER and question.window is not None:
        return replace(query, filters=replace(query.filters, window=question.window))
    return query
