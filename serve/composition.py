"""The composition root: settings to objects. The only place that knows every part.

Each `open_*` builds one stage and the resources it needs; what it opened is closed by the exit
stack it is given.
"""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from models.passthrough import Passthrough
from retrieval import timex
from retrieval.bank.residency import Residency
from retrieval.bank.shards.shard import Ranges
from retrieval.consolidation import by_rules, queue, rounds
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.ingest.context import WriteContext
from retrieval.ingest.extract.by_batch import BatchExtractor
from retrieval.ingest.operations.worker import HANDLERS, SLOTS, Worker
from retrieval.keyword.analysers import analyser_of
from retrieval.lifecycle.transfer import jobs
from retrieval.maintenance.upkeep import Upkeep, UpkeepSettings
from retrieval.mental import schedule
from retrieval.mental.by_reflect import ReflectWriter, StoredDirectives, StoredModels
from retrieval.mental.editor import ModelEditor, RulesEditor
from retrieval.mental.refresh import Refresher
from retrieval.mental.schedule import Documents
from retrieval.mental.writer import RulesWriter
from retrieval.pacing import Pace
from retrieval.protocols import Embedder, Reranker
from retrieval.recall.engine import RecallEngine, Recaller, RecallResult, Retriever
from retrieval.recall.explaining import Explainer
from retrieval.recall.retriever import LocalRetriever
from retrieval.reflect.engine import ReflectEngine
from retrieval.reflect.searches import QUERY_TOKENS
from retrieval.reflect.stored import DatabaseReads
from retrieval.store.database.pool import Connection, Pool
from retrieval.store.heads import BankHead
from retrieval.store.refreshes import REFRESH
from retrieval.store.turns import Line
from retrieval.types import RecallQuery
from serve.admission.controller import AdmissionController
from serve.admission.membership import Membership
from serve.admission.wrong_keys import WrongKeys
from serve.http.services import Services, Writer
from serve.local import processes
from serve.opening import reports
from serve.opening.admission import (
    REFLECT_WAIT_S,
    read_admission,
    recall_admission,
    reflect_admission,
    retain_admission,
    write_admission,
)
from serve.opening.audit import open_recorder
from serve.opening.banks import ARRAY_THREADS, budgeted, open_residency, warm
from serve.opening.counting import Counting, keep
from serve.opening.database import keyword_backend, open_database
from serve.opening.erasure import open_eraser, open_ledger
from serve.opening.hot import open_hot
from serve.opening.inference import open_embedder, open_reranker
from serve.opening.llm import LanguageModels, open_models
from serve.opening.templates import keep_default_template
from serve.opening.threads import open_threads
from serve.opening.translation import OpenedReranker
from serve.opening.webhooks import keep_webhook_of_all, open_deliverer, open_webhooks
from serve.settings import Settings
from serve.writer import LocalWriter

TRANSFERS_AT_ONCE = 2
"""Banks that a process moves at once, each of another tenant."""
SEARCHES_AT_ONCE = 8
"""Recalls of reflects that run at once in a process, beside those of clients."""
SEARCHES_WAITING = 1024


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages that run elsewhere; None means: in this process."""

    retriever: Retriever | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    writer: Writer | None = None
    ranges: Ranges | None = None


def open_retriever(
    settings: Settings,
    pool: Pool,
    residency: Residency,
    embedder: Embedder,
    stack: AsyncExitStack,
    pace: Pace | None = None,
) -> LocalRetriever:
    timex.warm()
    if settings.banks.bank_warm:
        # Beside the start: a recall of a bank that waits here loads it itself.
        warming = asyncio.create_task(warm(pool, residency, settings.banks.bank_warm))
        stack.callback(warming.cancel)
    threads = ThreadPoolExecutor(1, "arrays"), ThreadPoolExecutor(ARRAY_THREADS, "large-arrays")
    for each in threads:
        stack.callback(each.shutdown, wait=False, cancel_futures=True)

    return LocalRetriever(
        pool,
        residency,
        embedder,
        settings.recall,
        threads[0],
        partial(analyser_of, settings.retain),
        keyword_backend(settings),
        threads[1],
        pace,
    )


async def open_writer(
    settings: Settings,
    pool: Pool,
    residency: Residency,
    embedder: Embedder,
    llm: LanguageModels,
    documents: Documents | None,
    stack: AsyncExitStack,
    membership: Membership,
) -> LocalWriter:
    """The writer, and beside it the workers of queued operations and the upkeep of banks, which
    `membership` shares."""
    deps = WriteContext(
        pool,
        embedder,
        residency,
        settings.retain,
        extractor=llm.extractor,
        committed=residency.refresh,
        note=open_ledger(settings),
    )
    consolidation = open_consolidation(settings, deps, residency, llm)
    if consolidation.able:
        deps = consolidation.ingest
    if settings.worker.worker_enabled:
        poll_s = settings.worker.worker_poll_interval_ms / 1000
        slots = settings.worker.worker_max_slots or max(SLOTS, llm.retains_at_once)
        deliverer = open_deliverer(settings, pool, poll_s)
        deliverer.start()
        stack.push_async_callback(deliverer.close)
        workers = [Worker(deps, handlers=HANDLERS, slots=slots, poll_s=poll_s)]
        # Apart: nobody's retain is to wait behind what a model writes.
        if consolidation.able:
            rounds_of = {queue.TYPE: rounds.handler(consolidation)}
            workers.append(Worker(deps, handlers=rounds_of, slots=1, poll_s=poll_s))
            keeping = asyncio.create_task(queue.keep_queued(pool, settings.consolidation))
            stack.callback(keeping.cancel)
        if documents is not None:
            own = settings.mental_models
            workers.append(
                Worker(
                    deps,
                    handlers={REFRESH: schedule.handler(documents)},
                    slots=own.mental_model_refresh_concurrency,
                    poll_s=poll_s,
                )
            )
            scheduling = asyncio.create_task(schedule.keep_scheduled(pool, own))
            stack.callback(scheduling.cancel)
        moves = jobs.handlers(settings.transfer, settings.webhooks.keys)
        workers.append(Worker(deps, handlers=moves, slots=TRANSFERS_AT_ONCE, poll_s=poll_s))
        tidying = asyncio.create_task(jobs.keep_tidy(pool))
        stack.callback(tidying.cancel)
        if isinstance(deps.extractor, BatchExtractor):
            sweeping = asyncio.create_task(deps.extractor.keep_swept(pool))
            stack.callback(sweeping.cancel)
        # Apart as well: an erasure waits for replicas.
        workers.append(Worker(deps, handlers=open_eraser(settings), poll_s=4 * poll_s))
        for worker in workers:
            await worker.start()
            stack.push_async_callback(worker.stop)
        reports.background(pool, stack)
        upkeep = Upkeep(
            deps,
            UpkeepSettings(
                erase_after_s=settings.erasure.erase_after_s,
                operation_retention_days=settings.erasure.operation_retention_days,
                audit_retention_days=settings.audit.audit_log_retention_days,
            ),
            share=membership.place,
        )
        upkeep.start()
        stack.push_async_callback(upkeep.close)
        reports.upkeep(upkeep, stack)
    return LocalWriter(deps, consolidation)


def open_consolidation(
    settings: Settings, deps: WriteContext, residency: Residency, llm: LanguageModels
) -> ConsolidationDeps:
    """Consolidation with the model or the rules that are configured for it. Its ingest queues a
    run with every write that calls for one."""
    own = settings.consolidation

    async def ripens(connection: Connection, head: BankHead) -> None:
        await queue.queue_after_write(connection, head, own)

    return ConsolidationDeps(
        replace(deps, ripens=ripens),
        residency,
        own,
        settings.recall,
        model=llm.consolidation,
        rules=by_rules.decide if "consolidation" in llm.by_rules else None,
        changed=schedule.scope_changed,
    )


def open_documents(
    settings: Settings,
    pool: Pool,
    recaller: Recaller,
    llm: LanguageModels,
    engine: ReflectEngine,
) -> Documents | None:
    """What keeps mental models up to date; None where nobody could write one."""
    if "reflect" in llm.by_rules:
        refresher = Refresher(pool, recaller, RulesWriter(recaller), RulesEditor())
    elif llm.reflect is not None:
        refresher = Refresher(pool, recaller, ReflectWriter(engine), ModelEditor(llm.reflect))
    else:
        return None
    return Documents(refresher, settings.mental_models)


async def open_services(settings: Settings, elsewhere: Stages, stack: AsyncExitStack) -> Services:
    """Everything that the endpoints call, with what is not `elsewhere` in this process."""
    open_threads()
    pool = await open_database(settings, stack)
    membership = Membership(pool)
    await membership.join(stack)
    hot = await open_hot(pool, stack)
    parts: list[Any] = []
    pace = Pace()
    reranker = elsewhere.reranker
    if reranker is None:
        reranker = await open_reranker(settings, stack, membership.part)
        parts.append(reranker)
    llm = await open_models(settings, pool, stack)
    retriever, writer = elsewhere.retriever, elsewhere.writer
    embedder, residency = elsewhere.embedder, None
    if retriever is None or writer is None:
        if embedder is None:
            embedder = await open_embedder(settings, stack, membership.part)
            parts.append(embedder)
        residency = await open_residency(settings, pool, elsewhere.ranges, stack)
        budgeted(residency, hot)
        if retriever is None:
            retriever = open_retriever(settings, pool, residency, embedder, stack, pace)
    recaller = RecallEngine(pool, retriever, reranker, settings.recall, pace)
    reflector = open_reflect(settings, pool, retriever, reranker, llm, pace, embedder=embedder)
    documents = open_documents(settings, pool, recaller, llm, reflector)
    if writer is None:
        assert residency is not None
        assert embedder is not None
        writer = await open_writer(
            settings, pool, residency, embedder, llm, documents, stack, membership
        )
    # What stands now stays: full collections need not look at it, which takes tenths of a second.
    gc.collect()
    processes.return_freed_memory()
    gc.freeze()
    webhooks = open_webhooks(settings, pool)
    await keep_webhook_of_all(settings, webhooks)
    await keep_default_template(settings, pool)
    counting = Counting()
    keep(pool, counting, lambda: membership.share().rank == 0, stack)
    services = Services(
        settings=settings,
        pool=pool,
        recaller=recaller,
        explainer=Explainer(pool, retriever, recaller),
        writer=writer,
        reflector=reflector,
        recall_admission=recall_admission(settings, pool, membership.share, hot, counting),
        write_admission=write_admission(settings, pool, membership.share, hot, counting),
        read_admission=read_admission(settings, pool, membership.share, hot, counting),
        reflect_admission=reflect_admission(settings, pool, membership.share, hot),
        retain_admission=retain_admission(settings, pool, llm, membership.share),
        line=Line(settings.limits.write_queue_max),
        pace=pace,
        llm=llm,
        documents=documents,
        webhooks=webhooks,
        note=open_ledger(settings),
        recorder=open_recorder(settings, pool, stack),
        embedder=embedder,
        wrong_keys=WrongKeys(settings.limits.wrong_keys_per_s),
        reranker=reranker,
        hot=hot,
        counting=counting,
        share=membership.share,
        parts=tuple(parts),
    )
    there = {
        "recall": services.recall_admission,
        "write": services.write_admission,
        "read": services.read_admission,
    }
    reports.controllers(there, stack)
    return services


@dataclass(frozen=True, slots=True)
class Search:
    """Recalls that reflects make: bounded and in turns of their own, so that neither a flood of
    reflects nor a limit on recalls stands in the way of the other."""

    engine: RecallEngine
    turns: AdmissionController

    async def recall(self, query: RecallQuery) -> RecallResult:
        async with self.turns.enter(query.tenant, query.deadline):
            return await self.engine.recall(query)


def open_reflect(
    settings: Settings,
    pool: Pool,
    retriever: Retriever,
    reranker: Reranker,
    llm: LanguageModels,
    pace: Pace | None = None,
    *,
    embedder: Embedder | None = None,
) -> ReflectEngine:
    """What answers questions. Its first searches are not read by a cross-encoder: the language
    model reads them anyway."""
    turns = AdmissionController(SEARCHES_AT_ONCE, SEARCHES_WAITING, wait_max_s=REFLECT_WAIT_S)
    quick = RecallEngine(pool, retriever, OpenedReranker(Passthrough()), settings.recall, pace)
    careful = RecallEngine(pool, retriever, reranker, settings.recall, pace)
    return ReflectEngine(
        DatabaseReads(pool),
        llm.reflect,
        Search(quick, turns),
        Search(careful, turns),
        settings.reflect,
        models=StoredModels(pool, embedder, settings.retain),
        directives=StoredDirectives(pool),
        rules="reflect" in llm.by_rules,
        query_tokens=min(QUERY_TOKENS, settings.recall.recall_max_query_tokens or QUERY_TOKENS),
    )


async def open_retriever_alone(
    settings: Settings, elsewhere: Stages, stack: AsyncExitStack
) -> LocalRetriever:
    """A retriever with its own database connections and resident banks."""
    pool = await open_database(settings, stack)
    embedder = elsewhere.embedder
    if embedder is None:
        membership = Membership(pool, role="retriever")
        await membership.join(stack)
        embedder = await open_embedder(settings, stack, membership.part)
    residency = await open_residency(settings, pool, elsewhere.ranges, stack)
    budgeted(residency, await open_hot(pool, stack))
    return open_retriever(settings, pool, residency, embedder, stack)


async def open_writer_alone(
    settings: Settings, elsewhere: Stages, stack: AsyncExitStack
) -> LocalWriter:
    """A writer with its own database connections and resident banks."""
    open_threads()
    own = settings.banks
    budget = min(own.bank_memory_bytes, own.ingest_bank_memory_bytes)
    small = own.model_copy(update={"bank_memory_bytes": budget})
    settings = settings.model_copy(update={"banks": small})
    pool = await open_database(settings, stack)
    membership = Membership(pool, role="ingest")
    await membership.join(stack)
    embedder = elsewhere.embedder or await open_embedder(settings, stack, membership.part)
    residency = await open_residency(settings, pool, elsewhere.ranges, stack)
    budgeted(residency, await open_hot(pool, stack), own.ingest_bank_memory_bytes)
    llm = await open_models(settings, pool, stack)
    retriever = open_retriever(settings, pool, residency, embedder, stack)
    reranker = OpenedReranker(Passthrough())
    recaller = RecallEngine(pool, retriever, reranker, settings.recall)
    reflector = open_reflect(settings, pool, retriever, reranker, llm, embedder=embedder)
    documents = open_documents(settings, pool, recaller, llm, reflector)
    return await open_writer(settings, pool, residency, embedder, llm, documents, stack, membership)


async def check_health(services: Services) -> None:
    """Raises where this process has to be replaced: a model that runs here lost its device."""
    for part in services.parts:
        await part.check_health()
