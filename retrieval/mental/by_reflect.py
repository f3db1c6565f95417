"""Documents written by reflect, and what reflect reads of documents and directives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrieval.mental import staleness
from retrieval.mental.search import search
from retrieval.mental.writer import (
    DIRECTIVES,
    MODELS,
    GeneratedText,
    GroundingSource,
    WriteRequest,
    counts,
    source,
)
from retrieval.protocols import Embedder
from retrieval.reflect.engine import ReflectEngine
from retrieval.reflect.evidence import EvidenceItem
from retrieval.reflect.query import ReflectQuery, ReflectResult, TextForm, ToolRecord
from retrieval.reflect.scope import Scope
from retrieval.reflect.seams import FoundModel
from retrieval.settings import RetainSettings
from retrieval.store import banks, directives, mental_models
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.directives import Directive
from retrieval.store.tags import TagFilter
from retrieval.types import Budget, Filters, TagsMatch


@dataclass(frozen=True, slots=True)
class ReflectWriter:
    """A reflect in the form of a document is what is written."""

    engine: ReflectEngine

    async def write(self, request: WriteRequest) -> GeneratedText:
        trigger = request.trigger
        excluded = frozenset((request.model_id, *(trigger.exclude_mental_model_ids or ())))
        result = await self.engine.reflect(
            ReflectQuery(
                request.tenant,
                request.bank_id,
                request.question,
                request.now,
                budget=Budget(trigger.budget or Budget.LOW),
                max_tokens=request.max_tokens,
                scope=Scope(
                    request.scope, request.now, not trigger.exclude_mental_models, excluded
                ),
                response_schema=trigger.response_schema,
                observations_max_tokens=trigger.reflect_search_observations_max_tokens,
                observations_include_entities=trigger.reflect_search_observations_include_entities,
                recall_max_tokens=trigger.recall_max_tokens,
                recall_include_chunks=trigger.include_chunks,
                recall_chunks_max_tokens=trigger.recall_chunks_max_tokens,
                form=TextForm.DOCUMENT,
                turn=request.turn,
                deadline=request.deadline,
                bound="MENTAL_MODEL_REFRESH_TIMEOUT_S",
            )
        )
        return _written(result)


def _written(result: ReflectResult) -> GeneratedText:
    ruled = [
        GroundingSource(DIRECTIVES, one.id, one.content, fields={"name": one.name})
        for one in result.directives
    ]
    return GeneratedText(
        result.text,
        (*map(_source, result.based_on), *ruled),
        tuple((c.start, c.end, tuple(item.id for item in c.items)) for c in result.citations),
        counts([_source(item) for item in result.seen]),
        result.usage,
        tuple(map(_tool, result.tool_calls)),
        tuple(
            {"scope": call.scope, "duration_ms": round(call.seconds * 1000)}
            for call in result.llm_calls
        ),
        result.structured,
        result.structured_error,
        result.degraded,
    )


def _source(item: EvidenceItem) -> GroundingSource:
    if item.kind == "model":
        return GroundingSource(
            MODELS, item.id, item.text, fields={"name": item.fields.get("name", "")}
        )
    kind = item.fields.get("type") or ("observation" if item.kind == "observation" else "world")
    return source({**item.fields, "id": item.id, "text": item.text, "type": kind})


def _tool(record: ToolRecord) -> Mapping[str, Any]:
    """A search as a trace keeps it: how much it found, not what."""
    found = record.output
    lists = [value for value in found.values() if isinstance(value, list)]
    given = {key: value for key, value in record.input.items() if key != "reason"}
    return {
        "tool": record.tool,
        "reason": record.input.get("reason"),
        "input": given,
        "result_count": sum(map(len, lists)),
        "duration_ms": round(record.seconds * 1000),
        "iteration": record.iteration,
    }


@dataclass(frozen=True, slots=True)
class StoredModels:
    """The mental models of a bank, for reflect."""

    pool: Pool
    embedder: Embedder | None
    retain: RetainSettings

    async def search(
        self, tenant: str, bank: str, query: str, scope: Scope, limit: int
    ) -> Sequence[FoundModel]:
        """See reflect.seams.Models."""
        filters = scope.filters
        hits = await search(
            self.pool,
            self.embedder,
            self.retain,
            tenant,
            bank,
            query,
            wanted=TagFilter(filters.tags, filters.tags_match, filters.tag_groups or ()),
            only_written=True,
            without=sorted(scope.without_models),
            limit=limit,
        )
        if not hits:
            return ()

        async def work(connection: Connection) -> list[FoundModel]:
            held = (await banks.head_of(connection, tenant, bank)).bank
            rows = {
                row["id"]: row
                for row in await mental_models.rows(connection, held, [id for id, _ in hits])
            }
            stale = await staleness.stale(connection, held, list(rows.values()))
            return [
                FoundModel(id, row["name"], row["content"], id in stale, _refreshed(row))
                for id, _ in hits
                if (row := rows.get(id)) is not None
            ]

        return await read(self.pool, work)


def _refreshed(row: Mapping[str, Any]) -> datetime | None:
    found: datetime | None = row["last_refreshed_at"]
    return found


@dataclass(frozen=True, slots=True)
class StoredDirectives:
    """The directives of a bank, for reflect."""

    pool: Pool

    async def for_reflect(
        self,
        tenant: str,
        bank: str,
        tags: Sequence[str] | None,
        tags_match: TagsMatch,
        apply_all: bool,
    ) -> tuple[Sequence[Directive], Sequence[Directive]]:
        """See reflect.seams.Directives."""
        scope = Filters(tags=None if tags is None else tuple(tags), tags_match=tags_match)
        found = await directives.for_reflect(self.pool, tenant, bank, scope, apply_all=apply_all)
        return found.applied, found.left_out
