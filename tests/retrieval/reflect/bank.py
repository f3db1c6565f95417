"""A bank in memory for reflects: recalls by shared words, and a language model by script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from retrieval.errors import NotFound
from retrieval.recall.engine import RecallResult
from retrieval.reflect.checking import content_words
from retrieval.reflect.engine import ReflectEngine
from retrieval.reflect.query import ReflectQuery, ReflectResult
from retrieval.settings import ReflectSettings
from retrieval.store.heads import BankHead
from retrieval.store.visibility import Seen, Visibility
from retrieval.types import FactType, MemoryRow, RecallQuery
from tests.retrieval.llm.scripted import Asked, Call, Said, Scripted

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
_SPACE = UUID("6f0c1f7e-0000-4000-8000-000000000000")


def memory(text: str, kind: FactType = FactType.WORLD, **fields: Any) -> MemoryRow:
    """A memory whose id follows from its text."""
    values: dict[str, Any] = {
        "context": None,
        "occurred_start": None,
        "occurred_end": None,
        "mentioned_at": datetime(2024, 6, 1, tzinfo=UTC),
        "document_id": None,
        "chunk_id": None,
        "tags": (),
        "metadata": None,
        "proof_count": None,
        "source_ids": (),
        **fields,
    }
    return MemoryRow(0, str(uuid5(_SPACE, text)), text, kind, *values.values())


class Bank:
    """`StoredReads` and `Recaller` of one bank. `names`: its entities; `passages`: texts of chunks;
    `fails`: what its searches raise."""

    def __init__(
        self,
        *rows: MemoryRow,
        names: Sequence[str] = (),
        passages: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
    ) -> None:
        self.rows = list(rows)
        self.names = names
        self.texts = dict(passages or {})
        self.config = dict(config or {})
        self.profile = {"name": "b", "mission": "", "disposition": {}, **(profile or {})}
        self.recalled: list[RecallQuery] = []
        self.fails: Exception | None = None
        self.late: set[str] = set()
        self.waiting: set[str] = set()

    async def recall(self, query: RecallQuery) -> RecallResult:
        self.recalled.append(query)
        if self.fails is not None:
            raise self.fails
        visibility = Visibility(query.filters)
        wanted = content_words(query.text)
        found = []
        for row in self.rows:
            seen = Seen(row.id, row.tags, row.mentioned_at, row.metadata)
            if row.fact_type not in query.filters.types or not visibility.passes(seen):
                continue
            shared = len(wanted & content_words(row.text)) / max(1, len(wanted))
            found.append((shared, row))
        found.sort(key=lambda one: -one[0])
        results = [self._result(row, shared) for shared, row in found]
        body: dict[str, Any] = {"results": results}
        if query.include.chunks:
            ids = [r["chunk_id"] for r in results if r.get("chunk_id") in self.texts]
            body["chunks"] = {id: {"id": id, "text": self.texts[id]} for id in ids}
        return RecallResult(body)

    def _result(self, row: MemoryRow, shared: float) -> dict[str, Any]:
        shown = row._asdict()
        low = row.text.lower()
        return {
            **{key: value for key, value in shown.items() if value not in (None, (), {})},
            "type": row.fact_type.wire,
            "entities": [name for name in self.names if name.lower() in low],
            "scores": {"semantic": shared},
        }

    async def character(self, tenant: str, bank_id: str) -> tuple[BankHead, Mapping[str, Any]]:
        if bank_id != "b":
            raise NotFound(f"there is no bank {bank_id!r}")
        head = BankHead(1, tenant, bank_id, 1, 0, len(self.rows), "", "", self.config)
        return head, self.profile

    async def memories(self, bank: int, ids: Sequence[str]) -> list[MemoryRow]:
        by_id = {row.id: row for row in self.rows}
        return [by_id[id] for id in ids if id in by_id]

    async def stored_before(self, bank: int, ids: Sequence[str], bound: datetime) -> set[str]:
        return set(ids) - self.late

    async def outdated(self, bank: int, ids: Sequence[str]) -> set[str]:
        return self.waiting & set(ids)

    async def passages(
        self, bank: int, chunk_ids: Sequence[str], visibility: Visibility
    ) -> dict[str, str]:
        hidden = {
            row.chunk_id
            for row in self.rows
            if not visibility.passes(Seen(row.id, row.tags, row.mentioned_at, row.metadata))
        }
        return {id: self.texts[id] for id in chunk_ids if id in self.texts and id not in hidden}

    async def chunk_ids(self, bank: int, document_id: str) -> list[str]:
        ids = [row.chunk_id for row in self.rows if row.document_id == document_id]
        return [id for id in dict.fromkeys(ids) if id]

    def engine(self, llm: Any, known: Any = None, **settings: Any) -> ReflectEngine:
        return ReflectEngine(
            self,
            llm,
            self,
            self,
            ReflectSettings(**settings),
            models=known,
            directives=known,
            rules=llm is None,
        )

    async def reflect(
        self, llm: Any, text: str = "Where does Ann live?", *, known: Any = None, **more: Any
    ) -> ReflectResult:
        """`more`: fields of the query; those of the settings begin with `reflect_`."""
        settings = {key: more.pop(key) for key in list(more) if key.startswith("reflect_")}
        query = ReflectQuery("t", "b", text, NOW, **more)
        return await self.engine(llm, known, **settings).reflect(query)


def handle(asked: Asked, part: str) -> str:
    """The handle under which a text that holds `part` was shown."""
    shown = "\n".join(str(m.get("content") or "") for m in asked.messages)
    for line in shown.splitlines():
        if line.startswith('{"id":') and part in line:
            return str(json.loads(line)["id"])
    raise AssertionError(f"{part!r} was not shown in:\n{shown}")


def calls(*made: tuple[str, Any]) -> Said:
    """An answer that calls tools: (name, arguments as an object or as text)."""
    return Said(
        "",
        tuple(
            Call(f"c{i}", name, given if isinstance(given, str) else json.dumps(given))
            for i, (name, given) in enumerate(made)
        ),
    )


__all__ = ["NOW", "Asked", "Bank", "Said", "Scripted", "calls", "handle", "memory"]
