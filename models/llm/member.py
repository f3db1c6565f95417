"""One model behind one address: the only layer that retries, and it knows what each answer means.

A call takes at most `REQUESTS` HTTP requests: retries of transport (`max_retries`), parameters that
the model turns out not to know (remembered, no retry spent), and one more with twice the tokens
where the answer was cut. Pauses double, half of each is random; they are never under what the
server asked for and never past the deadline, and whoever pauses holds no permit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from models.llm import anthropic, openai
from models.llm.account import Account
from models.llm.outcomes import Outcome, Verdict, judge
from models.llm.providers import Rung
from models.llm.settings import LLMSettings
from models.llm.types import (
    Completion,
    CompletionRequest,
    CutOff,
    Exhausted,
    Misconfigured,
    Refused,
    Spent,
    TooLong,
)
from models.types import (
    BadOutput,
    DeadlineExceeded,
    ModelError,
    Overloaded,
    RemoteError,
    Unavailable,
)

log = logging.getLogger(__name__)

REQUESTS = 6
CONNECT_S = 5.0
ANSWER_BYTES = 16 << 20
"""A longer answer is not read to its end."""
REMEMBERED_S = 300.0
"""How long nobody asks an exhausted account at most: it may be filled up sooner than it says."""


class Dialect(Protocol):
    """How questions and answers are written; the modules `openai` and `anthropic`."""

    PATH: str

    def headers(self, settings: LLMSettings) -> dict[str, str]: ...

    def body(
        self,
        question: CompletionRequest,
        settings: LLMSettings,
        rung: Rung,
        dropped: Collection[str],
        max_tokens: int,
    ) -> dict[str, Any]: ...

    def read(self, answer: Any, rung: Rung | None) -> Completion: ...


class ModelMember:
    """Use from one event loop, between start and close."""

    def __init__(
        self,
        settings: LLMSettings,
        account: Account,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = f"{settings.provider} {settings.model}"
        self.settings = settings
        self.account = account
        self._dialect: Dialect = anthropic if settings.known.messages else openai
        self._transport = transport
        self._clock = clock
        self._jitter = jitter
        self._client: httpx.AsyncClient | None = None
        self._rung = settings.first_rung
        self._dropped: set[str] = set()
        self._exhausted = ("", -math.inf)

    async def start(self) -> None:
        if self._client is None:
            most = self.settings.max_concurrent
            self._client = httpx.AsyncClient(
                headers=self._dialect.headers(self.settings),
                timeout=httpx.Timeout(self.settings.timeout_s, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
                transport=self._transport,
            )

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def ask(
        self, question: CompletionRequest, spent: Spent, *, at_once: int = 0
    ) -> Completion:
        """One answer; what it cost is added to `spent`, also where it fails.

        Raises Refused, CutOff, TooLong (this input); Misconfigured, Exhausted (this account);
        Overloaded (limited), Unavailable, RemoteError, BadOutput; DeadlineExceeded."""
        return await _Call(self, question, spent, at_once).run()

    def body(self, question: CompletionRequest, max_tokens: int) -> dict[str, Any]:
        """The question as this model is asked now, by what was learnt of it."""
        rung = Rung.PROMPT if question.schema is None else self._rung
        return self._dialect.body(question, self.settings, rung, self._dropped, max_tokens)

    def read(self, answer: Any) -> Completion:
        """An answer to what `body` made, also where that is long ago; without text where it was cut
        or refused. BadOutput."""
        completion = self._dialect.read(answer, Rung.TOOL)
        text = _clean(completion.text) if completion.finish in ("stop", "tool_calls") else ""
        return replace(
            completion, text=text, model=self.settings.model, member=self.settings.provider
        )

    @asynccontextmanager
    async def request(self, method: str, path: str, **more: Any) -> AsyncIterator[httpx.Response]:
        """One request beside calls, once, without a turn: its answer, still to be read; `more` as
        of httpx. Raises Misconfigured, Exhausted, Overloaded, Unavailable, RemoteError."""
        if self._client is None:
            raise Unavailable(self.name, "it is not started")
        if held_s := self.account.held_s:
            raise Overloaded(f"{self.name}: its account is limited for now", held_s)
        try:
            async with self._client.stream(
                method, self.settings.base_url + path, **more
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise self._failure(response)
                yield response
        except httpx.HTTPError as broken:
            reason = f"{type(broken).__name__}: {broken}".rstrip(": ")
            raise Unavailable(self.name, reason) from broken

    def _failure(self, response: httpx.Response) -> ModelError:
        verdict = self.judged(response)
        told = f"{self.name}: {verdict.message}"
        match verdict.outcome:
            case Outcome.EXHAUSTED:
                return Exhausted(told, verdict.wait_s)
            case Outcome.LIMITED:
                wait_s = max(verdict.wait_s, self.settings.initial_backoff_s)
                self.account.limited(wait_s)
                return Overloaded(told, max(1.0, wait_s))
            case Outcome.TRANSIENT if response.status_code != 501:
                return Unavailable(self.name, verdict.message)
            case Outcome.SETUP if response.status_code != 404:
                return Misconfigured(told)
            case _:
                return RemoteError(self.name, verdict.message, status=response.status_code)

    def judged(self, response: httpx.Response) -> Verdict:
        """What an answer that was read means."""
        return judge(
            response.status_code,
            response.headers,
            response.content,
            now=datetime.now(UTC),
            longest_wait_s=self.settings.max_backoff_s,
        )


class _Call:
    """The requests of one call to one member."""

    def __init__(
        self, member: ModelMember, question: CompletionRequest, spent: Spent, at_once: int
    ) -> None:
        self.member = member
        self.question = question
        self.spent = spent
        self.at_once = at_once
        self.max_tokens = question.max_tokens
        self.failures = 0
        self.pause_s = member.settings.initial_backoff_s

    async def run(self) -> Completion:
        member = self.member
        reason, until = member._exhausted
        if (left := until - member._clock()) > 0:
            raise Exhausted(reason, left)
        error: ModelError = Unavailable(member.name, "it was not asked")
        while self.spent.requests < REQUESTS:
            rung = member._rung if self.question.schema is not None else None
            try:
                response = await self._send()
            except (httpx.HTTPError, TimeoutError) as broken:
                reason = f"{type(broken).__name__}: {broken}".rstrip(": ")
                error = Unavailable(member.name, reason)
                await self._failed(error, 0.0)
                continue
            verdict = member.judged(response)
            if verdict.outcome is Outcome.GOOD:
                try:
                    completion = member._dialect.read(_decoded(response.content), rung)
                except BadOutput as broken_answer:
                    error = BadOutput(f"{member.name}: {broken_answer}")
                    await self._failed(error, 0.0)
                    continue
                member.account.good()
                self.spent.usage += completion.usage
                if completion.finish == "refused":
                    raise Refused(f"{member.name} declined: {completion.text[:200]}")
                if completion.finish != "length":
                    return replace(
                        completion,
                        text=_clean(completion.text),
                        usage=self.spent.usage,
                        model=member.settings.model,
                        member=member.settings.provider,
                        requests=self.spent.requests,
                    )
                error = CutOff(f"{member.name}: the answer was cut at {self.max_tokens} tokens")
                if self.max_tokens > self.question.max_tokens:
                    raise error
                self.max_tokens *= 2
                continue
            error = await self._ended(verdict, response.status_code, rung)
        raise error

    async def _send(self) -> httpx.Response:
        member, question = self.member, self.question
        client = member._client
        if client is None:
            raise Unavailable(member.name, "it is not started")
        self._in_time(member.account.held_s)
        body = member.body(question, self.max_tokens)
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        turn = member.account.turn(
            question.turn, question.tenant, at_once=self.at_once, deadline=question.deadline
        )
        async with turn:
            own_s, left_s = member.settings.timeout_s, self._left()
            if left_s <= 0:
                raise DeadlineExceeded("the language model's answer")
            self.spent.requests += 1
            try:
                async with asyncio.timeout(min(own_s, left_s)):
                    return await self._read(client, content)
            except TimeoutError:
                if left_s <= own_s:
                    raise DeadlineExceeded("the language model's answer") from None
                raise

    async def _read(self, client: httpx.AsyncClient, content: bytes) -> httpx.Response:
        """The whole answer, unless it is endless."""
        url = self.member.settings.base_url + self.member._dialect.PATH
        kind = {"Content-Type": "application/json"}
        async with client.stream("POST", url, content=content, headers=kind) as response:
            parts, size = [], 0
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > ANSWER_BYTES:
                    raise httpx.ReadError(f"the answer is longer than {ANSWER_BYTES} bytes")
            plain = [(k, v) for k, v in response.headers.items() if k != "content-encoding"]
            return httpx.Response(response.status_code, headers=plain, content=b"".join(parts))

    async def _ended(self, verdict: Verdict, status: int, rung: Rung | None) -> ModelError:
        """What an answer that is none comes to: raises where it is final, else has paused."""
        member, name = self.member, self.member.name
        told = f"{name}: {verdict.message}"
        match verdict.outcome:
            case Outcome.UNSUPPORTED:
                if not self._adapted(verdict.parameter, rung):
                    raise RemoteError(name, verdict.message, status=status)
                log.info("%s does not know %s", name, verdict.parameter)
                return RemoteError(name, verdict.message, status=status)
            case Outcome.TOO_LONG:
                raise TooLong(told)
            case Outcome.REFUSED:
                raise Refused(told)
            case Outcome.SETUP:
                raise Misconfigured(told)
            case Outcome.EXHAUSTED:
                member._exhausted = (told, member._clock() + min(verdict.wait_s, REMEMBERED_S))
                raise Exhausted(told, verdict.wait_s)
            case Outcome.LIMITED:
                wait_s = max(verdict.wait_s, self._pause())
                member.account.limited(wait_s)
                return Overloaded(told, max(1.0, wait_s))
            case Outcome.TRANSIENT:
                error = Unavailable(name, verdict.message)
                await self._failed(error, verdict.wait_s)
                return error
            case _:
                raise RemoteError(name, verdict.message, status=status)

    def _adapted(self, parameter: str, rung: Rung | None) -> bool:
        """Whether the next request differs."""
        member = self.member
        if parameter in ("response_format", "strict") and rung is not None:
            if rung >= Rung.PROMPT:
                return False
            # Another call may have stepped down meanwhile.
            member._rung = max(member._rung, Rung(rung + 1))
            return True
        if parameter == "tools":
            member._rung = Rung.OBJECT
            return rung is Rung.TOOL
        if parameter in member._dropped:
            return False
        if parameter in ("max_tokens", "max_completion_tokens"):
            # One of the two is always sent.
            member._dropped -= {"max_tokens", "max_completion_tokens"}
        member._dropped.add(parameter)
        return True

    async def _failed(self, error: ModelError, wait_s: float) -> None:
        """Counts a failure of transport and pauses before the next try; raises after the last."""
        self.failures += 1
        if self.failures > self.member.settings.max_retries or self.spent.requests >= REQUESTS:
            raise error
        wait_s = max(wait_s, self._pause())
        if wait_s > self._left():
            raise error
        await asyncio.sleep(wait_s)

    def _pause(self) -> float:
        """Half of a pause is random, so that callers that failed together return apart."""
        pause_s = self.pause_s * (0.5 + 0.5 * self.member._jitter())
        self.pause_s = min(2 * self.pause_s, self.member.settings.max_backoff_s)
        return pause_s

    def _left(self) -> float:
        deadline = self.question.deadline
        return math.inf if deadline is None else deadline - self.member._clock()

    def _in_time(self, held_s: float) -> None:
        if held_s > self._left():
            raise Overloaded(f"{self.member.name}: its account is limited for now", held_s)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise BadOutput(f"the answer is not JSON: {content[:80]!r}") from None


def _clean(text: str) -> str:
    """Without lone surrogates, which nothing behind this can write."""
    return text.encode("utf-8", "replace").decode()
