"""A bank, a scripted model and a worker that consolidates it, on a real database."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.consolidation import queue, rounds
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations.worker import Worker
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import memories, operation_views
from retrieval.store.database.pool import Connection, Pool
from retrieval.store.heads import BankHead
from tests.retrieval.llm.scripted import Asked, Said, Scripted
from tests.retrieval.store.servers import deps

TENANT = "default"
Answer = Callable[[Asked], Any]


class Clock:
    """Every look at it is a millisecond later."""

    def __init__(self) -> None:
        self.now = datetime(2025, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


class Model(Scripted):
    """Answers what is scripted, then what `rule` says."""

    def __init__(self) -> None:
        super().__init__()
        self.rule: Answer = lambda asked: {"actions": []}

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Said:
        if not self.answers:
            self.answers.append(self.rule)
        return await super().chat(operation, messages, **more)


def shown(asked: Asked) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(facts, observations) that a question shows, in order."""
    lines = [json.loads(x) for x in asked.user.split("\n") if re.match(r'\{"(fact|obs)', x)]
    return [x for x in lines if "fact" in x], [x for x in lines if "observation" in x]


def handle(lines: Sequence[Mapping[str, Any]], text: str) -> str:
    """The handle of the one that says this."""
    (found,) = [one for one in lines if text in one["text"]]
    return str(found.get("fact") or found.get("observation"))


def create(text: str, *facts: str, **more: Any) -> dict[str, Any]:
    return {"reason": "new", "do": "create", "facts": list(facts), "text": text, **more}


def update(observation: str, text: str, *facts: str, **more: Any) -> dict[str, Any]:
    return {"reason": "more", "do": "update", "observation": observation, "facts": list(facts),
            "text": text, **more}  # fmt: skip


def end(observation: str, *facts: str, **more: Any) -> dict[str, Any]:
    return {
        "reason": "over", "do": "end", "observation": observation, "facts": list(facts), **more
    }  # fmt: skip


def each(asked: Asked) -> dict[str, Any]:
    """One observation of every fact, in its words; evidence where one says so already."""
    facts, observations = shown(asked)
    known = {one["text"]: one["observation"] for one in observations}
    return {
        "actions": [
            update(known[fact["text"]], fact["text"], fact["fact"])
            if fact["text"] in known
            else create(fact["text"], fact["fact"])
            for fact in facts
        ]
    }


class World:
    """One bank. `settings` of its consolidation may be replaced before the first run."""

    def __init__(self, pool: Pool, tenant: str = TENANT) -> None:
        self.pool, self.tenant = pool, tenant
        self.bank = f"bank-{uuid4().hex[:8]}"
        self.model = Model()
        self.clock = Clock()
        self.settings = ConsolidationSettings(consolidation_debounce_s=0.0)
        self.residency = Residency(pool, ResidencySettings())
        self.changes: dict[str, Any] = {}

    @property
    def deps(self) -> ConsolidationDeps:
        async def ripens(connection: Connection, head: BankHead) -> None:
            await queue.queue_after_write(connection, head, self.settings)

        ingest = deps(self.pool, neighbours=self.residency, clock=self.clock, ripens=ripens)
        made = ConsolidationDeps(ingest, self.residency, self.settings, model=self.model)
        return replace(made, **self.changes)

    def tune(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)

    async def add(self, *items: Any) -> dict[str, str]:
        """Imports memories: texts, or items of an import; their ids by key or place."""
        given = [{"text": item, "key": item} if isinstance(item, str) else item for item in items]
        found: dict[str, str] = (
            await import_memories(self.deps.ingest, self.tenant, self.bank, given)
        )["ids"]
        return found

    def worker(self) -> Worker:
        made = self.deps
        return Worker(made.ingest, handlers={queue.TYPE: rounds.handler(made)})

    async def run(self, most: int = 50) -> int:
        """Does what waits, of all banks; how many operations."""
        worker, count = self.worker(), 0
        while count < most and await worker.step():
            count += 1
        return count

    async def items(self, **filters: Any) -> list[dict[str, Any]]:
        listed = await memories.list_memories(
            self.pool, self.tenant, self.bank, limit=1000, **filters
        )
        return list(listed["items"])

    async def observations(self) -> list[dict[str, Any]]:
        return sorted(await self.items(type="observation"), key=lambda item: item["text"])

    async def texts(self) -> list[str]:
        return [item["text"] for item in await self.observations()]

    async def pending(self) -> list[str]:
        return sorted(i["text"] for i in await self.items(consolidation_state="pending"))

    async def failed(self) -> list[str]:
        return sorted(i["text"] for i in await self.items(consolidation_state="failed"))

    async def operations(self, **filters: Any) -> list[dict[str, Any]]:
        found = await operation_views.list_operations(self.pool, self.tenant, self.bank, **filters)
        return list(found["operations"])

    async def result(self) -> dict[str, Any]:
        """What the newest completed operation says it did."""
        newest = (await self.operations(status="completed"))[0]
        found = await operation_views.get(self.pool, self.tenant, self.bank, newest["id"])
        return dict(found["result_metadata"])


@pytest.fixture
async def world(pool: Pool) -> AsyncIterator[World]:
    # Nobody else's work is to be done by this test's worker.
    await pool.execute("delete from operations")
    await pool.execute("delete from banks")
    made = World(pool)
    yield made
    await made.residency.close()
