"""Settings to objects: the one place that knows every provider."""

from __future__ import annotations

from collections.abc import Sequence

from models.chain import FailoverChain, Member
from models.crossencoder import LocalCrossEncoder
from models.encoder import LocalEncoder
from models.passthrough import Passthrough
from models.settings import EmbedderSettings, RerankerSettings, SettingsError
from models.types import Observe, ignore


def build_embedder(settings: EmbedderSettings, observe: Observe = ignore) -> LocalEncoder:
    """An embedder that is constructed but not started."""
    if settings.provider == "local":
        return LocalEncoder(settings, observe)
    raise SettingsError(f"embedder provider {settings.provider!r} is not built in")


def build_reranker(
    members: Sequence[RerankerSettings], *, fallback: bool = True, observe: Observe = ignore
) -> Member:
    """The chain of these members, in this order; one member alone is returned without a chain.

    With `fallback` the caller's fused order stands at the end, so that a recall is answered
    (and marked as degraded) when every member is down.
    """
    if not members:
        raise SettingsError("name at least one reranker; rrf keeps the fused order")
    built: list[Member] = [_member(settings, observe) for settings in members]
    timeouts = [settings.timeout_s for settings in members]
    if fallback and built[-1].reads_text:
        built.append(Passthrough("fused"))
        timeouts.append(None)
    return built[0] if len(built) == 1 else FailoverChain(built, timeouts, observe=observe)


def _member(settings: RerankerSettings, observe: Observe) -> Member:
    if settings.provider == "local":
        return LocalCrossEncoder(settings, observe)
    if settings.provider == "rrf":
        return Passthrough("rrf")
    raise SettingsError(f"reranker provider {settings.provider!r} is not built in")
