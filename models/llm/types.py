"""What a language model is asked and what it answers; and how asking it can end.

Messages and tools are in the shape of chat completions, the field's common tongue: mappings with
`role` and `content`, tools with `type: "function"`. Dialects translate from it.

ModelError
    Refused        the model declined this input: final for it
    CutOff         the answer did not fit, twice: the caller splits its input
    TooLong        the input does not fit the model's context: the caller shrinks it
    Misconfigured  key, address or model name are wrong (401, 403, 404): until somebody mends them
    Exhausted      the account's quota is used up, or it is limited for long: carries retry_after_s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from models.types import ModelError

Finish = Literal["stop", "tool_calls", "length", "refused"]


class Refused(ModelError):
    pass


class CutOff(ModelError):
    pass


class TooLong(ModelError):
    pass


class Misconfigured(ModelError):
    pass


class Exhausted(ModelError):
    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Turn(IntEnum):
    """Who goes first where calls wait for an account; from RETAIN_LATER on it is background."""

    REFLECT = 0
    RETAIN = 1
    RETAIN_LATER = 2
    CONSOLIDATION = 3
    REFRESH = 4

    @property
    def background(self) -> bool:
        return self >= Turn.RETAIN_LATER


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one call, failed requests included. `output_tokens` are the visible ones,
    `thoughts_tokens` the model's reasoning, `cached_tokens` a part of `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    thoughts_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.thoughts_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.thoughts_tokens + other.thoughts_tokens,
        )


@dataclass(slots=True)
class Spent:
    """What one call has cost so far, over all members that were asked."""

    requests: int = 0
    usage: TokenUsage = TokenUsage()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wants made. `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A shape that the answer must have: a name and a JSON schema (closed objects, every key
    required, nullable by type list, no oneOf: what every provider's strict mode understands)."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One call. `deadline` is on time.monotonic(); None: the member's own limits alone.

    `schema` and `tools` exclude each other. `tool_choice`: "auto", "none", "required".
    """

    operation: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    turn: Turn = Turn.RETAIN
    tenant: str = ""
    bank: str = ""
    schema: Schema | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    deadline: float | None = None
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. With a schema `text` is the JSON that the model wrote, as it wrote it.

    `requests`: HTTP requests that the call took. `member` names the provider that answered.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = TokenUsage()
    finish: Finish = "stop"
    model: str = ""
    member: str = ""
    requests: int = 1
