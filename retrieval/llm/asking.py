"""Asking until the answer can be read: twice, or as often as said, naming what was wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retrieval.errors import ModelFailed
from retrieval.llm.reading import NoJson
from retrieval.protocols import LLM, Completion, TokenUsage

T = TypeVar("T")

QUESTIONS = 2


@dataclass(slots=True)
class ModelUsage:
    """Tokens and calls of a piece of work."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    thoughts_tokens: int = 0
    calls: int = 0

    def add(self, used: TokenUsage) -> None:
        self.calls += 1
        self.input_tokens += used.input_tokens
        self.output_tokens += used.output_tokens
        self.cached_tokens += used.cached_tokens
        self.thoughts_tokens += used.thoughts_tokens

    def wire(self) -> dict[str, int]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "thoughts_tokens": self.thoughts_tokens,
        }


@dataclass(frozen=True, slots=True)
class Asker:
    """A model, asked on behalf of one piece of work; `usage` sums what it cost."""

    llm: LLM
    operation: str
    turn: str
    tenant: str = ""
    bank: str = ""
    deadline: float | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    usage: ModelUsage = field(default_factory=ModelUsage)

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, **more: Any
    ) -> Completion:
        """One call; see protocols.LLM."""
        answer = await self.llm.chat(
            self.operation,
            messages,
            max_tokens=max_tokens,
            turn=self.turn,
            tenant=self.tenant,
            bank=self.bank,
            deadline=self.deadline,
            about=self.about,
            **more,
        )
        self.usage.add(answer.usage)
        return answer

    async def read(
        self,
        messages: Sequence[Mapping[str, Any]],
        schema: tuple[str, Mapping[str, Any]],
        read: Callable[[str, bool], T],
        *,
        max_tokens: int,
        questions: int = QUESTIONS,
    ) -> T:
        """What `read` makes of the answer's text; `read(text, last)` raises NoJson to have the
        model asked once more, told why. ModelFailed where the last of so many answers is
        unreadable, too."""
        asked = list(messages)
        problem = ""
        for question in range(questions):
            answer = await self.chat(asked, max_tokens=max_tokens, schema=schema)
            try:
                # In a thread: mending a long answer that is not JSON takes long.
                return await asyncio.to_thread(read, answer.text, question == questions - 1)
            except NoJson as error:
                problem = str(error)
                asked = [
                    *messages,
                    {"role": "assistant", "content": answer.text[:4000] or "(nothing)"},
                    {
                        "role": "user",
                        "content": f"That answer cannot be used: {problem}. Answer again, with"
                        " one JSON object of the given shape and nothing else.",
                    },
                ]
        raise ModelFailed(f"the language model's answer cannot be used: {problem}")
