"""Plays a case: makes its banks, does what is to be done to them, asks, and checks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psutil

from tests.cases import checks, spans
from tests.cases.case import RecallCase, WindowCase, bank_of, parts_of
from tests.cases.ground import CannotSetUp, Ground, Server, bank_path, server
from tests.cases.scene import Load, Reply, Scene

OFFERED = frozenset(
    {
        "trace", "real_models", "bulk_insert", "stub_reranker", "stub_embedder", "concurrency",
        "several_banks", "several_tenants", "server_config",
    }
)  # fmt: skip
"""What a case may need and gets here. `real_models` means the packaged embedding model and the
fused order: there is no cross-encoder with it."""

_ROUTING = ("bank_id", "tenant")
_PATCHED = frozenset({"text", "context", "occurred_start", "occurred_end", "fact_type", "entities"})
_IMPORTED = frozenset(
    {
        "text", "type", "context", "occurred_start", "occurred_end", "mentioned_at", "entities",
        "tags", "metadata", "document_id", "proof_count", "sources",
    }
)  # fmt: skip
_HEALTH_EVERY_S = 0.02


async def play_window(case: WindowCase, one: Server) -> None:
    """Raises AssertionError where the window read from the question is not the expected one."""
    bank = f"window-{uuid4()}"
    await one.done("PUT", bank_path(bank), {})
    body = {"query": case.query, "query_timestamp": case.anchor, "trace": True}
    answer = await one.done("POST", bank_path(bank, "memories", "recall"), body)
    spans.check(
        spans.of_trace(answer["trace"]),
        spans.parse(case.anchor),
        case.expected,
        case.also_ok,
        case.must_include,
        case.must_exclude,
    )


async def play(case: RecallCase, base: Ground) -> None:
    """Raises AssertionError where the answer is not as expected, CannotSetUp where the case
    needs what is not here."""
    lacking = case.needs - OFFERED
    if lacking:
        raise CannotSetUp(f"needs {', '.join(sorted(lacking))}")
    several = any("tenant" in memory for memory in case.memories) or "tenant" in case.params
    async with server(base, case.setup, case.memories, several_tenants=several) as one:
        stage = Stage(case, one)
        await stage.fill()
        for step in case.after:
            await stage.do(step)
        one.misbehave()
        reply = await stage.ask()
        load = await stage.load() if case.load else None
        await checks.run(stage.scene(reply, load), case.expect)


class Stage:
    """A case's banks on a server. Banks get names of their own, so that cases never meet."""

    def __init__(self, case: RecallCase, one: Server) -> None:
        self.case, self.server = case, one
        apart = uuid4().hex[:8]
        self.names = {bank: f"{case.id}-{parts_of(bank)[1]}-{apart}" for bank in case.banks}
        self.ids: list[str | None] = [None] * len(case.memories)
        self.known: dict[str, dict[str, str]] = {bank: {} for bank in case.banks}

    async def fill(self) -> None:
        """Stores memories and bulk rows, bank by bank."""
        for bank in self.case.banks:
            rows = [
                (f"m{number}", number, memory)
                for number, memory in enumerate(self.case.memories)
                if bank_of(memory) == bank
            ]
            rows += [
                (f"b{number}", -1, memory)
                for number, memory in enumerate(self.case.bulk)
                if bank_of(memory) == bank
            ]
            await self._path_done(bank, "PUT", [], {})
            for begin in range(0, len(rows), 500):
                await self._import(bank, rows[begin : begin + 500])

    async def _import(self, bank: str, rows: list[tuple[str, int, Mapping[str, Any]]]) -> None:
        items = [self._item(key, number, memory) for key, number, memory in rows]
        answer = await self._path_done(bank, "POST", ["memories", "import"], {"memories": items})
        for key, number, memory in rows:
            stored = answer["ids"][key]
            self.known[bank][stored] = memory["text"].replace("\x00", "")
            if number >= 0:
                self.ids[number] = stored

    def _item(self, key: str, number: int, memory: Mapping[str, Any]) -> dict[str, Any]:
        item = {k: v for k, v in memory.items() if k not in ("bank", "tenant")}
        if lacking := item.keys() - _IMPORTED:
            raise CannotSetUp(f"no way to store {sorted(lacking)} of a memory")
        item["key"] = key
        if "sources" in item:
            item["sources"] = [f"m{source}" for source in item["sources"]]
        links = [
            {"to": f"m{link['target']}", "type": link["type"], "weight": link.get("weight", 1.0)}
            for link in self.case.links
            if link["source"] == number
        ]
        if links:
            item["links"] = links
        return item

    async def do(self, step: Mapping[str, Any]) -> None:
        """One step of `after`. CannotSetUp where there is no such step."""
        op, memory = step["op"], step.get("memory")
        bank = bank_of(step) if "bank" in step else self._bank_of(memory)
        match op:
            case "delete":
                await self._path_done(bank, "DELETE", ["memories", self._id(memory)])
                self.known[bank].pop(self._id(memory))
            case "delete_document":
                await self._path_done(bank, "DELETE", ["documents", step["document_id"]])
            case "delete_bank":
                await self._path_done(bank, "DELETE", [])
            case "update":
                await self._update(bank, memory, step)
            case "insert":
                rows = step.get("memories") or [memory]
                if not all(isinstance(row, dict) for row in rows):
                    raise CannotSetUp(f"no rows to insert in {sorted(step)}")
                for row in rows:
                    self.ids.append(None)
                    number = len(self.ids) - 1
                    await self._import(
                        bank if "bank" in step else bank_of(row), [(f"m{number}", number, row)]
                    )
            case "tag_document" | "retag_document" | "update_document":
                tags = {"tags": step["tags"]}
                await self._path_done(bank, "PATCH", ["documents", step["document_id"]], tags)
            case _:
                raise CannotSetUp(f"no step {op!r}")

    async def _update(self, bank: str, memory: Any, step: Mapping[str, Any]) -> None:
        """A change by the update route, or by importing the memory again where that lacks it."""
        named = next((step[k] for k in ("set", "fields", "changes") if k in step), None)
        changes = named or {k: v for k, v in step.items() if k not in ("op", "memory", "bank")}
        if changes.keys() <= _PATCHED:
            path = ["memories", self._id(memory)]
            await self._path_done(bank, "PATCH", path, changes)
            if "text" in changes:
                self.known[bank][self._id(memory)] = changes["text"]
            return
        self.known[bank].pop(self._id(memory))
        row = {**self.case.memories[memory], **changes}
        await self._import(bank, [(f"m{memory}", memory, row)])

    def _id(self, memory: Any) -> str:
        found = self.ids[memory] if isinstance(memory, int) else None
        if found is None:
            raise CannotSetUp(f"no memory {memory!r}")
        return found

    def _bank_of(self, memory: Any) -> str:
        if isinstance(memory, int) and memory < len(self.case.memories):
            return bank_of(self.case.memories[memory])
        return self.case.bank

    async def ask(self, *, bank: str | None = None, **changes: Any) -> Reply:
        """The case's recall, with some parameters changed."""
        bank = bank or self.case.bank
        given = {**self.case.params, **changes}
        body = {"query": self.case.query, **{k: v for k, v in given.items() if k not in _ROUTING}}
        reply = await self.server.request(
            "POST",
            bank_path(self.names[bank], "memories", "recall"),
            body,
            tenant=parts_of(bank)[0],
            timeout_s=self.case.client_timeout_s,
        )
        return replace(reply, bank=bank)

    async def load(self) -> Load:
        """Many recalls at once, with the health route asked beside them."""
        asked = dict(self.case.load or {})
        concurrency, requests = asked.pop("concurrency"), asked.pop("requests")
        banks = self.case.banks if asked.pop("round_robin_banks", False) else (self.case.bank,)
        if asked:
            raise CannotSetUp(f"no load with {sorted(asked)}")
        gate = asyncio.Semaphore(concurrency)

        async def one(number: int) -> Reply:
            async with gate:
                return await self.ask(bank=banks[number % len(banks)])

        process = psutil.Process()
        before = peak = process.memory_info().rss
        waits: list[float] = []
        over = asyncio.Event()

        async def watch() -> None:
            nonlocal peak
            while not over.is_set():
                health = await self.server.request("GET", "/health")
                waits.append(health.seconds if health.status == 200 else math.inf)
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(_HEALTH_EVERY_S)

        watching = asyncio.create_task(watch())
        try:
            replies = await asyncio.gather(*(one(number) for number in range(requests)))
        finally:
            over.set()
            await watching
        return Load(replies, waits, peak - before)

    def scene(self, reply: Reply, load: Load | None) -> Scene:
        stub = self.server.stub
        scores = {}
        if stub is not None:
            numbered = enumerate(self.case.memories)
            scores = {n: stub.by_text[m["text"]] for n, m in numbered if m["text"] in stub.by_text}
        return Scene(
            case=self.case,
            ids=self.ids,
            known=self.known,
            reply=reply,
            ask=self.ask,
            load=load,
            stub_scores=scores,
            rotated=self._rotation() if stub is not None else None,
        )

    def _rotation(self) -> Callable[[int], Awaitable[Reply]]:
        """Asks again with the stub's scores moved on by so many memories."""

        async def rotated(turn: int) -> Reply:
            stub = self.server.stub
            assert stub is not None
            before = stub.by_text
            texts = [memory["text"] for memory in self.case.memories]
            scores = [before.get(text, stub.default) for text in texts]
            stub.by_text = {
                text: scores[(place - turn) % len(texts)] for place, text in enumerate(texts)
            }
            try:
                return await self.ask()
            finally:
                stub.by_text = before

        return rotated

    async def _path_done(self, bank: str, method: str, rest: list[str], body: Any = None) -> Any:
        path = bank_path(self.names[bank], *rest)
        return await self.server.done(method, path, body, tenant=parts_of(bank)[0])
