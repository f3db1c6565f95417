"""A language model as the rest asks it: members behind one another, budgets, accounts of each call.

Strategy "failover" asks the first member that is well; "round-robin" spreads calls by weight and
fails over to the others. What an input brings about (refused, cut, too long) is no reason to ask
another member. Members have the circuit breaker of rerankers: wrong keys open it at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.breaker import Breaker
from models.llm.member import ModelMember
from models.llm.types import (
    Completion,
    CompletionRequest,
    CutOff,
    Exhausted,
    Misconfigured,
    Refused,
    Schema,
    Spent,
    TokenUsage,
    TooLong,
    Turn,
)
from models.types import BadOutput, DeadlineExceeded, ModelError, Overloaded, RemoteError


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, as it went: for sums and traces. `error` "" where it was answered."""

    question: CompletionRequest
    provider: str
    model: str
    seconds: float
    requests: int
    usage: TokenUsage
    answer: str = ""
    calls: tuple[str, ...] = ()
    error: str = ""
    kind: str = ""
    """The class of the error."""


class Accounting(Protocol):
    """Budgets and sums of tenants. Raises its own errors, which pass through."""

    async def reserve(self, tenant: str, tokens: int) -> int:
        """Sets `tokens` aside before a call; how many calls at once the tenant may have (0: any
        number). Raises where the tenant's budget is used up."""
        ...

    async def settle(self, record: CallRecord, reserved: int) -> None:
        """Books what a call cost in place of what was reserved."""
        ...


class Unlimited:
    """No budgets, no sums."""

    async def reserve(self, tenant: str, tokens: int) -> int:
        return 0

    async def settle(self, record: CallRecord, reserved: int) -> None:
        pass


@dataclass(slots=True)
class _Link:
    member: ModelMember
    weight: int
    breaker: Breaker
    credit: int = 0


class LanguageModel:
    """Use from one event loop, between start and close."""

    def __init__(
        self,
        members: Sequence[ModelMember],
        *,
        weights: Sequence[int] | None = None,
        accounting: Accounting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`weights` spread calls over the members; None: the first that is well."""
        if not members:
            raise ValueError("a language model needs at least one member")
        self._links = [
            _Link(member, weight, Breaker(clock))
            for member, weight in zip(members, weights or [0] * len(members), strict=True)
        ]
        self._accounting = accounting or Unlimited()
        self._clock = clock

    @property
    def model_id(self) -> str:
        return self._links[0].member.settings.model

    @property
    def members(self) -> Sequence[ModelMember]:
        return [link.member for link in self._links]

    async def start(self) -> None:
        """A provider that is down is no reason not to start: nobody is asked here."""
        for link in self._links:
            await link.member.start()

    async def close(self) -> None:
        for link in self._links:
            await link.member.close()

    async def chat(
        self,
        operation: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        turn: str = "retain",
        tenant: str = "",
        bank: str = "",
        schema: tuple[str, Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        deadline: float | None = None,
        about: Mapping[str, str] | None = None,
    ) -> Completion:
        """One call. `turn` is a name of Turn in lower case; `schema` a name and a JSON schema.

        Raises Refused, CutOff, TooLong; Exhausted, Overloaded, Unavailable (Retry-After where
        known); Misconfigured; DeadlineExceeded; and what the accounting raises.
        """
        return await self.ask(
            CompletionRequest(
                operation,
                messages,
                max_tokens,
                Turn[turn.upper()],
                tenant,
                bank,
                None if schema is None else Schema(*schema),
                tools,
                tool_choice,
                deadline,
                about or {},
            )
        )

    async def ask(self, question: CompletionRequest) -> Completion:
        """See `chat`."""
        reserved = estimate(question) + question.max_tokens
        at_once = await self._accounting.reserve(question.tenant, reserved)
        started, spent = self._clock(), Spent()
        answered: Completion | None = None
        failure: BaseException | None = None
        try:
            answered = await self._asked(question, at_once, spent)
            return answered
        except BaseException as error:
            failure = error
            raise
        finally:
            first = self._links[0].member.settings
            record = CallRecord(
                question,
                answered.member if answered else first.provider,
                answered.model if answered else first.model,
                self._clock() - started,
                spent.requests,
                _counted(question, answered, spent),
                answered.text if answered else "",
                tuple(f"{call.name}({call.arguments})" for call in answered.calls)
                if answered
                else (),
                "" if failure is None else str(failure) or type(failure).__name__,
                "" if failure is None else type(failure).__name__,
            )
            # Also where the caller went away: what was reserved must not stay so.
            await asyncio.shield(self._accounting.settle(record, reserved))

    async def _asked(self, question: CompletionRequest, at_once: int, spent: Spent) -> Completion:
        errors: list[ModelError] = []
        for link in self._order():
            if not link.breaker.admits():
                continue
            try:
                completion = await link.member.ask(question, spent, at_once=at_once)
            except (Refused, CutOff, TooLong):
                link.breaker.succeeded()
                raise
            except DeadlineExceeded:
                link.breaker.passed()
                raise
            except Misconfigured as error:
                link.breaker.trip()
                errors.append(error)
            except (Overloaded, Exhausted, RemoteError, BadOutput) as error:
                # What one input makes of a server must not keep others from it.
                link.breaker.passed()
                errors.append(error)
            except ModelError as error:
                link.breaker.failed()
                errors.append(error)
            except BaseException:
                link.breaker.passed()
                raise
            else:
                link.breaker.succeeded()
                return completion
        raise self._failure(errors)

    def _order(self) -> list[_Link]:
        """Who is asked, in order; smooth weighted round-robin where there are weights."""
        total = sum(link.weight for link in self._links)
        if not total:
            return self._links
        for link in self._links:
            link.credit += link.weight
        first = max(self._links, key=lambda link: link.credit)
        first.credit -= total
        return [first, *(link for link in self._links if link is not first)]

    def _failure(self, errors: Sequence[ModelError]) -> ModelError:
        """The error of a call that no member answered."""
        if not errors:
            left_s = min(link.breaker.retry_at for link in self._links) - self._clock()
            return Overloaded(
                "the language model failed lately and is left alone", max(1.0, left_s)
            )
        waits = [e.retry_after_s for e in errors if isinstance(e, Exhausted | Overloaded)]
        if len(errors) > 1 and len(waits) == len(errors):
            return min(errors, key=lambda e: getattr(e, "retry_after_s", math.inf))
        return errors[-1]

    async def probe(self, deadline: float, *, tools: bool = False) -> None:
        """Asks every member for one word, `tools`: offering one; raises what stands in the way of
        the first that fails."""
        said = [{"role": "user", "content": "Say yes, by the tool if there is one."}]
        for link in self._links:
            question = CompletionRequest(
                "probe", said, 256, tools=[_TOOL] if tools else (), deadline=deadline
            )
            await link.member.ask(question, Spent())


_TOOL = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Says one word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}


def estimate(question: CompletionRequest) -> int:
    """About how many tokens the input is: four characters each, as English has them."""
    size = sum(len(str(message.get("content") or "")) for message in question.messages)
    return size // 4 + 1


def _counted(question: CompletionRequest, answered: Completion | None, spent: Spent) -> TokenUsage:
    """The provider's count; an estimate only where it gave none."""
    if spent.usage.total_tokens or answered is None:
        return spent.usage
    return TokenUsage(estimate(question), len(answered.text) // 4 + 1)
