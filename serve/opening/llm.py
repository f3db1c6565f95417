"""The language models that the settings name, opened; their errors and costs translated once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from models.llm import Account, CallRecord, LanguageModel, LLMSettings, ModelMember
from models.llm.batches import batches
from models.llm.types import Completion, Misconfigured
from models.types import DeadlineExceeded, ModelError
from retrieval import errors
from retrieval.ingest.extract.by_batch import BatchExtractor
from retrieval.ingest.extract.by_model import ModelExtractor
from retrieval.ingest.extract.by_rules import RuleExtractor
from retrieval.ingest.extract.extraction import FactExtractor
from retrieval.store import limits, llm_calls
from retrieval.store.database.pool import Pool
from retrieval.store.ledger import KEPT
from retrieval.store.llm_calls import LLMCall
from serve.opening.batches import OpenedBatches
from serve.opening.llm_errors import translated
from serve.settings import Settings
from serve.settings.llm import OPERATIONS, LLMSection

log = logging.getLogger(__name__)

FORGET_EVERY_S = 3600.0


class OpenedLLM:
    """A language model as retrieval asks it (retrieval.protocols.LLM)."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @property
    def model_id(self) -> str:
        return self.model.model_id

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Completion:
        try:
            return await self.model.chat(operation, messages, **more)
        except ModelError as error:
            raise translated(error) from error

    async def probe(self, deadline: float, *, tools: bool = False) -> None:
        """One short call to each member; `tools`: that offers a tool."""
        await self.model.probe(deadline, tools=tools)


@dataclass(frozen=True, slots=True)
class Books:
    """Budgets and sums of calls, in the database; see models.llm.Accounting."""

    pool: Pool
    section: LLMSection
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def reserve(self, tenant: str, tokens: int) -> int:
        own = await limits.of_tenant(self.pool, tenant)
        most = _first(own.llm_tokens_per_day, self.section.tenant_tokens_per_day)
        if most:
            await llm_calls.reserve(self.pool, tenant, tokens, most, self.clock())
        return _first(own.llm_calls_at_once, self.section.tenant_max_concurrent)

    async def settle(self, record: CallRecord, reserved: int) -> None:
        """Never raises: the call itself is over."""
        question, usage = record.question, record.usage
        own = await limits.of_tenant(self.pool, question.tenant)
        budgeted = _first(own.llm_tokens_per_day, self.section.tenant_tokens_per_day)
        call = LLMCall(
            question.tenant,
            question.bank,
            question.operation,
            record.provider,
            record.model,
            self.clock() - timedelta(seconds=record.seconds),
            record.seconds,
            record.requests,
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
            usage.thoughts_tokens,
            question.messages,
            record.answer,
            record.calls,
            record.error,
            question.about,
        )
        try:
            await llm_calls.settle(
                self.pool,
                call,
                reserved if budgeted else None,
                traced=self.section.trace_enabled,
                max_chars=self.section.trace_max_chars,
            )
        except Exception as error:
            log.warning("a call of tenant %r could not be booked: %s", question.tenant, error)


def _first(own: int | None, common: int) -> int:
    return common if own is None else own


@dataclass(frozen=True, slots=True)
class LanguageModels:
    """The models of each operation; None where there is none. `by_rules`: rules stand in.
    `batches`: operations have chunks read by batches of the provider, asked about every `poll_s`.
    """

    retain: OpenedLLM | None = None
    consolidation: OpenedLLM | None = None
    reflect: OpenedLLM | None = None
    by_rules: frozenset[str] = frozenset()
    batches: OpenedBatches | None = None
    poll_s: float = 60.0

    def of(self, operation: str) -> OpenedLLM | None:
        found: OpenedLLM | None = getattr(self, operation)
        return found

    @property
    def consolidates(self) -> bool:
        """Is there a model, or are there rules, to make observations?"""
        return self.consolidation is not None or "consolidation" in self.by_rules

    @property
    def retains_at_once(self) -> int:
        """Calls that a retain's model may be asked at once; 0 where there is none."""
        if self.retain is None:
            return 0
        return max(member.settings.max_concurrent for member in self.retain.model.members)

    @property
    def extractor(self) -> FactExtractor | None:
        if "retain" in self.by_rules:
            return RuleExtractor()
        if self.retain is None:
            return None
        singly = ModelExtractor(self.retain, self.retains_at_once)
        if self.batches is None:
            return singly
        return BatchExtractor(singly, self.batches, self.poll_s)


async def open_models(settings: Settings, pool: Pool, stack: AsyncExitStack) -> LanguageModels:
    """The language models of a process. Nobody is asked yet: one that is down stops no start."""
    section = settings.llm
    books = Books(pool, section)
    accounts: dict[tuple[str, str], Account] = {}
    opened: dict[str, OpenedLLM] = {}
    for operation in OPERATIONS:
        chain = section.chain(operation)
        if chain.by_rules or not chain.members:
            continue
        members = [ModelMember(one, _account(accounts, one)) for one in chain.settings(operation)]
        model = LanguageModel(members, weights=chain.weights, accounting=books)
        stack.push_async_callback(model.close)
        await model.start()
        opened[operation] = OpenedLLM(model)
    by_rules = frozenset(o for o in OPERATIONS if section.chain(o).by_rules)
    if by_rules:
        log.warning(
            "llm_provider is extractive: rules replace a language model in %s; good for"
            " trying out, not for use",
            ", ".join(sorted(by_rules)),
        )
    if opened:
        forgetting = asyncio.create_task(_forget(pool, section))
        stack.callback(forgetting.cancel)
    taken = None
    if section.batch_enabled and "retain" in opened:
        found = batches(opened["retain"].model.members)
        taken = None if found is None else OpenedBatches(found, books)
    return LanguageModels(
        **opened, by_rules=by_rules, batches=taken, poll_s=section.batch_poll_interval_seconds
    )


def _account(accounts: dict[tuple[str, str], Account], one: LLMSettings) -> Account:
    """Members with the same address and key share their turns."""
    where = (one.base_url, one.api_key)
    if where not in accounts:
        accounts[where] = Account(one.max_concurrent)
    return accounts[where]


async def _forget(pool: Pool, section: LLMSection) -> None:
    """Ends what was kept of calls when its time is over."""
    while True:
        now = datetime.now(UTC)
        try:
            await llm_calls.forget(
                pool,
                requests_before=now - timedelta(days=section.trace_retention_days),
                ledger_before=now - KEPT,
            )
        except errors.FourfoldError as error:
            log.warning("old calls of language models could not be removed: %s", error)
        await asyncio.sleep(FORGET_EVERY_S)


async def health(models: LanguageModels, operation: str, timeout_s: float) -> dict[str, Any]:
    """Whether one operation's models answer: {operation, ok, status, latency_ms}."""
    model = models.of(operation)
    if model is None:
        configured = operation in models.by_rules
        status = "connected" if configured else "not_configured"
        return {"operation": operation, "ok": configured, "status": status, "latency_ms": None}
    started = time.monotonic()
    status = "connected"
    try:
        await model.probe(started + timeout_s, tools=operation == "reflect")
    except Misconfigured:
        status = "auth_failed"
    except DeadlineExceeded:
        status = "timeout"
    except ModelError:
        status = "unreachable"
    spent = round((time.monotonic() - started) * 1000, 1)
    return {
        "operation": operation, "ok": status == "connected", "status": status, "latency_ms": spent
    }  # fmt: skip
