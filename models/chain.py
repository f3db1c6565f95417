"""The failover chain: the first member that gives a usable answer in time serves the request.

Every member has a circuit breaker. A member that fails three times in a row is left out for a
while that doubles up to a minute; then one request tries it again. Which member served is decided
per request and travels with its scores.

A member fails by raising, by not answering within its own time limit, with another number of scores
than documents, or with no finite score. What the caller brought along passes the request on but is
not held against the member: a deadline below that limit, a cancellation, content that a server
refuses, a full queue. Where that leaves a doubt, the chain asks the member a question of its own,
in the background: a server that hangs is found out although no caller waits as long as its limit.

Reported to `observe`: member_s.<name> (seconds of each answer), member_failed.<name> (1 each),
degraded (1 for each request that a later member served).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from models.breaker import Breaker
from models.types import (
    BadOutput,
    DeadlineExceeded,
    DeviceLost,
    Load,
    ModelError,
    Observe,
    Overloaded,
    RemoteError,
    RerankRequest,
    Scores,
    Unavailable,
    WrongModel,
    ignore,
)

log = logging.getLogger(__name__)

PROBE = RerankRequest("Where does Anna work now?", ["Anna works at the hospital in Porto."])
PROBE_S = 30.0
"""The most that a probe may take of a member without a limit of its own."""
PROBE_EVERY_S = 1.0
"""However many callers are short of time, a member is asked no more often."""
CONTENT_STATUS = (400, 413, 422)
"""How a server says that it does not take what was sent."""

FIRST_SHARE = 0.6
"""Of the time left, what a member may use while another that computes stands behind it."""
RESERVE_S = 0.05
RESERVE_SHARE = 0.1
"""What is kept back of the time left (a tenth, at most 50 ms) so that a late member's successor
and the caller can still answer."""


class ChainMember(Protocol):
    """A reranker with a life-cycle. `start` may be called again after it raised."""

    @property
    def name(self) -> str: ...

    @property
    def reads_text(self) -> bool: ...

    async def start(self) -> None: ...

    async def check_health(self) -> None: ...

    async def close(self) -> None: ...

    def load(self) -> Load: ...

    async def rerank(self, request: RerankRequest) -> Scores: ...


@dataclass(slots=True)
class _Link:
    member: ChainMember
    timeout_s: float
    breaker: Breaker
    reason: str = ""
    started: bool = False
    starting: asyncio.Task[None] | None = None
    probe: asyncio.Task[None] | None = None
    probed_at: float = -math.inf


class FailoverChain:
    """Members in order of preference; see the module. Use from one event loop."""

    name = "chain"

    def __init__(
        self,
        members: Sequence[ChainMember],
        timeouts_s: Sequence[float | None] | None = None,
        *,
        observe: Observe = ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not members:
            raise ValueError("a chain needs at least one member")
        limits = timeouts_s or [None] * len(members)
        self._links = [
            _Link(member, math.inf if limit is None else limit, Breaker(clock))
            for member, limit in zip(members, limits, strict=True)
        ]
        self._observe = observe
        self._clock = clock

    @property
    def reads_text(self) -> bool:
        return self._links[0].member.reads_text

    @property
    def members(self) -> Sequence[ChainMember]:
        return [link.member for link in self._links]

    def open_circuits(self) -> Sequence[str]:
        """Names of the members that are left out at the moment."""
        return [link.member.name for link in self._links if link.breaker.is_open]

    async def start(self) -> None:
        """Starts all members at the same time. One that fails is logged and tried again on use;
        raises WrongModel where a local one has weights that it can never serve."""
        found = await asyncio.gather(*map(self._start, self._links), return_exceptions=True)
        for link, error in zip(self._links, found, strict=True):
            if isinstance(error, WrongModel) and link.member.name == "local":
                raise error

    async def check_health(self) -> None:
        """Raises DeviceLost where a started member's device is gone, Unavailable where no member
        can answer; a member that is merely down is what the chain is for."""
        checks = (link.member.check_health() for link in self._links)
        found = await asyncio.gather(*checks, return_exceptions=True)
        errors = [error for error in found if error is not None]
        for error in errors:
            if isinstance(error, DeviceLost) or not isinstance(error, ModelError):
                raise error
        if len(errors) == len(self._links):
            raise Unavailable("reranker", "; ".join(map(str, errors)))

    async def close(self) -> None:
        for link in self._links:
            for task in (link.starting, link.probe):
                if task is not None:
                    task.cancel()
        await asyncio.gather(*(link.member.close() for link in self._links))

    def load(self) -> Load:
        """The load of the first member that computes."""
        return next((link.member.load() for link in self._links if link.member.reads_text), Load())

    async def rerank(self, request: RerankRequest) -> Scores:
        """The first usable answer, `degraded` where a member before it did not serve. Raises the
        last member's error where none did, DeadlineExceeded where the time is already over."""
        if request.deadline is not None and request.deadline <= self._clock():
            raise DeadlineExceeded("rerank")
        error: ModelError | None = None
        for position, link in enumerate(self._links):
            if not link.breaker.admits():
                continue
            try:
                scores = await self._ask(link, position, request)
            except ModelError as failure:
                error = failure
                continue
            if position:
                self._observe("degraded", 1)
            return Scores(
                scores.scores, scores.scale, scores.member, position > 0, scores.truncated
            )
        if error is None:
            left_out = "; ".join(f"{link.member.name}: {link.reason}" for link in self._links)
            error = Unavailable("reranker", f"every member is left out for now ({left_out})")
        raise error

    async def _ask(self, link: _Link, position: int, request: RerankRequest) -> Scores:
        """One member's usable answer, or a ModelError; its breaker has been told."""
        member = link.member
        start = self._clock()
        share = self._share(link, position, start, request.deadline)
        until = None if share == math.inf else start + share
        try:
            async with asyncio.timeout(None if share == math.inf else share):
                if not link.started:
                    # Loading goes on when this request's time is over.
                    await asyncio.shield(self._start(link))
                scores = await member.rerank(replace(request, deadline=until))
            _require_usable(scores, len(request.documents), member.name)
        except (TimeoutError, DeadlineExceeded) as error:
            reason = f"no answer within {share:.3g} s"
            # One that is still loading would let everybody wait.
            if share >= link.timeout_s or not link.started:
                self._failed(link, reason)
            else:
                self._doubt(link, reason)
            raise DeadlineExceeded(f"rerank ({member.name}, {share:.3g} s)") from error
        except Overloaded:
            link.breaker.passed()
            raise
        except ModelError as error:
            if isinstance(error, RemoteError) and error.status in CONTENT_STATUS:
                self._doubt(link, str(error))
            else:
                self._failed(link, str(error))
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._failed(link, reason)
            raise Unavailable(member.name, reason) from error
        except BaseException:
            self._doubt(link, "its last request was given up")
            raise
        link.breaker.succeeded()
        self._observe(f"member_s.{member.name}", self._clock() - start)
        return scores

    def _share(self, link: _Link, position: int, now: float, deadline: float | None) -> float:
        if deadline is None:
            return link.timeout_s
        left = deadline - now
        behind = [other.member.reads_text for other in self._links[position + 1 :]]
        if any(behind):
            left *= FIRST_SHARE
        else:
            left -= min(RESERVE_S, RESERVE_SHARE * left)
        return min(link.timeout_s, left)

    def _start(self, link: _Link) -> asyncio.Task[None]:
        """The start that is under way, or a new one; one at a time."""

        def note(task: asyncio.Task[None]) -> None:
            link.starting = None
            if not task.cancelled():
                link.started = task.exception() is None
                if link.started:
                    link.breaker.succeeded()
                if error := task.exception():
                    log.warning("reranker %s did not start: %s", link.member.name, error)

        if link.starting is None:
            link.starting = asyncio.create_task(link.member.start())
            link.starting.add_done_callback(note)
        return link.starting

    def _failed(self, link: _Link, reason: str, *, surely: bool = False) -> None:
        was_open = link.breaker.is_open
        link.reason = reason
        link.breaker.failed(surely=surely)
        self._observe(f"member_failed.{link.member.name}", 1)
        if not was_open:
            log.warning("reranker %s failed: %s", link.member.name, reason)

    def _doubt(self, link: _Link, reason: str) -> None:
        """A request ended in a way that may be the caller's doing: asks the member itself."""
        link.breaker.passed()
        now = self._clock()
        if not link.started or link.probe is not None or now < link.probed_at + PROBE_EVERY_S:
            return
        link.reason, link.probed_at = reason, now

        def done(_: asyncio.Task[None]) -> None:
            link.probe = None

        link.probe = asyncio.create_task(self._probe(link))
        link.probe.add_done_callback(done)

    async def _probe(self, link: _Link) -> None:
        """One short question within the member's own limit, and the breaker is told."""
        limit = PROBE_S if link.timeout_s == math.inf else link.timeout_s
        question = replace(PROBE, deadline=self._clock() + limit)
        try:
            async with asyncio.timeout(limit):
                scores = await link.member.rerank(question)
            _require_usable(scores, 1, link.member.name)
        except (TimeoutError, DeadlineExceeded):
            self._failed(link, f"no answer to a short question within {limit:g} s", surely=True)
        except Overloaded:
            pass
        except Exception as error:
            self._failed(link, str(error))
        else:
            link.breaker.succeeded()


def _require_usable(scores: Scores, count: int, member: str) -> None:
    if scores.scores is None:
        return
    if len(scores.scores) != count:
        raise BadOutput(f"{member}: {len(scores.scores)} scores for {count} documents")
    if count and np.isnan(scores.scores).all():
        raise BadOutput(f"{member}: no score is a number")
