"""The embedder and the reranker that the settings name, opened."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from pydantic import SecretStr

from models.catalog import build_embedder, build_reranker
from models.chain import ChainMember, FailoverChain
from models.local.weights import find
from models.passthrough import Passthrough
from models.remote.tei import Part, whole
from models.settings import Compute, EmbedderSettings, RerankerSettings
from models.types import ModelError, Observe
from serve import metrics
from serve.opening import reports
from serve.opening.translation import OpenedEmbedder, OpenedReranker
from serve.settings import Settings
from serve.settings.inference import RerankerMember
from serve.settings.model import Stage

log = logging.getLogger(__name__)


def _secret(value: SecretStr | None) -> str:
    return "" if value is None else value.get_secret_value()


def embedder_settings(settings: Settings) -> EmbedderSettings:
    """What the models package needs to know of our embeddings section."""
    own = settings.embeddings
    provider = own.embeddings_provider

    def field(name: str) -> Any:
        return getattr(own, f"embeddings_{provider}_{name}", None)

    return EmbedderSettings(
        provider=provider,
        model=field("model"),
        revision=field("revision"),
        url=field("url") or field("base_url") or field("api_base") or "",
        api_key=_secret(field("api_key")),
        batch_size=field("batch_size"),
        dimensions=field("dimensions"),
        query_prefix=own.embeddings_query_prefix,
        passage_prefix=own.embeddings_passage_prefix,
        max_input_tokens=own.embeddings_max_input_tokens,
        cached_queries=own.embeddings_cached_queries,
        compute=Compute(
            device="cpu" if own.embeddings_local_force_cpu else "auto",
            allow_mps=own.embeddings_local_allow_mps,
            precision=own.embeddings_local_precision,
            threads=own.embeddings_local_threads or _reserved(settings, settings.stages.embedder),
            init_timeout_s=own.model_init_timeout_s,
        ),
    )


def _reserved(settings: Settings, stage: Stage) -> int:
    """CPUs reserved where a model runs, 0 where none are: then it takes what the process has."""
    home = stage if stage.placement == "deployment" else settings.stages.recall
    return int(home.cpus)


def reranker_settings(settings: Settings, member: RerankerMember) -> RerankerSettings:
    """What the models package needs to know of one member of the chain."""
    init_timeout_s = settings.embeddings.model_init_timeout_s

    def own(name: str) -> Any:
        return getattr(member, f"{member.provider}_{name}", None)

    if member.provider == "local":
        return RerankerSettings(
            provider="local",
            model=member.local_model,
            revision=member.local_revision,
            batch_size=member.local_batch_size,
            compute=Compute(
                device="cpu" if member.local_force_cpu else "auto",
                allow_mps=member.local_allow_mps,
                precision="fp16" if member.local_fp16 else member.local_precision,
                threads=member.local_threads or _reserved(settings, settings.stages.reranker),
                init_timeout_s=init_timeout_s,
            ),
        )
    return RerankerSettings(
        provider=member.provider,
        model=own("model"),
        url=own("url") or own("base_url") or own("api_base") or "",
        api_key=_secret(own("api_key")),
        batch_size=own("batch_size"),
        max_concurrent=own("max_concurrent"),
        timeout_s=own("http_timeout_s") or own("timeout_s"),
        max_tokens_per_doc=own("max_tokens_per_doc"),
        send_bank_as_header=member.send_bank_as_header,
    )


def observer(model: str) -> Observe:
    """Measurements of a model's engine as Prometheus metrics, each in one unit; those that only
    benchmarks look at are left out."""
    histograms = {
        "batch_s": metrics.MODEL_BATCH_SECONDS.labels(model),
        "queue_s": metrics.MODEL_WAIT_SECONDS.labels(model),
        "batch_tokens": metrics.MODEL_BATCH_TOKENS.labels(model),
    }

    def observe(name: str, value: float) -> None:
        if (found := histograms.get(name)) is not None:
            found.observe(value)
        elif name == "degraded" or name.startswith("member_failed"):
            metrics.MODEL_EVENTS.labels(model, name.partition(".")[0]).inc()

    return observe


async def open_embedder(
    settings: Settings, stack: AsyncExitStack, part: Part = whole
) -> OpenedEmbedder:
    """The embedder, loaded and warm. Raises ModelError where it cannot be. `part`: of what a
    server over HTTP lets all its clients have, what falls to this process."""
    embedder = build_embedder(embedder_settings(settings), observer("embedder"), part)
    stack.push_async_callback(embedder.close)
    await embedder.start()
    reports.model("embedder", embedder.load, stack)
    return OpenedEmbedder(embedder)


async def open_reranker(
    settings: Settings, stack: AsyncExitStack, part: Part = whole
) -> OpenedReranker:
    """The chain of rerankers, started; `part` as for the embedder.

    Where nobody chose a reranker and the default's weights cannot be had, the fused order serves:
    said once at start, instead of marking every answer as degraded.
    """
    members = settings.rerankers.members
    reranker: ChainMember
    if members == (RerankerMember(),) and not await _obtainable(members[0]):
        reranker = Passthrough("fused")
    else:
        reranker = build_reranker(
            [reranker_settings(settings, member) for member in members],
            observe=observer("reranker"),
            part=part,
        )
    stack.push_async_callback(reranker.close)
    await reranker.start()
    reports.model("reranker", reranker.load, stack)
    if isinstance(reranker, FailoverChain):
        reports.reranker(reranker, stack)
    return OpenedReranker(reranker)


async def _obtainable(member: RerankerMember) -> bool:
    try:
        await asyncio.to_thread(find, member.local_model, member.local_revision)
    except ModelError as error:
        log.warning("no cross-encoder: %s; recalls keep the fused order", error)
        return False
    return True
