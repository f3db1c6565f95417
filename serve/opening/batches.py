"""Provider batches as retrieval uses them: errors translated, costs booked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from models.llm.batches import Batches, BatchState
from models.llm.language_model import Accounting, CallRecord
from models.llm.types import Completion, CompletionRequest, Schema, Turn
from models.types import ModelError
from serve.opening.llm_errors import translated

T = TypeVar("T")


class OpenedBatches:
    """See retrieval.protocols.BatchLLM. Budgets are checked before a batch is sent; what it cost is
    booked as its answers are read."""

    def __init__(self, batches: Batches, accounting: Accounting) -> None:
        self._batches = batches
        self._accounting = accounting

    @property
    def account(self) -> str:
        return self._batches.account

    async def submit(
        self,
        operation: str,
        questions: Mapping[str, tuple[Sequence[Mapping[str, Any]], tuple[str, Mapping[str, Any]]]],
        *,
        max_tokens: int,
        tenant: str,
        bank: str,
        mark: str,
    ) -> str | None:
        await self._accounting.reserve(tenant, 0)
        asked = {
            name: CompletionRequest(
                operation,
                messages,
                max_tokens,
                Turn.RETAIN_LATER,
                tenant,
                bank,
                Schema(*schema),
            )
            for name, (messages, schema) in questions.items()
        }
        return await _done(self._batches.submit(asked, mark))

    async def find(self, mark: str) -> str | None:
        return await _done(self._batches.find(mark))

    async def look(self, id: str) -> BatchState | None:
        return await _done(self._batches.look(id))

    async def answers(
        self, id: str, operation: str, *, tenant: str, bank: str, about: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, Completion], None]:
        state = await self.look(id)
        if state is None:
            return
        about_all = CompletionRequest(
            operation, (), 0, Turn.RETAIN_LATER, tenant, bank, about={**about, "batch": id}
        )
        try:
            async with aclosing(self._batches.answers(state)) as answers:
                async for name, answer in answers:
                    await self._accounting.settle(
                        CallRecord(
                            about_all,
                            answer.member,
                            answer.model,
                            0.0,
                            1,
                            answer.usage,
                            answer.text,
                        ),
                        0,
                    )
                    yield name, answer
        except ModelError as error:
            raise translated(error) from error

    async def cancel(self, id: str) -> None:
        await _done(self._batches.cancel(id))

    async def forget(self, id: str) -> None:
        state = await self.look(id)
        if state is not None:
            await _done(self._batches.forget(state))


async def _done(work: Awaitable[T]) -> T:
    try:
        return await work
    except ModelError as error:
        raise translated(error) from error
