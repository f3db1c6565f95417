"""Settings to objects: the one place that knows every provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from models.chain import ChainMember, FailoverChain
from models.local.crossencoder import LocalCrossEncoder
from models.local.encoder import LocalEncoder
from models.passthrough import Passthrough
from models.remote.hosted import CohereEmbedder, HostedReranker, OpenAIEmbedder, ZeroEntropyEmbedder
from models.remote.tei import Part, TeiEmbedder, TeiReranker, whole
from models.settings import EmbedderSettings, ModelSettingsError, RerankerSettings
from models.types import Floats, Load, Observe, ignore


class ManagedEmbedder(Protocol):
    """What `build_embedder` makes: an embedder with a life-cycle.

    Construct (cheap), `start` (loads and warms up, or reaches the server; may be called again),
    `check_health` (raises ModelError), `close` (finishes accepted work).
    """

    @property
    def model_id(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def legibility(self, text: str) -> float | None: ...

    async def start(self) -> None: ...

    async def check_health(self) -> None: ...

    async def close(self) -> None: ...

    def load(self) -> Load: ...

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats: ...

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats: ...


REMOTE_EMBEDDERS: Mapping[str, type[OpenAIEmbedder]] = {
    "cohere": CohereEmbedder,
    "zeroentropy": ZeroEntropyEmbedder,
}
"""Those that do not speak OpenAI's protocol."""


def build_embedder(
    settings: EmbedderSettings, observe: Observe = ignore, part: Part = whole
) -> ManagedEmbedder:
    """An embedder that is constructed but not started. `part`: see models.remote.tei.Part."""
    if settings.provider == "local":
        return LocalEncoder(settings, observe)
    if settings.provider == "tei":
        return TeiEmbedder(settings, part=part)
    return REMOTE_EMBEDDERS.get(settings.provider, OpenAIEmbedder)(settings)


def build_reranker(
    members: Sequence[RerankerSettings],
    *,
    fallback: bool = True,
    observe: Observe = ignore,
    part: Part = whole,
) -> ChainMember:
    """The chain of these members, in this order; one member alone is returned without a chain.

    With `fallback` the caller's fused order stands at the end, so that a recall is answered
    (and marked as degraded) when every member is down.
    """
    if not members:
        raise ModelSettingsError("name at least one reranker; rrf keeps the fused order")
    built: list[ChainMember] = [_member(settings, observe, part) for settings in members]
    timeouts = [settings.limit_s for settings in members]
    if fallback and built[-1].reads_text:
        built.append(Passthrough("fused"))
        timeouts.append(None)
    return built[0] if len(built) == 1 else FailoverChain(built, timeouts, observe=observe)


def _member(settings: RerankerSettings, observe: Observe, part: Part) -> ChainMember:
    if settings.provider == "local":
        return LocalCrossEncoder(settings, observe)
    if settings.provider == "rrf":
        return Passthrough("rrf")
    if settings.provider == "tei":
        return TeiReranker(settings, part=part)
    return HostedReranker(settings)
