"""The Serve application: one deployment per stage that does not run inside its caller.

Recall (ingress) -> Retriever -> Embedder, Ranges
                 -> Reranker
                 -> Ingest    -> Embedder, Ranges

What the stages are made of is imported where they are made: the launcher and the controller read
this too, and torch alone takes two seconds and 200 MB.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ray import serve
from ray.serve.config import RequestRouterConfig

from retrieval.lifecycle.audit.recorder import noting
from retrieval.store.audit import AuditEntry
from serve.cluster import autoscaling, remote, slots
from serve.cluster.bank_router import BankRouter
from serve.cluster.portions import portion
from serve.cluster.releases import pinned
from serve.cluster.remote import Handle, outcome
from serve.cluster.remote_writer import RemoteWriter
from serve.cluster.signals import BankSignals, LineGauge, LoopGauge, ModelSignals
from serve.settings import Settings, SettingsError, parse, secrets
from serve.settings.model import Stage
from serve.trace import NONE, Trace

if TYPE_CHECKING:
    from fastapi import FastAPI

    from models.types import Scores
    from retrieval.errors import FourfoldError
    from retrieval.ranking.shortlist import Shortlist
    from retrieval.types import Floats, RecallQuery

log = logging.getLogger(__name__)

APP = "fourfold"

Told: TypeAlias = Mapping[str, Any]
"""Sections of a configuration file without secrets (see serve.cluster.portions)."""

HEALTH_PERIOD_S = 2.0
HEALTH_TIMEOUT_S = 3.0
ONLY_TIMEOUT_S = 10.0
"""A replica that was killed is noticed at the next probe, one that hangs after three: within 15 s.
A stage's only replica gets more time, since nobody answers for it while it is replaced."""
PROBES_PER_S = 50.0
"""What the controller is to spend on probes of a stage; more replicas are probed less often."""
PROBE_MOST_S = 10.0


class _Replica:
    """Resources with the life of a replica: closed in reverse order when it goes.

    Its settings are what it is `told`, and its own environment and files, where the secrets are.
    """

    def __init__(self, told: Told) -> None:
        from serve.local import logs
        from serve.opening import reports

        self.settings = parse(told, os.environ)
        logs.setup(self.settings)
        self._stack = AsyncExitStack()
        self._loop = LoopGauge()
        looking = asyncio.create_task(self._loop.run())
        self._stack.callback(looking.cancel)
        reports.memory(self._stack)

    async def check_health(self) -> None:
        """That the loop which serves answers this is what is asked: a blocked one does not."""

    async def present(self, trace: Trace = NONE) -> None:
        """Answers, once the replica is made: its models are warm then."""

    async def __del__(self) -> None:
        await self._stack.aclose()


class _Holder(_Replica):
    """What those share to whom a bank's calls come by its slot."""

    async def record_replica_metadata(self) -> dict[str, int]:
        return await asyncio.to_thread(slots.claim_here)


class _Model(_Replica):
    """What the replicas of the two models share."""

    model: Any

    async def check_health(self) -> None:
        """Raises where the device is lost; Serve then replaces the replica."""
        await self.model.check_health()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return self._signals.report()

    @cached_property
    def _signals(self) -> ModelSignals:
        return ModelSignals(self.model.load)


class EmbedderReplica(_Model):
    async def __init__(self, told: Told) -> None:  # type: ignore[misc]
        from serve.opening import inference

        super().__init__(told)
        self.model = await inference.open_embedder(self.settings, self._stack)

    async def describe(self, trace: Trace = NONE) -> tuple[str, int]:
        return self.model.model_id, self.model.dimension

    async def embed(
        self,
        texts: Sequence[str],
        passages: bool,
        tenant: str,
        left_s: float | None,
        wanted: str = "",
        trace: Trace = NONE,
    ) -> tuple[Floats, float | None] | FourfoldError:
        """The vectors, and how legible the first text is to the model where they are of questions.

        `wanted` names the vectors that the caller counts on; ModelChanged where these would be
        others."""
        from retrieval.errors import ModelChanged
        from retrieval.protocols import Legible
        from retrieval.store.heads import made_by

        if wanted and wanted != (own := made_by(self.model)):
            return ModelChanged(wanted, own)
        self._signals.called(texts)

        async def made() -> tuple[Floats, float | None]:
            embed = self.model.embed_passages if passages else self.model.embed_queries
            vectors = await embed(texts, tenant=tenant, deadline=remote.deadline(left_s))
            asked = not passages and bool(texts) and isinstance(self.model, Legible)
            return vectors, self.model.legibility(texts[0]) if asked else None

        return await outcome(made(), "embed", trace)


class RerankerReplica(_Model):
    async def __init__(self, told: Told) -> None:  # type: ignore[misc]
        from serve.opening import inference

        super().__init__(told)
        self.model = await inference.open_reranker(self.settings, self._stack)

    async def describe(self, trace: Trace = NONE) -> tuple[str, bool]:
        return self.model.name, self.model.reads_text

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        tenant: str,
        bank: str,
        left_s: float | None,
        trace: Trace = NONE,
    ) -> Scores | FourfoldError:
        from retrieval.protocols import RerankRequest

        self._signals.called(documents)
        return await outcome(
            self.model.rerank(
                RerankRequest(query, documents, tenant, bank, remote.deadline(left_s))
            ),
            "rerank",
            trace,
        )


class RangesReplica(_Holder):
    """Vectors and postings of ranges of banks that are split."""

    async def __init__(self, told: Told) -> None:  # type: ignore[misc]
        from serve.opening import banks

        super().__init__(told)
        self.ranges = await banks.open_ranges(self.settings, self._stack)
        self._signals = BankSignals(self.ranges)

    def record_autoscaling_stats(self) -> dict[str, float]:
        return self._signals.report(self._loop)

    async def do(
        self,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        left_s: float | None,
        trace: Trace = NONE,
    ) -> Any:
        """One call of `retrieval.bank.shards.shard.Ranges`, by name."""
        work = getattr(self.ranges, method)
        return await outcome(work(*args, **named, deadline=remote.deadline(left_s)), "range", trace)


class RetrieverReplica(_Holder):
    async def __init__(  # type: ignore[misc]
        self, told: Told, embedder: Handle | None, ranges: Handle | None
    ) -> None:
        from serve import composition

        super().__init__(told)
        settings = self.settings
        stages = composition.Stages(embedder=_embedder(embedder, settings), ranges=_ranges(ranges))
        self.retriever = await composition.open_retriever_alone(settings, stages, self._stack)
        self._signals = BankSignals(self.retriever.residency)

    def record_autoscaling_stats(self) -> dict[str, float]:
        return self._signals.report(self._loop)

    async def retrieve(
        self, query: RecallQuery, texts: bool, left_s: float | None, trace: Trace = NONE
    ) -> Shortlist | FourfoldError:
        return await outcome(
            self.retriever.retrieve(remote.with_deadline(query, left_s), texts=texts),
            "retrieve",
            trace,
        )

    async def look(
        self, name: str, arguments: Mapping[str, Any], left_s: float | None, trace: Trace = NONE
    ) -> Any:
        """One look at a bank, by name."""
        if (query := arguments.get("query")) is not None:
            arguments = {**arguments, "query": remote.with_deadline(query, left_s)}
        return await outcome(self.retriever.look(name, arguments), "look", trace)

    async def retrieve_held(
        self, query: RecallQuery, texts: bool, left_s: float | None, trace: Trace = NONE
    ) -> Shortlist | FourfoldError | None:
        """None where the bank is not in memory here: a hedge is not worth a load."""
        if not await self.retriever.holds(query.tenant, query.bank_id):
            return None
        return await self.retrieve(query, texts, left_s, trace)


class IngestReplica(_Holder):
    async def __init__(  # type: ignore[misc]
        self, told: Told, embedder: Handle | None, ranges: Handle | None
    ) -> None:
        from serve import composition

        super().__init__(told)
        settings = self.settings
        stages = composition.Stages(embedder=_embedder(embedder, settings), ranges=_ranges(ranges))
        self.writer = await composition.open_writer_alone(settings, stages, self._stack)
        self._running = 0

    async def do(
        self,
        method: str,
        args: Sequence[Any],
        trace: Trace = NONE,
        noted: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | FourfoldError:
        """One call of `serve.http.services.Writer`, by name. `noted`: the request's entry in the
        audit log, which goes with what is committed."""
        work = getattr(self.writer, method)
        self._running += 1
        try:
            with noting(None if noted is None else AuditEntry.received(noted)):
                return await outcome(work(*args), "ingest", trace)
        finally:
            self._running -= 1

    async def record_autoscaling_stats(self) -> dict[str, float]:
        waiting = max(0, self._running - self.settings.limits.write_max_concurrent)
        oldest_s = await self.writer.oldest_operation_s()
        return {autoscaling.OLDEST_S: oldest_s, autoscaling.WAITING_WRITES: float(waiting)}


class RecallReplica(_Replica):
    """The ingress: HTTP, and every stage that has no deployment of its own."""

    async def __init__(  # type: ignore[misc]
        self,
        told: Told,
        retriever: Handle | None,
        embedder: Handle | None,
        reranker: Handle | None,
        ingest: Handle | None,
        ranges: Handle | None,
    ) -> None:
        from serve import app, composition
        from serve.cluster.accepting import accept_several
        from serve.cluster.evening import Evener

        accept_several()
        super().__init__(told)
        settings = self.settings
        for warning in settings.warnings:
            log.warning("settings: %s", warning)
        elsewhere = composition.Stages(
            retriever=None if retriever is None else remote.RemoteRetriever(retriever),
            embedder=_embedder(embedder, settings),
            reranker=_reranker(reranker, settings),
            writer=None if ingest is None else RemoteWriter(ingest),
            ranges=_ranges(ranges),
        )
        services = await composition.open_services(settings, elsewhere, self._stack)
        handles = {
            "retriever": retriever,
            "embedder": embedder,
            "reranker": reranker,
            "ingest": ingest,
            "ranges": ranges,
        }
        away = {name: one for name, one in handles.items() if one is not None}

        async def absent() -> list[str]:
            there = await asyncio.gather(*map(remote.answers, away.values()))
            return [name for name, here in zip(away, there, strict=True) if not here]

        services = dataclasses.replace(services, absent=absent)
        if retriever is not None and services.hot is not None:
            slots = partial(remote.known_slots, retriever)
            Evener(services.pool, services.hot, slots, services.share).start(self._stack)
        for model in (elsewhere.embedder, elsewhere.reranker):
            if isinstance(model, remote.RemoteEmbedder | remote.RemoteReranker):
                learning = asyncio.create_task(model.learn())
                self._stack.callback(learning.cancel)
        self._services = services
        self._line = LineGauge()
        self._api = app.create(settings, services)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._api

    async def check_health(self) -> None:
        from serve import composition

        await composition.check_health(self._services)

    def record_autoscaling_stats(self) -> dict[str, float]:
        line_s = self._line.seconds(self._services.recall_admission.waiting)
        return {autoscaling.BUSY: self._loop.busy, autoscaling.LINE_S: line_s}


def _embedder(handle: Handle | None, settings: Settings) -> remote.RemoteEmbedder | None:
    wait_s = settings.limits.embed_wait_s
    return None if handle is None else remote.RemoteEmbedder(handle, wait_s)


def _reranker(handle: Handle | None, settings: Settings) -> remote.RemoteReranker | None:
    wait_s = settings.limits.rerank_wait_s
    return None if handle is None else remote.RemoteReranker(handle, wait_s)


def _ranges(handle: Handle | None) -> remote.RemoteShards | None:
    return None if handle is None else remote.RemoteShards(handle)


def build(args: dict[str, Any]) -> serve.Application:
    """The application from the sections of a configuration file and the environment.

    SettingsError for secrets in it: Ray keeps what it is given, and shows it.
    """
    if found := secrets.written(args):
        raise SettingsError(
            f"{', '.join(found)}: no secrets here, where Ray keeps them. Name a file that holds it"
            f" ({found[0]}{secrets.SUFFIX}), or set the variable in the environment of every node"
        )
    return application(args)


def application(tree: Told) -> serve.Application:
    """The application: which stages are deployments, and which run inside their caller. `tree`:
    the sections of a configuration file, without secrets."""
    settings = parse(tree, os.environ)
    stages = settings.stages

    def alone(name: str, replica: type[_Replica], stage: Stage, *args: Any) -> Any:
        """The stage's deployment, bound; None where it runs inside its caller."""
        if stage.placement == "inline":
            return None
        told = portion(tree, name.lower())
        return pinned(_deployed(name, replica, stage, settings), told).bind(told, *args)

    embedder = alone("Embedder", EmbedderReplica, stages.embedder)
    reranker = alone("Reranker", RerankerReplica, stages.reranker)
    ranges = alone("Ranges", RangesReplica, stages.ranges)
    retriever = alone("Retriever", RetrieverReplica, stages.retriever, embedder, ranges)
    ingest = alone("Ingest", IngestReplica, stages.ingest, embedder, ranges)
    ingress_stage = stages.recall.model_copy(update={"replicas": settings.server.workers})
    ingress = _deployed("Recall", serve.ingress()(RecallReplica), ingress_stage, settings)
    told = portion(tree, "recall")
    return pinned(ingress, told).bind(told, retriever, embedder, reranker, ingest, ranges)


def _surge_percent(stage: Stage, most: int) -> int:
    """What a roll starts beforehand. None of a stage with one replica, whose successor would need
    its memory twice, nor where nodes take a limited number: there may be no node for one more."""
    return stage.surge_percent if most > 1 and not stage.max_per_node else 0


def health_period_s(replicas: int) -> float:
    """Seconds between probes of each of so many replicas."""
    return min(PROBE_MOST_S, max(HEALTH_PERIOD_S, replicas / PROBES_PER_S))


def _deployed(
    name: str, replica: type[_Replica], stage: Stage, settings: Settings
) -> serve.Deployment:
    most = stage.replicas if stage.autoscale is None else stage.autoscale.max_replicas
    options: dict[str, Any] = {
        "max_ongoing_requests": stage.max_ongoing,
        "max_queued_requests": stage.max_queued,
        "graceful_shutdown_timeout_s": settings.server.drain_s,
        "graceful_shutdown_wait_loop_s": 0.2,
        "health_check_period_s": health_period_s(most),
        "health_check_timeout_s": HEALTH_TIMEOUT_S if most > 1 else ONLY_TIMEOUT_S,
        "max_constructor_retry_count": 10,
        "max_surge_percent": _surge_percent(stage, most),
        "ray_actor_options": _place(stage),
    }
    if stage.max_per_node:
        options["max_replicas_per_node"] = stage.max_per_node
    if name in ("Retriever", "Ranges", "Ingest"):  # a bank's calls go where its arrays are
        options["request_router_config"] = RequestRouterConfig(
            request_router_class=BankRouter,  # type: ignore[arg-type]
        )
    if stage.autoscale is None:
        options["num_replicas"] = stage.replicas
    else:
        options["autoscaling_config"] = autoscaling.config(name, stage.autoscale)
    return serve.deployment(name=name, **options)(replica)


def _place(stage: Stage) -> dict[str, Any]:
    """What a node must have for a replica of the stage, in Ray's words."""
    place: dict[str, Any] = {"num_cpus": stage.cpus, "num_gpus": stage.gpus}
    if stage.memory_bytes:
        place["memory"] = stage.memory_bytes
    if stage.labels:
        place["label_selector"] = dict(stage.labels)
    if stage.accelerator is not None:
        place["accelerator_type"] = stage.accelerator
    if stage.resources:
        place["resources"] = dict(stage.resources)
    return place
