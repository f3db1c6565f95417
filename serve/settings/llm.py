"""Settings of language models: one section of flat names, as in the environment.

`LLM_*` names the first member of a chain, `LLM_1_*`, `LLM_2_*` the ones behind it; `RETAIN_LLM_*`,
`CONSOLIDATION_LLM_*` and `REFLECT_LLM_*` override them for one operation. A key and an address are
only inherited together with their provider: a key never reaches another host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from models.llm.providers import PROVIDERS, provider
from models.llm.settings import LLMSettings

OPERATIONS: Final = ("retain", "consolidation", "reflect")
RULES: Final = "extractive"
"""The provider that is none: rules in the place of a model."""

_TEMPERATURE = {"retain": 0.1, "consolidation": 0.0, "reflect": 0.2}


def _json(value: Any) -> Any:
    """An object that the environment writes as JSON."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return {}
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("expected a JSON object") from None


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


Object = Annotated[dict[str, Any], BeforeValidator(_json)]
Headers = Annotated[dict[str, str], BeforeValidator(_json)]


class LLMMember(BaseModel):
    """One model behind one address."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    provider: Annotated[str | None, BeforeValidator(_none)] = None
    """Who is asked; `none`: no language model. `extractive`: rules in its place, for trying out."""
    model: str | None = None
    """Name of the model, as its provider knows it."""
    api_key: SecretStr | None = None
    """Key of the account."""
    base_url: str | None = None
    """Address with /v1; unset is the provider's own."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds of one request."""
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Requests at once to the account, per process."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 3
    """Retries of transport within a call."""
    initial_backoff: Annotated[float, Field(ge=0, le=600)] = 1.0
    """Seconds before the first retry; doubled with each."""
    max_backoff: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """Longest pause in seconds; who is told to wait longer has an exhausted account."""
    temperature: Annotated[float | Literal["none"] | None, Field(union_mode="left_to_right")] = None
    """Sampling temperature; `none` leaves it to the server; unset: 0.1, 0 and 0.2 for retain,
    consolidation and reflect."""
    reasoning_effort: Annotated[str | None, BeforeValidator(_none)] = None
    """Sent as it is; unset is not sent."""
    extra_body: Object = {}
    """JSON object that is merged into every request."""
    default_headers: Headers = {}
    """JSON object of headers that go with every request."""
    strict_schema: bool = False
    """Ask for strict JSON schemas first."""
    supports_max_items: bool = True
    """false: schemas leave maxItems out."""
    structured_output_forced_tool: bool = False
    """Ask for structured answers by a forced tool call."""
    ollama_num_ctx: Annotated[int, Field(ge=1)] | None = None
    """Ollama's context length."""
    send_bank_as_user: bool = False
    """The bank's name goes along as `user`."""
    cache_affinity: bool = False
    """Calls of a bank carry the same prompt_cache_key."""


class Strategy(BaseModel):
    """How members share calls."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    mode: Literal["failover", "round-robin"] = "failover"
    """failover: the first that answers; round-robin: in turns, the others where one fails."""
    weights: tuple[Annotated[int, Field(ge=1, le=1000)], ...] | None = None
    """Turns of each member, in order; unset: one each."""


class Chain(BaseModel):
    """The members that one operation asks, in order; none: no language model."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    members: tuple[LLMMember, ...] = ()
    """The first is asked first."""
    strategy: Strategy = Strategy()

    @property
    def by_rules(self) -> bool:
        return bool(self.members) and self.members[0].provider == RULES

    @property
    def weights(self) -> list[int] | None:
        if self.strategy.mode == "failover" or len(self.members) < 2:
            return None
        given = self.strategy.weights or ()
        return [given[i] if i < len(given) else 1 for i in range(len(self.members))]

    def settings(self, operation: str) -> list[LLMSettings]:
        """What the models package needs to know; ValueError where it cannot be right."""
        return [_settings(member, operation) for member in self.members]


class LLMSection(BaseModel):
    """Language models of all operations, and what is kept of their calls."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    retain: Chain = Chain()
    """Extraction of facts."""
    consolidation: Chain = Chain()
    """Observations out of facts."""
    reflect: Chain = Chain()
    """Answers, and documents of mental models."""
    trace_enabled: bool = False
    """Keep what was said in calls. Off, since that is users' data."""
    trace_retention_days: Annotated[float, Field(gt=0, le=3650)] = 1.0
    """Days for which it is kept."""
    trace_max_chars: Annotated[int, Field(ge=100, le=10_000_000)] = 50_000
    """Characters of a question and of an answer that are kept."""
    tenant_tokens_per_day: Annotated[int, Field(ge=0)] = 0
    """Tokens of a tenant without a limit of its own; 0: no limit."""
    tenant_max_concurrent: Annotated[int, Field(ge=0)] = 0
    """Calls at once of a tenant without a limit of its own; 0: no limit."""
    batch_enabled: bool = False
    """Async retains send their chunks as batches of the provider, for less and within a day; sync
    retains answer 400."""
    batch_poll_interval_seconds: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """Seconds between two looks at a batch."""
    enable_dry_run_extract: bool = True
    """false answers 404 on memories/dry-run-extract."""
    enable_bank_llm_health: bool = False
    """true: health/llm asks the models, which costs; false answers 404."""

    def chain(self, operation: str) -> Chain:
        chain: Chain = getattr(self, operation)
        return chain

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or set(given) <= set(cls.model_fields):
            return given
        return structured(given)

    @model_validator(mode="after")
    def _can_be_asked(self) -> LLMSection:
        for operation in OPERATIONS:
            chain = self.chain(operation)
            if not chain.by_rules:
                chain.settings(operation)
        if self.batch_enabled and self.retain.members and not self.retain.by_rules:
            asked = self.retain.settings("retain")
            if not any(one.known.batches for one in asked):
                able = ", ".join(name for name, known in PROVIDERS.items() if known.batches)
                raise ValueError(
                    f"retain_batch_enabled needs a provider with a batch API ({able}), not"
                    f" {asked[0].provider!r}"
                )
        return self


_PLAIN: Final = {
    "llm_trace_enabled": "trace_enabled",
    "llm_trace_retention_days": "trace_retention_days",
    "llm_trace_max_chars": "trace_max_chars",
    "llm_tenant_tokens_per_day": "tenant_tokens_per_day",
    "llm_tenant_max_concurrent": "tenant_max_concurrent",
    "retain_batch_enabled": "batch_enabled",
    "retain_batch_poll_interval_seconds": "batch_poll_interval_seconds",
    "enable_dry_run_extract": "enable_dry_run_extract",
    "enable_bank_llm_health": "enable_bank_llm_health",
}
_NAME = re.compile(
    rf"(?:(?P<operation>{'|'.join(OPERATIONS)})_)?llm_(?:(?P<place>[1-9]\d?)_)?(?P<field>[a-z_]+)"
)
_SUFFIXED = ("temperature", "strict_schema")


def names() -> Iterable[str]:
    """The names that can be set, without numbers, in lower case."""
    fields = [*LLMMember.model_fields, "strategy"]
    yield from _PLAIN
    for prefix in ("", *(f"{operation}_" for operation in OPERATIONS)):
        yield from (f"{prefix}llm_{field}" for field in fields)
    yield from (f"llm_{field}_{o}" for field in _SUFFIXED for o in OPERATIONS)


def is_name(name: str) -> bool:
    """Whether `name`, in lower case, is one of this section's."""
    return name in _PLAIN or _parts(name) is not None


def _parts(name: str) -> tuple[str, int, str] | None:
    """(operation or "", place in the chain, field)."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    operation, place, field = match["operation"] or "", int(match["place"] or 0), match["field"]
    for suffixed in _SUFFIXED:
        for one in OPERATIONS:
            if not operation and not place and field == f"{suffixed}_{one}":
                return one, 0, suffixed
    if field in LLMMember.model_fields or (field == "strategy" and not place):
        return operation, place, field
    return None


def structured(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flat names as the fields of `LLMSection`. ValueError names what is wrong."""
    made: dict[str, Any] = {}
    members: dict[tuple[str, int], dict[str, Any]] = {}
    strategies: dict[str, Any] = {}
    for name, value in given.items():
        if name in _PLAIN:
            made[_PLAIN[name]] = value
            continue
        parts = _parts(name)
        if parts is None:
            raise ValueError(f"llm.{name}: unknown setting")
        operation, place, field = parts
        if field == "strategy":
            strategies[operation] = _json(value)
        else:
            members.setdefault((operation, place), {})[field] = value
    for operation in OPERATIONS:
        chain = _chain(operation, members)
        strategy = strategies.get(operation, strategies.get("", {}))
        made[operation] = {"members": chain, "strategy": strategy}
    return made


def _chain(
    operation: str, members: Mapping[tuple[str, int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The members of an operation: its own chain where it names a provider, else the common one
    with what it overrides."""
    own = dict(members.get((operation, 0), {}))
    common = dict(members.get(("", 0), {}))
    if _none(own.get("provider")) is not None or "provider" in own:
        account = ("provider", "model", "api_key", "base_url")
        first = {**{k: v for k, v in common.items() if k not in account}, **own}
        chain = [first, *_behind(operation, members)]
    else:
        first = {**common, **own}
        behind = _behind(operation, members) or _behind("", members)
        chain = [first, *behind]
    if _none(first.get("provider")) is None:
        return []
    for place, member in enumerate(chain):
        try:
            LLMMember.model_validate(member)
        except ValidationError as error:
            prefix = f"{operation}_llm_" if own else "llm_"
            number = f"{place}_" if place else ""
            problem = error.errors()[0]
            raise ValueError(
                f"{prefix}{number}{'.'.join(map(str, problem['loc'][:1]))}: {problem['msg']}"
            ) from None
    return chain


def _behind(
    operation: str, members: Mapping[tuple[str, int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Numbered members, up to the first gap; they inherit nothing."""
    found: list[dict[str, Any]] = []
    for place in range(1, 100):
        member = members.get((operation, place))
        if member is None or _none(member.get("provider")) is None:
            break
        found.append(dict(member))
    return found


def _settings(member: LLMMember, operation: str) -> LLMSettings:
    name = member.provider or ""
    if name == RULES:
        raise ValueError(
            f"llm_provider {RULES!r} means extraction by rules: it cannot be part of a chain"
        )
    provider(name)
    temperature = member.temperature
    if temperature is None:
        temperature = _TEMPERATURE[operation]
    return LLMSettings(
        provider=name,
        model=member.model or "",
        api_key="" if member.api_key is None else member.api_key.get_secret_value(),
        url=member.base_url or "",
        timeout_s=member.timeout,
        max_concurrent=member.max_concurrent,
        max_retries=member.max_retries,
        initial_backoff_s=min(member.initial_backoff, member.max_backoff),
        max_backoff_s=member.max_backoff,
        temperature=None if temperature == "none" else float(temperature),
        reasoning_effort=member.reasoning_effort,
        strict=member.strict_schema,
        forced_tool=member.structured_output_forced_tool,
        max_items=member.supports_max_items,
        num_ctx=member.ollama_num_ctx,
        send_bank=member.send_bank_as_user,
        cache_affinity=member.cache_affinity,
        extra_body=member.extra_body,
        headers=member.default_headers,
    )


__all__ = [
    "OPERATIONS",
    "PROVIDERS",
    "RULES",
    "Chain",
    "LLMMember",
    "LLMSection",
    "is_name",
    "names",
]
