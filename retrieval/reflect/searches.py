"""The searches of one run: inside its scope whatever is asked, and shown within their budgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from retrieval.recall.engine import Recaller
from retrieval.reflect.evidence import EvidenceItem, EvidenceSet, within
from retrieval.reflect.query import ReflectQuery
from retrieval.reflect.seams import Models
from retrieval.reflect.stored import StoredReads
from retrieval.store.heads import BankHead
from retrieval.store.visibility import Seen, Visibility
from retrieval.text import tokens
from retrieval.types import FactType, Include, RecallQuery

QUERY_TOKENS = 400
"""Of a longer question the beginning is searched for."""
FACTS = (FactType.WORLD, FactType.EXPERIENCE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the searches that a run makes by itself."""

    observations: int = 5000
    recall: int = 2048
    chunks: int = 1000
    entities: bool = True
    source_facts: int | None = None
    query: int = QUERY_TOKENS


@dataclass(slots=True)
class SearchOutcome:
    """What one search came to. `lines` are what is shown; `seen` was shown before, and is named
    only; `left_out`: found, but beyond the budget."""

    items: list[EvidenceItem] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    seen: list[EvidenceItem] = field(default_factory=list)
    left_out: int = 0
    degraded: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        parts = list(self.lines)
        if self.seen:
            parts.append(f"Shown above already: {', '.join(item.handle for item in self.seen)}.")
        if self.left_out:
            parts.append(f"{self.left_out} more of lower rank were left out.")
        return "\n".join(parts) or "Nothing was found."

    @property
    def output(self) -> dict[str, Any]:
        """For a trace."""
        found = [
            {"handle": item.handle, "id": item.id, "text": item.text}
            for item in (*self.items, *self.seen)
        ]
        return {"results": found, "left_out": self.left_out}


@dataclass(frozen=True, slots=True)
class Searches:
    """`careful` reads what it finds with a cross-encoder, `quick` does not."""

    stored: StoredReads
    quick: Recaller
    careful: Recaller
    known_models: Models
    query: ReflectQuery
    head: BankHead
    evidence: EvidenceSet
    sizes: Sizes

    async def models(self, query: str, most: int, deadline: float | None) -> SearchOutcome:
        scope = self.query.scope
        found = await self.known_models.search(
            self.query.tenant, self.query.bank_id, query, scope, most
        )
        finding = SearchOutcome()
        left = self.sizes.observations
        for rank, one in enumerate(found[:most]):
            if one.id in scope.without_models:
                continue
            text = tokens.cut(one.text, left)
            if not text.strip():
                finding.left_out += 1
                continue
            item, new = self.evidence.model(dataclasses.replace(one, text=text), rank)
            left -= tokens.count(text)
            self._show(finding, item, new)
        return finding

    async def observations(
        self, query: str, most_tokens: int, deadline: float | None, *, careful: bool = True
    ) -> SearchOutcome:
        include = Include(
            entities=2**31 - 1,
            source_facts=self.sizes.source_facts,
        )
        body, degraded = await self._recalled(
            query, (FactType.OBSERVATION,), most_tokens, include, deadline, careful
        )
        finding = SearchOutcome(degraded=degraded)
        items = self._add(finding, body["results"])
        for item in await self._stale([item for item in items if item.kind == "observation"]):
            item.stale = True
        self._fill(finding, most_tokens, names=self.sizes.entities)
        if facts := body.get("source_facts"):
            allowed = {kind.wire for kind in self.query.scope.filters.types}
            rows = [fact for fact in facts.values() if fact["type"] in allowed]
            more = SearchOutcome()
            self._add(more, await self._stored_in_time(rows))
            self._fill(more, self.sizes.source_facts or most_tokens)
            finding.items += more.items
            finding.lines += more.lines
        return finding

    async def recall(
        self,
        query: str,
        most_tokens: int,
        chunk_tokens: int,
        deadline: float | None,
        *,
        careful: bool = True,
    ) -> SearchOutcome:
        include = Include(entities=2**31 - 1, chunks=chunk_tokens or None)
        types = tuple(kind for kind in FACTS if kind in self.query.scope.filters.types)
        body, degraded = await self._recalled(query, types, most_tokens, include, deadline, careful)
        finding = SearchOutcome(degraded=degraded)
        self._add(finding, body["results"])
        self._fill(finding, most_tokens)
        self._passages(finding, body.get("chunks") or {}, chunk_tokens)
        return finding

    async def expand(
        self, items: Sequence[EvidenceItem], depth: str, most_tokens: int
    ) -> SearchOutcome:
        """The passages or documents of facts, and the facts of observations."""
        finding = SearchOutcome()
        kept = [item for item in items if item.kind != "model"]
        rows = await self.stored.memories(self.head.bank, [item.id for item in kept])
        visibility = Visibility(self.query.scope.filters)
        allowed = self.query.scope.filters.types
        sources = [id for row in rows for id in row.source_ids][:100]
        below = [
            row
            for row in await self.stored.memories(self.head.bank, sources)
            if row.fact_type in allowed
            and visibility.passes(Seen(row.id, row.tags, row.mentioned_at, row.metadata))
        ]
        shown = [_as_result(row) for row in below]
        self._add(finding, await self._stored_in_time(shown))
        self._fill(finding, most_tokens)
        all_rows = {row.id: row for row in (*rows, *below)}
        wanted: dict[str, list[EvidenceItem]] = {}
        for id, row in all_rows.items():
            item = self.evidence.find(id)
            if item is not None and row.chunk_id is not None:
                wanted.setdefault(row.chunk_id, []).append(item)
        if depth == "document":
            documents = {row.document_id: row for row in all_rows.values() if row.document_id}
            await self._documents(finding, wanted, list(documents), visibility, most_tokens)
        else:
            texts = await self.stored.passages(self.head.bank, list(wanted), visibility)
            passages = {id: {"text": text} for id, text in texts.items()}
            self._passages(finding, passages, most_tokens, wanted)
        return finding

    async def _recalled(
        self,
        query: str,
        types: tuple[FactType, ...],
        most_tokens: int,
        include: Include,
        deadline: float | None,
        careful: bool,
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        asked = self.query
        recaller = self.careful if careful else self.quick
        result = await recaller.recall(
            RecallQuery(
                tenant=asked.tenant,
                bank_id=asked.bank_id,
                text=tokens.cut(query, self.sizes.query),
                now=asked.now,
                filters=dataclasses.replace(asked.scope.filters, types=types),
                budget=asked.budget,
                max_tokens=most_tokens,
                include=include,
                deadline=deadline,
            )
        )
        body = dict(result.body)
        body["results"] = await self._stored_in_time(body["results"])
        return body, result.degraded

    async def _stored_in_time(self, results: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Those that were there before the run's bound, if it has one."""
        bound = self.query.scope.created_before
        if bound is None or not results:
            return list(results)
        ids = [result["id"] for result in results]
        early = await self.stored.stored_before(self.head.bank, ids, bound)
        return [result for result in results if result["id"] in early]

    def _add(
        self, finding: SearchOutcome, results: Iterable[Mapping[str, Any]]
    ) -> list[EvidenceItem]:
        for rank, result in enumerate(results):
            item, new = self.evidence.memory(result, rank)
            (finding.items if new else finding.seen).append(item)
        return [*finding.items, *finding.seen]

    def _show(self, finding: SearchOutcome, item: EvidenceItem, new: bool) -> None:
        if new:
            finding.items.append(item)
            finding.lines.append(item.line())
        else:
            finding.seen.append(item)

    def _fill(self, finding: SearchOutcome, budget: int, *, names: bool = False) -> None:
        """Shows new items within a budget, counted as they are sent. At least one is shown: its
        text is cut where it is too long."""
        lines = [item.line(names=names) for item in finding.items]
        count = within(lines, budget)
        if not count and finding.items:
            first = finding.items[0]
            first.text = tokens.cut(first.text, max(1, budget - 60))
            lines[0], count = first.line(), 1
        self.evidence.forget(finding.items[count:])
        finding.left_out += len(finding.items) - count
        del finding.items[count:]
        finding.lines += lines[:count]

    def _passages(
        self,
        finding: SearchOutcome,
        passages: Mapping[str, Mapping[str, Any]],
        budget: int,
        of: Mapping[str, Sequence[EvidenceItem]] | None = None,
    ) -> None:
        """Shows passages that belong to items, within a budget."""
        left = budget
        for id, passage in passages.items():
            items = [
                item
                for item in (of or {}).get(id, self.evidence.items)
                if item.fields.get("chunk_id") == id or of is not None
            ]
            text = passage["text"]
            if not items or left <= 0 or all(text in (item.text, *item.also) for item in items):
                continue
            handles = [item.handle for item in items]
            line = _passage(handles, text)
            cost = tokens.count(line)
            if cost > left:
                text = tokens.cut(text, max(0, left - 40))
                if not text.strip():
                    break
                line, cost = _passage(handles, text), left
            left -= cost
            finding.lines.append(line)
            for item in items:
                item.also.append(text)

    async def _documents(
        self,
        finding: SearchOutcome,
        wanted: Mapping[str, Sequence[EvidenceItem]],
        document_ids: Sequence[str],
        visibility: Visibility,
        budget: int,
    ) -> None:
        """The passages of whole documents, in order, as texts of the items that come from them."""
        left = budget
        for document_id in document_ids:
            ids = await self.stored.chunk_ids(self.head.bank, document_id)
            texts = await self.stored.passages(self.head.bank, ids, visibility)
            text = tokens.cut("\n".join(texts[id] for id in ids if id in texts), max(0, left - 40))
            if not text.strip():
                continue
            items = [item for id in ids for item in wanted.get(id, ())]
            line = _passage([item.handle for item in items], text, document_id)
            left -= tokens.count(line)
            finding.lines.append(line)
            for item in items:
                item.also.append(text)

    async def _stale(self, items: Sequence[EvidenceItem]) -> list[EvidenceItem]:
        """Observations about an entity of which newer facts wait to be consolidated."""
        if not items:
            return []
        ids = [item.id for item in items]
        stale = await self.stored.outdated(self.head.bank, ids)
        return [item for item in items if item.id in stale]


def _passage(handles: Sequence[str], text: str, document_id: str | None = None) -> str:
    what = {"passage_of": handles} if document_id is None else {"document_of": handles}
    return orjson.dumps({**what, "text": text}).decode()


def _as_result(row: Any) -> dict[str, Any]:
    """A row as a recall's result shows it."""
    shown = {
        "id": row.id,
        "text": row.text,
        "type": FactType(row.fact_type).wire,
        "context": row.context,
        "occurred_start": row.occurred_start,
        "occurred_end": row.occurred_end,
        "mentioned_at": row.mentioned_at,
        "document_id": row.document_id,
        "chunk_id": row.chunk_id,
        "tags": list(row.tags),
        "metadata": dict(row.metadata or {}),
    }
    return {key: value for key, value in shown.items() if value not in (None, [], {})}
