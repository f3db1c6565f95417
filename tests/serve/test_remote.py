"""Calls over a handle: what a caller sees of a replica that dies."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import ray.exceptions
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import RayServeException

from retrieval.errors import DeadlineExceeded, NotFound, Unavailable
from retrieval.messages import WrongProtocol
from retrieval.types import RecallQuery
from serve.cluster.attempts import SECOND
from serve.cluster.remote import Handle, RemoteRetriever

pytestmark = pytest.mark.unit

QUERY = RecallQuery(tenant="t", bank_id="b", text="q", now=datetime.now(UTC))


class Response:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self.cancelled = False

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self._answer()

    def cancel(self) -> None:
        self.cancelled = True


class Fake:
    """A handle whose calls end as told, one after the other."""

    def __init__(self, *ends: Any) -> None:
        self._ends = list(ends)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def options(self, session_id: str) -> Any:
        fake = self

        class Method:
            def remote(self, *args: Any) -> Response:
                fake.calls.append((session_id, args))
                end = fake._ends.pop(0)

                def answer() -> Any:
                    if isinstance(end, RayError | RayServeException):
                        raise end
                    return end

                return Response(answer)

        class Near:
            retrieve = Method()

        return Near()


def retriever(*ends: Any) -> tuple[RemoteRetriever, Fake]:
    fake = Fake(*ends)
    return RemoteRetriever(cast(Handle, fake)), fake


async def test_a_recall_whose_replica_died_is_asked_once_more() -> None:
    remote, fake = retriever(RayActorError(), "shortlist")
    found: object = await remote.retrieve(QUERY, texts=True)
    assert found == "shortlist"
    assert [bank for bank, _ in fake.calls] == ["t/b", "t/b" + SECOND]


async def test_a_second_death_is_told() -> None:
    remote, fake = retriever(RayActorError(), RayActorError())
    with pytest.raises(Unavailable, match="the retriever is not available"):
        await remote.retrieve(QUERY, texts=True)
    assert len(fake.calls) == 2


RAY: Any = ray.exceptions
NOT_READ = RAY.RaySystemError(WrongProtocol("Shortlist of protocol 3, this program has 1"), "…")
SKEWED = {
    "its answer is not read here": NOT_READ,
    "the question is not read there": RAY.RayTaskError(
        "retrieve", "…", NOT_READ
    ).as_instanceof_cause(),
    "it has no such method": RayServeException("Tried to call a method that does not exist"),
}


@pytest.mark.parametrize("error", SKEWED.values(), ids=list(SKEWED))
async def test_a_replica_of_a_release_too_far_away_is_passed_over(error: Exception) -> None:
    remote, fake = retriever(error, "shortlist")
    found: object = await remote.retrieve(QUERY, texts=True)
    assert found == "shortlist"
    remote, fake = retriever(error, error)
    with pytest.raises(Unavailable, match="another release of it runs") as told:
        await remote.retrieve(QUERY, texts=True)
    assert told.value.retry_after_s > 0  # the door answers 503 with it
    assert len(fake.calls) == 2


@pytest.mark.parametrize("error", [NotFound("no bank"), Unavailable("the database")])
async def test_an_error_that_the_replica_answers_is_final(error: Exception) -> None:
    remote, fake = retriever(error)
    with pytest.raises(type(error)) as told:
        await remote.retrieve(QUERY, texts=True)
    assert told.value is error
    assert len(fake.calls) == 1


async def test_the_second_try_has_the_time_that_is_left() -> None:
    remote, fake = retriever(RayActorError(), "shortlist")
    query = dataclasses.replace(QUERY, deadline=time.monotonic() + 5)
    await remote.retrieve(query, texts=False)
    (_, first), (_, second) = fake.calls
    assert 4 < second[2] < first[2] <= 5
    assert first[0].deadline is None  # a clock of this process means nothing there

    remote, fake = retriever()
    late = dataclasses.replace(QUERY, deadline=time.monotonic() - 1)
    with pytest.raises(DeadlineExceeded):
        await remote.retrieve(late, texts=False)
