"""Stages behind Serve handles, with the same faces as stages in this process.

One call carries a whole batch. A deadline crosses as time left, since clocks differ between
machines. Expected errors come back as values, so that they stay what they are on this side.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from ray.exceptions import RayActorError, RaySystemError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
)
from ray.serve.handle import DeploymentHandle

from models.types import Scores
from retrieval import errors
from serve import metrics
from serve.cluster.attempts import Attempts
from serve.trace import NONE, Trace, current, span, within

if TYPE_CHECKING:  # the launcher, which reads this too, needs none of it
    from retrieval.bank.probe import Probe
    from retrieval.bank.shards.shard import RangeReading
    from retrieval.protocols import RerankRequest
    from retrieval.ranking.shortlist import Shortlist
    from retrieval.store.heads import BankHead
    from retrieval.types import Floats, Ints, RecallQuery

log = logging.getLogger(__name__)

T = TypeVar("T")
Handle: TypeAlias = "DeploymentHandle[Any]"

MARGIN_S = 0.05
"""A caller waits a little longer than the callee may take: the callee's own error says more."""

BULK_WAIT_S = 300.0
"""Most seconds that a write, or a batch of its passages, takes before its stage counts as hung."""

PRESENT_S = 2.0

WAKE_S = 60.0
"""How long a call waits for the first replica of a stage, for the autoscaler to see."""


async def answers(handle: Handle) -> bool:
    """Does a replica of the stage say that it is there?"""
    try:
        await call("stage", handle.present.remote, left_s=PRESENT_S)
    except Exception:  # whatever it is: nobody answers
        return False
    return True


async def outcome(
    work: Awaitable[T], stage: str = "", trace: Trace = NONE
) -> T | errors.FourfoldError:
    """Callee's side: the result, or an expected error as a value. The work belongs to `trace`."""
    try:
        if trace is NONE:
            return await work
        with within(trace), span(stage):
            return await work
    except errors.FourfoldError as error:
        return error


async def call(stage: str, method: Callable[..., Any], *args: Any, left_s: float | None) -> Any:
    """Caller's side: one call over a handle, within the time left. Cancelling cancels it there.

    The trace that the call belongs to goes along as a field of it.
    """
    if left_s is not None and left_s <= 0:
        raise errors.DeadlineExceeded(stage)
    trace = current.get()
    begin = time.perf_counter()
    response = method(*args) if trace is NONE else method(*args, trace=trace)
    try:
        async with asyncio.timeout(None if left_s is None else left_s + MARGIN_S):
            answer = await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    except TimeoutError:
        response.cancel()
        metrics.HOP_FAILURES.labels(stage, "late").inc()
        raise errors.DeadlineExceeded(stage) from None
    except BackPressureError:
        metrics.HOP_FAILURES.labels(stage, "full").inc()
        raise errors.Overloaded(f"the queue before the {stage} is full") from None
    except (RayActorError, DeploymentUnavailableError) as error:
        metrics.HOP_FAILURES.labels(stage, "died").inc()
        raise errors.Unavailable(f"the {stage}", type(error).__name__) from error
    except (RaySystemError, RayServeException) as error:
        # What one side sent the other cannot read, or it has no such method: a roll from a release
        # too far away. Who asks again soon meets another replica.
        metrics.HOP_FAILURES.labels(stage, "skew").inc()
        log.error("the %s is of another release: %s", stage, _cause(error))
        raise errors.Unavailable(f"the {stage}", "another release of it runs") from error
    metrics.HOP_SECONDS.labels(stage).observe(time.perf_counter() - begin)
    if isinstance(answer, errors.FourfoldError):
        raise answer
    return answer


def _cause(error: BaseException) -> str:
    """The line of a remote traceback that says what is wrong."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def deadline(left_s: float | None) -> float | None:
    return None if left_s is None else time.monotonic() + left_s


def with_deadline(query: RecallQuery, left_s: float | None) -> RecallQuery:
    return dataclasses.replace(query, deadline=deadline(left_s))


def known_replicas(handle: Handle) -> int | None:
    """How many replicas of a stage this process knows of; None before it heard of any, or where
    Serve does not say."""
    try:
        if not handle.running_replicas_populated():
            return None
        return len(handle._router._asyncio_router.request_router.curr_replicas)  # type: ignore[union-attr]
    except AttributeError:  # not public: without it, calls wait as long as they may
        return None


def known_slots(handle: Handle) -> list[int]:
    """The slots of a stage that this process calls; none before it called one."""
    try:
        slots: list[int] = handle._router._asyncio_router.request_router.slots  # type: ignore[union-attr]
    except AttributeError:
        return []
    return slots


class _Model(ABC):
    """A model behind a handle: what it is comes with its first answer, so that nobody's start
    waits for it."""

    stage: str

    def __init__(self, handle: Handle, wait_s: float) -> None:
        self._handle = handle
        self._wait_s = wait_s
        self._waking: asyncio.Task[None] | None = None

    def _until(self, deadline: float | None, wait_s: float) -> float:
        """When to give up: at the deadline, or after the longest wait. Unavailable at once where
        the stage has no replica: Serve would let the call wait for one."""
        if known_replicas(self._handle) == 0:
            if self._waking is None or self._waking.done():
                self._waking = asyncio.create_task(self._wake())
            metrics.HOP_FAILURES.labels(self.stage, "none").inc()
            raise errors.Unavailable(f"the {self.stage}", "none of it runs")
        latest = time.monotonic() + wait_s
        return latest if deadline is None else min(deadline, latest)

    async def learn(self) -> None:
        """Asks what the model is, for who is asked before anything was; a failure is left to the
        first call."""
        with contextlib.suppress(Exception):
            found = await call(self.stage, self._handle.describe.remote, left_s=WAKE_S)
            if not self._learnt:
                self._take(found)

    @property
    @abstractmethod
    def _learnt(self) -> bool: ...

    @abstractmethod
    def _take(self, found: Any) -> None:
        """Keeps what the stage says of itself."""

    async def _wake(self) -> None:
        """One call that waits, for the autoscaler to see; its answer is not for anybody."""
        with contextlib.suppress(Exception):
            await call(self.stage, self._handle.describe.remote, left_s=WAKE_S)

    async def _describe(self, deadline: float) -> Any:
        return await call(self.stage, self._handle.describe.remote, left_s=left(deadline))


class RemoteEmbedder(_Model):
    """An Embedder behind a handle: queries wait `wait_s` for it at most, passages BULK_WAIT_S.

    Each call names the vectors that it counts on, and an embedder that makes others refuses it.
    Then a query is asked again of the model that is there now; a write fails, to be repeated.
    """

    stage = "embedder"

    def __init__(self, handle: Handle, wait_s: float) -> None:
        super().__init__(handle, wait_s)
        self._known = ("", 0)
        self._legible: tuple[str, float | None] = ("", None)

    @property
    def _learnt(self) -> bool:
        return bool(self.model_id)

    def _take(self, found: Any) -> None:
        self._known = found

    @property
    def model_id(self) -> str:
        return self._known[0]

    @property
    def dimension(self) -> int:
        return self._known[1]

    def legibility(self, text: str) -> float | None:
        """retrieval.protocols.Legible: it comes with the vectors of a question."""
        read, legible = self._legible
        return legible if read == text else None

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        until = self._until(deadline, self._wait_s)
        try:
            return await self._embed(texts, False, tenant, until)
        except errors.ModelChanged:
            return await self._embed(texts, False, tenant, until)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return await self._embed(texts, True, tenant, self._until(deadline, BULK_WAIT_S))

    async def _embed(
        self, texts: Sequence[str], passages: bool, tenant: str, deadline: float
    ) -> Floats:
        if not self._learnt:
            self._take(await self._describe(deadline))
        known, seconds = self._known, left(deadline)
        wanted = f"{known[0]}:{known[1]}"
        try:
            answer: Floats | tuple[Floats, float | None] = await call(
                self.stage,
                self._handle.embed.remote,
                list(texts),
                passages,
                tenant,
                seconds,
                wanted,
                left_s=seconds,
            )
        except errors.ModelChanged as error:
            name, _, dimension = error.found.rpartition(":")
            self._known = name, int(dimension)
            raise
        if self._known != known:  # by another call, while this one was under way
            raise errors.ModelChanged(wanted, f"{self.model_id}:{self.dimension}")
        # While versions are rolled, a replica may answer with the vectors alone.
        vectors, legible = answer if isinstance(answer, tuple) else (answer, None)
        self._legible = (texts[0] if texts else "", legible)
        return vectors


class RemoteReranker(_Model):
    """A Reranker behind a handle; a recall waits `wait_s` for it at most."""

    stage = "reranker"
    name = "remote"

    def __init__(self, handle: Handle, wait_s: float) -> None:
        super().__init__(handle, wait_s)
        self._described = False
        self._reads_text = True

    @property
    def _learnt(self) -> bool:
        return self._described

    def _take(self, found: Any) -> None:
        self.name, self._reads_text = found
        self._described = True

    @property
    def reads_text(self) -> bool:
        return self._reads_text

    async def rerank(self, request: RerankRequest) -> Scores:
        until = self._until(request.deadline, self._wait_s)
        if not self._learnt:
            self._take(await self._describe(until))
        seconds = left(until)
        scores: Scores = await call(
            self.stage,
            self._handle.rerank.remote,
            request.query,
            list(request.documents),
            request.tenant,
            request.bank,
            seconds,
            left_s=seconds,
        )
        return scores


class RemoteRetriever:
    """A Retriever behind a handle. A bank's recalls go to the same replica while it is there."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._attempts = Attempts()

    async def retrieve(self, query: RecallQuery, *, texts: bool) -> Shortlist:
        trace = current.get()
        sent = dataclasses.replace(query, deadline=None)

        async def ask(attempt: str, held: bool = False) -> Any:
            seconds = left(query.deadline)
            near = self._handle.options(session_id=f"{query.tenant}/{query.bank_id}{attempt}")
            method = near.retrieve_held.remote if held else near.retrieve.remote
            with within(trace):
                return await call("retriever", method, sent, texts, seconds, left_s=seconds)

        shortlist: Shortlist = await self._attempts.read(ask, lambda attempt: ask(attempt, True))
        return shortlist

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        query: RecallQuery | None = arguments.get("query")
        owner = (
            (arguments["tenant"], arguments["bank_id"])
            if query is None
            else (query.tenant, query.bank_id)
        )

        trace = current.get()

        async def ask(attempt: str) -> Any:
            seconds = None if query is None else left(query.deadline)
            sent = dict(arguments)
            if query is not None:
                sent["query"] = dataclasses.replace(query, deadline=None)
            near = self._handle.options(session_id=f"{'/'.join(owner)}{attempt}")
            method = near.look.remote
            with within(trace):
                return await call("retriever", method, name, sent, seconds, left_s=seconds)

        return await self._attempts.read(ask)


class RemoteShards:
    """`retrieval.bank.shards.shard.Ranges` behind a handle. A range's calls go to the same replica
    while it is there."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._attempts = Attempts()

    async def read(
        self, head: BankHead, part: int, asked: Sequence[Probe], *, deadline: float | None = None
    ) -> Sequence[RangeReading]:
        answer: Sequence[RangeReading] = await self._ask("read", deadline, head, part, asked)
        return answer

    async def nearest(
        self,
        head: BankHead,
        part: int,
        vectors: Floats,
        types: NDArray[np.uint8],
        *,
        k: int,
        floor: float,
        deadline: float | None = None,
    ) -> tuple[Ints, Ints, Floats]:
        answer: tuple[Ints, Ints, Floats] = await self._ask(
            "nearest", deadline, head, part, vectors, types, k=k, floor=floor
        )
        return answer

    async def rows(
        self, head: BankHead, part: int, ordinals: Ints, *, deadline: float | None = None
    ) -> Floats:
        answer: Floats = await self._ask("rows", deadline, head, part, ordinals)
        return answer

    async def _ask(
        self,
        method: str,
        deadline: float | None,
        head: BankHead,
        part: int,
        *args: Any,
        **named: Any,
    ) -> Any:
        trace = current.get()

        async def ask(attempt: str) -> Any:
            seconds = left(deadline)
            sent = (head, part, *args)
            near = self._handle.options(session_id=f"{head.tenant}/{head.bank_id}#{part}{attempt}")
            with within(trace):
                return await call(
                    "ranges", near.do.remote, method, sent, named, seconds, left_s=seconds
                )

        return await self._attempts.read(ask)
