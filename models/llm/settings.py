"""What can be set about one language model. Frozen, validated when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.llm.providers import Provider, Rung, provider
from models.settings import ModelSettingsError

RESERVED = ("model", "messages", "tools", "stream")
"""What `extra_body` may not set: the call's own."""


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """One member: where it is and how it is asked.

    url "" is the provider's own. temperature and reasoning_effort None are not sent. timeout_s is
    of one request. max_concurrent bounds requests at once to the account (address and key).
    max_retries are of transport; pauses start at initial_backoff_s and double to max_backoff_s, and
    a limit that lasts longer than that counts as an exhausted account. strict asks for strict JSON
    schemas first, forced_tool for a forced tool call. max_items: schemas may say maxItems.
    num_ctx is Ollama's. send_bank: the bank's name goes along as `user`. cache_affinity: calls of a
    bank carry the same prompt_cache_key. headers go with every request.
    """

    provider: str
    model: str
    api_key: str = field(default="", repr=False)
    url: str = ""
    timeout_s: float = 120.0
    max_concurrent: int = 32
    max_retries: int = 3
    initial_backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    temperature: float | None = None
    reasoning_effort: str | None = None
    strict: bool = False
    forced_tool: bool = False
    max_items: bool = True
    num_ctx: int | None = None
    send_bank: bool = False
    cache_affinity: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        known = provider(self.provider)
        if not self.model:
            raise ModelSettingsError(
                f"llm_provider is {self.provider!r}: llm_model must be set, too"
            )
        if not self.base_url.startswith(("http://", "https://")):
            raise ModelSettingsError(
                f"llm_provider {self.provider!r} needs an llm_base_url that starts with http(s)://"
            )
        if not self.api_key and not known.keyless and not self.url:
            raise ModelSettingsError(f"llm_provider {self.provider!r} needs an llm_api_key")
        if not (self.timeout_s > 0 and self.max_concurrent >= 1 and self.max_retries >= 0):
            raise ModelSettingsError(
                "llm_timeout must be positive, llm_max_concurrent at least 1, llm_max_retries 0"
            )
        if not 0 <= self.initial_backoff_s <= self.max_backoff_s:
            raise ModelSettingsError("llm_initial_backoff must be 0 to llm_max_backoff")
        if taken := [name for name in RESERVED if name in self.extra_body]:
            raise ModelSettingsError(f"llm_extra_body may not set {', '.join(taken)}")

    @property
    def known(self) -> Provider:
        return provider(self.provider)

    @property
    def base_url(self) -> str:
        return (self.url or self.known.url).rstrip("/")

    @property
    def first_rung(self) -> Rung:
        if self.forced_tool:
            return Rung.TOOL
        if self.strict and not self.known.messages:
            return Rung.STRICT
        return self.known.first_rung
