"""A language model in process that answers by script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One call, as it was made."""

    operation: str
    messages: Sequence[Mapping[str, Any]]
    more: Mapping[str, Any]

    @property
    def system(self) -> str:
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] == "system")

    @property
    def user(self) -> str:
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] == "user")

    @property
    def schema(self) -> tuple[str, Mapping[str, Any]] | None:
        return self.more.get("schema")


@dataclass(frozen=True)
class Used:
    input_tokens: int = 100
    output_tokens: int = 10
    cached_tokens: int = 0
    thoughts_tokens: int = 0


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    text: str
    calls: tuple[Call, ...] = ()
    usage: Used = field(default_factory=Used)
    model: str = "scripted"


Step = Callable[[Asked], Any]


class Scripted:
    """Answers in order: texts, JSON values, `Said`, or functions of what is asked that give one of
    these or raise. Keeps what it was asked."""

    model_id = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Said:
        asked = Asked(operation, messages, more)
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(asked)
        if isinstance(answer, Said):
            return answer
        return Said(answer if isinstance(answer, str) else json.dumps(answer))
