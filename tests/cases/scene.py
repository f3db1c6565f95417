"""What a check may look at: the case, the ids of its memories, the answer, and how to ask again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cases.case import RecallCase


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer. `body` is None where it is not JSON; `seconds` is the caller's wait."""

    status: int
    text: str
    body: Any
    headers: Mapping[str, str]
    seconds: float
    bank: str = ""
    poisoned: bool = False

    @property
    def results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.body or {}).get("results", [])
        return found

    @property
    def ids(self) -> list[str]:
        return [result["id"] for result in self.results]


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured while many recalls ran: every answer, the waits of the health route in
    seconds (infinite where it called the server unhealthy), and by how many bytes the server's
    memory had grown at its peak."""

    replies: Sequence[Reply]
    health_seconds: Sequence[float]
    memory_growth_bytes: int


Ask = Callable[..., Awaitable[Reply]]
"""`await ask(**changed parameters)`: the case's recall once more, with some parameters changed."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`ids` are the memories' ids by index, `known` every stored id -> text, by bank; `scores`
    what a stub reranker gives by memory index. `rotated(n)` is the recall after the stub's list
    was rotated by n places."""

    case: RecallCase
    ids: Sequence[str | None]
    known: Mapping[str, Mapping[str, str]]
    reply: Reply
    ask: Ask
    load: Load | None = None
    stub_scores: Mapping[int, float] = field(default_factory=dict)
    rotated: Callable[[int], Awaitable[Reply]] | None = None

    def id_of(self, memory: int) -> str:
        found = self.ids[memory]
        if found is None:
            raise AssertionError(f"memory {memory} was never stored")
        return found

    def place(self, memory: int) -> int | None:
        """The 0-based place of a memory among the results; None where it is absent."""
        wanted = self.id_of(memory)
        return self.reply.ids.index(wanted) if wanted in self.reply.ids else None

    def result(self, memory: int) -> dict[str, Any]:
        place = self.place(memory)
        if place is None:
            raise AssertionError(f"memory {memory} is not among the {len(self.reply.ids)} results")
        return self.reply.results[place]

    async def trace(self) -> dict[str, Any]:
        """The trace of the answer, or of the same recall asked again with a trace."""
        reply = self.reply
        if "trace" not in (reply.body or {}):
            reply = await self.ask(trace=True)
        if reply.status != 200 or "trace" not in reply.body:
            raise AssertionError(f"no trace in the answer ({reply.status}): {reply.text[:200]}")
        found: dict[str, Any] = reply.body["trace"]
        return found
