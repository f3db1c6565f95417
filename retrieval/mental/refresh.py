"""One refresh of a document: what changed, whether it matters, and what becomes of the text.

    snapshot → nothing new: kept → gone facts unsaid → edits, or the whole anew → outcome

Nothing is written here, so a dry run is the same run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from retrieval.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModelFailed,
    Overloaded,
    Unavailable,
)
from retrieval.llm.asking import ModelUsage
from retrieval.mental import delta, document, snapshot
from retrieval.mental.delta import Material, ShownFact
from retrieval.mental.document import Document
from retrieval.mental.editor import Editor, EditRequest
from retrieval.mental.snapshot import RefreshInput
from retrieval.mental.writer import (
    DIRECTIVES,
    DocumentWriter,
    GroundingSource,
    WriteRequest,
    counts,
    question,
    source,
)
from retrieval.recall.engine import Recaller
from retrieval.store import directives, entities
from retrieval.store.citations import Live
from retrieval.store.database.pool import Pool, read

WRITTEN, UNCHANGED = "content_written", "content_unchanged"
PRESERVED = "content_preserved_no_new_facts"
EMPTY, NOT_APPLIED = "refresh_failed_empty_candidate", "refresh_failed_delta_not_applied"
UNSTRUCTURED, ERROR = "refresh_failed_structured_output", "refresh_failed_error"

DELTAS_FAILED = 3
"""After so many failed deltas in a row the document is written anew."""
FULLS_FAILED = 2
"""After so many failed rewritings in a row it is left alone until something changes."""
SIMILAR = 0.2
"""Least similarity to the question of a memory that shares no word with it and still has to do with
it: unrelated sentences lie below."""
EVIDENCE_MOST = 500
"""Sources that are kept of a document."""
NAMES_CHARS = 100_000
"""Of proposed edits, what is looked through for names."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a refresh came to. `content` is what would be stored; `candidate` what was written,
    before any edits. `document` is None where nothing is to be stored."""

    snapshot: RefreshInput
    requested: str
    effective: str
    outcome: str
    fallback: str | None = None
    failure: str | None = None
    document: Document | None = None
    candidate: str = ""
    sources: tuple[GroundingSource, ...] = ()
    retrieved: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    structured: Mapping[str, Any] | None = None
    edits: delta.EditedDocument | None = None
    retraction: Mapping[str, Any] | None = None
    usage: ModelUsage = field(default_factory=ModelUsage)
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    llm_calls: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.outcome.startswith("refresh_failed")

    @property
    def content(self) -> str:
        return self.snapshot.model.content if self.document is None else self.document.text


@dataclass(frozen=True, slots=True)
class Refresher:
    """Runs refreshes; safe for any number of concurrent ones."""

    pool: Pool
    recaller: Recaller
    writer: DocumentWriter
    editor: Editor

    async def run(
        self,
        tenant: str,
        bank_id: str,
        model_id: str,
        *,
        full: bool = False,
        turn: str = "refresh",
        deadline: float | None = None,
    ) -> Result:
        """NotFound, Overloaded, RateLimited and Unavailable are raised; every other failure is an
        outcome."""
        began = time.monotonic()
        taken = await snapshot.take(self.pool, tenant, bank_id, model_id)
        mode, fallback = _mode(taken, full)
        run = _Run(
            self, taken, mode, fallback, "full" if full else taken.trigger.mode, turn, deadline
        )
        try:
            result = await run.result(forced=full)
        except (Overloaded, Unavailable):
            raise
        except DeadlineExceeded as error:
            result = run.failure(ERROR, "unexpected_error", f"the time was over: {error}")
        except ModelFailed as error:
            result = run.failure(ERROR, "no_answer", str(error))
        except InvalidInput as error:
            result = run.failure(ERROR, "retrieval_failed", str(error))
        return replace(result, seconds=time.monotonic() - began)


def _mode(taken: RefreshInput, full: bool) -> tuple[str, str | None]:
    """(the mode that the refresh runs in, why it is not the one asked for)."""
    model = taken.model
    if full or taken.trigger.mode == "full":
        return "full", None
    if not model.content:
        return "full", "no_baseline_content"
    if model.content_query != model.source_query:
        return "full", "source_query_changed"
    if taken.document is None:
        return "full", "structured_doc_unreadable"
    if model.failed_deltas >= DELTAS_FAILED:
        return "full", "delta_ops_failed"
    return "delta", None


class _Run:
    """One refresh under way."""

    def __init__(
        self,
        refresher: Refresher,
        taken: RefreshInput,
        mode: str,
        fallback: str | None,
        requested: str,
        turn: str,
        deadline: float | None,
    ) -> None:
        self._refresher, self._taken = refresher, taken
        self._mode, self._fallback, self._requested = mode, fallback, requested
        self._usage = ModelUsage()
        self._retraction: dict[str, Any] | None = None
        self._warnings: list[str] = []
        model, head = taken.model, taken.head
        self._request = WriteRequest(
            head.tenant,
            head.bank_id,
            model.id,
            model.source_query,
            taken.scope,
            taken.trigger,
            model.max_tokens,
            taken.now,
            turn,
            deadline,
        )

    async def result(self, *, forced: bool) -> Result:
        taken = self._taken
        found = await self._refresher.recaller.recall(question(self._request, limit=200))
        results: Sequence[Mapping[str, Any]] = found.body["results"]
        retrieved = counts([source(one) for one in results])
        gone = self._gone()
        settled = taken.populated and taken.model.content_query == taken.model.source_query
        near = {str(one["id"]) for one in results if _relevant(one)}
        matters = [one for one in taken.changed if one.id in near or one.id in taken.cited]
        if not results and not taken.others and not gone:
            return self._kept(retrieved)
        if settled and not forced and not matters and not gone:
            return self._kept(retrieved)
        if self._mode == "delta":
            return await self._edited(matters, gone, retrieved)
        return await self._written(gone)

    def _gone(self) -> frozenset[str]:
        """The cited memories that are to be unsaid now; the account of them."""
        taken = self._taken
        if not taken.gone:
            return frozenset()
        why = None
        if taken.forgotten:
            why = "nothing_resolves"
        elif taken.consolidating:
            why = "consolidation_pending"
        self._retraction = {
            "fact_ids": sorted(taken.gone),
            "fact_texts": taken.said(taken.gone),
            "applied": False,
            "deferred_reason": why,
        }
        return frozenset() if why else taken.gone

    def _kept(self, retrieved: Mapping[str, int]) -> Result:
        """The text stays. Citations of what is gone go where none of them is there any more."""
        taken, kept = self._taken, None
        if taken.document is not None and taken.populated:
            if taken.forgotten:
                kept = document.without(taken.document, taken.gone)
            elif taken.moved:
                kept = taken.document
        return self._made(PRESERVED, kept, retrieved=retrieved, sources=self._recorded(kept))

    # A document written anew

    async def _written(self, gone: frozenset[str]) -> Result:
        taken = self._taken
        written = await self._refresher.writer.write(self._request)
        self._add(written.usage)
        text = written.text.strip()
        made = {
            "candidate": text,
            "retrieved": written.retrieved,
            "tool_calls": written.tool_calls,
            "llm_calls": written.llm_calls,
        }
        self._warnings += [f"the answer is degraded: {one}" for one in written.degraded]
        if not text:
            return self.failure(EMPTY, "empty_candidate", "nothing was written", **made)
        if not written.has_evidence:
            return self.failure(EMPTY, "no_answer", "what was written rests on nothing", **made)
        if taken.trigger.response_schema and written.structured is None:
            said = written.structured_error or "there is no structured output"
            return self.failure(UNSTRUCTURED, "structured_output_failed", said, **made)
        times = {one.id: one.time for one in written.based_on}
        ids = {one.id for one in written.based_on if one.is_memory}
        shift = len(written.text) - len(written.text.lstrip())
        cited = [
            (start - shift, end - shift, [id for id in some if id in ids])
            for start, end, some in written.cited
        ]
        new = document.parse(text, cited, times)
        if not new.sections:
            return self.failure(EMPTY, "empty_candidate", "nothing was written", **made)
        if not new.cites:  # evidence for the whole, not for its parts
            new = document.parse(text, [(0, len(text), sorted(ids))], times)
        if self._retraction is not None:
            self._retraction["applied"] = True
            self._retraction["deferred_reason"] = None
        same = new.text == taken.model.content
        return self._made(
            UNCHANGED if same else WRITTEN,
            new,
            sources=written.based_on,
            structured=written.structured,
            used=counts([one for one in written.based_on if one.kind != DIRECTIVES]),
            **made,
        )

    # A document edited

    async def _edited(
        self, matters: Sequence[Live], gone: frozenset[str], retrieved: Mapping[str, int]
    ) -> Result:
        taken = self._taken
        assert taken.document is not None
        base, mixed = delta.retract(taken.document, gone)
        facts = {
            f"F{i}": ShownFact(f"F{i}", one.id, one.text, one.time.isoformat() if one.time else "")
            for i, one in enumerate(matters[: delta.EDITS_MOST], 1)
        }
        replaced = {
            one.id: before
            for one in matters
            if (before := str(taken.recorded.get(one.id, {}).get("text", "")))
            and before != one.text
        }
        applied = delta.EditedDocument(base)
        calls: tuple[Mapping[str, Any], ...] = ()
        if facts or mixed:
            head, model = taken.head, taken.model
            rules = await directives.for_reflect(
                self._refresher.pool, head.tenant, head.bank_id, taken.scope
            )
            request = EditRequest(
                head.tenant,
                head.bank_id,
                model.source_query,
                base,
                list(facts.values()),
                replaced,
                mixed,
                taken.said(gone),
                [one.content for one in rules.applied],
                model.max_tokens,
                turn=self._request.turn,
                deadline=self._request.deadline,
            )
            try:
                proposal = await self._refresher.editor.propose(request)
            except ModelFailed as error:
                return self.failure(NOT_APPLIED, "delta_ops_failed", str(error))
            self._add(proposal.usage)
            calls = tuple(proposal.llm_calls)
            known = {id: one.text for id, one in taken.cited.items()}
            names = await self._names(proposal.edits)
            material = Material(facts, known, gone, names, model.max_tokens * 8)
            applied = delta.apply(base, proposal.edits, material)
            if proposal.edits and not applied.applied:
                why = str(applied.skipped[0].get("reason", ""))
                return self.failure(
                    NOT_APPLIED,
                    "delta_ops_all_skipped",
                    f"no edit could be applied: {why}",
                    edits=applied,
                    retrieved=retrieved,
                    llm_calls=calls,
                )
        left = gone & applied.document.cites
        if self._retraction is not None and gone:
            self._retraction["applied"] = not left
            if left:
                self._warnings.append(
                    f"{len(left)} cited memories are gone and still stand in the document"
                )
        if taken.forgotten:
            applied = replace(applied, document=document.without(applied.document, taken.gone))
        if not any(True for _ in applied.document.blocks()):
            return self.failure(EMPTY, "empty_candidate", "nothing would be left", edits=applied)
        same = applied.document.text == taken.model.content
        used = [source_of(one) for one in matters if one.id in applied.used]
        return self._made(
            UNCHANGED if same else WRITTEN,
            applied.document,
            candidate=applied.document.text,
            sources=self._recorded(applied.document, used),
            retrieved=retrieved,
            used=counts(used),
            edits=applied,
            llm_calls=calls,
            structured=(taken.model.reflect_response or {}).get("structured_output"),
        )

    async def _names(self, edits: Sequence[Any]) -> tuple[str, ...]:
        """Entities of the bank that edits speak of."""
        said = orjson.dumps(edits, default=str)[:NAMES_CHARS].decode(errors="ignore")
        bank = self._taken.head.bank
        found = await read(self._refresher.pool, lambda c: entities.named_in(c, bank, said))
        return tuple(found)

    # What comes of it

    def _recorded(
        self, new: Document | None, used: Sequence[GroundingSource] = ()
    ) -> tuple[GroundingSource, ...]:
        """What the document rested on and rests on: it accumulates, without what is gone."""
        taken = self._taken
        found = {one.id: one for one in used}
        for id, one in taken.cited.items():
            found.setdefault(id, source_of(one))
        for id, said in taken.recorded.items():
            if id not in taken.gone and id not in taken.moved and id in taken.cited:
                fields = {k: v for k, v in said.items() if k not in ("id", "text", "type")}
                old = found[id]
                found[id] = replace(old, fields={**fields, **old.fields})
        cites = frozenset() if new is None else new.cites
        order = sorted(found.values(), key=lambda one: one.id not in cites)
        return tuple(order[:EVIDENCE_MOST])

    def _add(self, usage: ModelUsage) -> None:
        for name in ModelUsage.__slots__:
            setattr(self._usage, name, getattr(self._usage, name) + getattr(usage, name))

    def failure(self, outcome: str, why: str, message: str, **made: Any) -> Result:
        return self._made(outcome, None, failure=why, message=message, **made)

    def _made(self, outcome: str, new: Document | None, **made: Any) -> Result:
        return Result(
            self._taken,
            self._requested,
            self._mode,
            outcome,
            self._fallback,
            document=new,
            retraction=self._retraction,
            usage=self._usage,
            warnings=tuple(self._warnings),
            **made,
        )


def source_of(one: Live) -> GroundingSource:
    fields = {"tags": list(one.tags)}
    return GroundingSource(
        one.fact_type.wire, one.id, one.text, one.time.isoformat() if one.time else "", fields
    )


def _relevant(result: Mapping[str, Any]) -> bool:
    """Whether a recalled memory has to do with the question, rather than with what does."""
    scores = result.get("scores") or {}
    words, similarity = scores.get("keyword"), scores.get("semantic")
    return words is not None or (similarity is not None and similarity >= SIMILAR)
