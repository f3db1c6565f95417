"""Answers a question out of a bank: search, ask, check, mend, and say what it rests on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ParamSpec

from retrieval.errors import DeadlineExceeded, FourfoldError, ModelFailed, NeedsModel
from retrieval.llm.asking import Asker
from retrieval.llm.fences import fence, fenced
from retrieval.protocols import LLM
from retrieval.recall.engine import Recaller
from retrieval.reflect import by_rules, checking, citing, disposition, prompts
from retrieval.reflect.checking import Checked
from retrieval.reflect.citing import CitedAnswer
from retrieval.reflect.evidence import EvidenceSet, within
from retrieval.reflect.query import (
    Citation,
    Grounding,
    Listener,
    Mark,
    ReflectQuery,
    ReflectResult,
)
from retrieval.reflect.run import ANSWER_AT, SHARE, Draft, ReflectRun, RunBounds
from retrieval.reflect.seams import (
    Directives,
    Models,
    NoDirectives,
    NoModels,
)
from retrieval.reflect.searches import QUERY_TOKENS, Searches, Sizes
from retrieval.reflect.stored import StoredReads
from retrieval.reflect.structured import ResponseSchema
from retrieval.settings import ReflectSettings
from retrieval.store.directives import Directive
from retrieval.store.heads import BankHead
from retrieval.text import tokens
from retrieval.types import Budget, TagsMatch

log = logging.getLogger(__name__)

P = ParamSpec("P")

TEN_BEST = 10
UNKNOWN = "I do not know: nothing in this memory supports an answer."
CHARS_A_TOKEN = 8
"""Of an answer that is far too long only its beginning is checked."""
CHECKED_AT_ONCE = 1
"""Answers that are checked at the same time: each keeps the interpreter from everything else."""
STRUCTURED_TOKENS = 4_096


class ReflectEngine:
    """Safe for any number of concurrent calls. `quick` recalls for the first searches, `careful`
    for those that the model asks for; of a question `query_tokens` at most are searched for.
    Without `llm` only rules answer, where `rules` says so."""

    def __init__(
        self,
        stored: StoredReads,
        llm: LLM | None,
        quick: Recaller,
        careful: Recaller,
        settings: ReflectSettings,
        *,
        models: Models | None = None,
        directives: Directives | None = None,
        rules: bool = False,
        query_tokens: int = QUERY_TOKENS,
    ) -> None:
        self._stored = stored
        self._llm = llm
        self._quick = quick
        self._careful = careful
        self._settings = settings
        self._models = models or NoModels()
        self._directives = directives or NoDirectives()
        self._rules = rules
        self._query_tokens = query_tokens
        self._checking = asyncio.Semaphore(CHECKED_AT_ONCE)

    @property
    def ready(self) -> bool:
        """Whether there is something that answers."""
        return self._llm is not None or self._rules

    async def reflect(self, query: ReflectQuery, listener: Listener | None = None) -> ReflectResult:
        """Writes nothing. Cancelling it cancels the call or search that runs.

        Raises NeedsModel, InvalidInput (response_schema), NotFound (the bank); RateLimited,
        Overloaded, Unavailable where the model or the searches are not to be had; DeadlineExceeded,
        which names the stage and what set the time. What a model says never raises.
        """
        if not self.ready:
            raise NeedsModel.to("reflect", "recall needs none")
        started = time.monotonic()
        wall_s = self._settings.reflect_wall_timeout_s
        deadline, bound = started + wall_s, f"REFLECT_WALL_TIMEOUT allows {wall_s:g} s"
        if query.deadline is not None and query.deadline < deadline:
            deadline, bound = query.deadline, query.bound or "the request's own time"
        try:
            return await self._reflect(query, started, deadline, listener)
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"{error.stage} ({bound})", error.finished) from error

    async def preview(self, tenant: str, bank_id: str) -> dict[str, Any]:
        """What the model is told in this bank, as blocks. NotFound (the bank)."""
        head, profile = await self._stored.character(tenant, bank_id)
        settings = self._settings.with_overrides(head.config)
        applied, _ = await self._directives.for_reflect(tenant, bank_id, None, TagsMatch.ANY, False)
        query = ReflectQuery(tenant, bank_id, prompts.PLACEHOLDER, datetime.now(UTC))
        voice = self._voice(query, head, profile, settings, applied)
        return prompts.preview(query, voice, settings, skipped=self._llm is None)

    async def _reflect(
        self, query: ReflectQuery, started: float, deadline: float, listener: Listener | None
    ) -> ReflectResult:
        shape = None if query.response_schema is None else ResponseSchema(query.response_schema)
        head, profile = await self._stored.character(query.tenant, query.bank_id)
        settings = self._settings.with_overrides(head.config)
        filters = query.scope.filters
        applied, left_out = await self._directives.for_reflect(
            query.tenant,
            query.bank_id,
            filters.tags,
            filters.tags_match,
            query.apply_all_directives,
        )
        searches = Searches(
            self._stored, self._quick, self._careful, self._models, query, head, EvidenceSet(),
            _sizes(query, settings, self._query_tokens),
        )  # fmt: skip
        bounds = RunBounds(
            max(1, round(settings.reflect_max_iterations * SHARE[query.budget])),
            settings.reflect_max_context_tokens,
            started + ANSWER_AT * (deadline - started),
            deadline,
        )
        voice = self._voice(query, head, profile, settings, applied)
        asker = Asker(
            self._llm or _Nobody(), "reflect", query.turn, query.tenant, query.bank_id, deadline
        )
        run = ReflectRun(query, searches, asker, voice, bounds, listener)
        await run.search()
        answer = await self._answer(run, applied, strict=settings.reflect_strict_grounding)
        structured, error = None, None
        if shape is not None:
            structured, error = await self._structured(run, shape, answer.answer)
        return _result(run, answer, applied, left_out, structured, error)

    def _voice(
        self,
        query: ReflectQuery,
        head: BankHead,
        profile: Mapping[str, Any],
        settings: ReflectSettings,
        directives: Sequence[Directive],
    ) -> prompts.Voice:
        own: str | None = head.config.get("reflect_mission")
        return prompts.Voice(
            "" if profile["name"] == query.bank_id else profile["name"],
            own or profile["mission"] or settings.reflect_mission or "",
            _traits(head.config, profile, self._settings),
            directives,
        )

    async def _answer(
        self, run: ReflectRun, directives: Sequence[Directive], *, strict: bool
    ) -> Checked:
        """The answer, checked, and mended where it had to be."""
        query = run.query
        if self._llm is None:
            run.degraded["extractive"] = None
            return await self._beside(self._by_rules, run)
        draft = await run.draft()
        if draft is None:
            run.degraded[run.trouble] = None
            run.degraded["extractive"] = None
            return await self._beside(self._by_rules, run)
        checked = await self._read(run, draft)
        draft, checked = await self._insist(run, draft, checked)
        draft, checked = await self._mend(run, draft, checked)
        if directives and query.budget is Budget.HIGH:
            checked = await self._obey(run, directives, draft, checked)
        if tokens.count(checked.answer.text) > query.max_tokens:
            run.degraded["length"] = None
            short = _shortened(checked.answer, query.max_tokens)
            checked = await self._beside(self._checked, run, short)
        if strict and checked.faults:
            kept = checked.answer.without(fault.sentence for fault in checked.faults)
            checked = await self._beside(
                self._checked, run, kept if kept.text else CitedAnswer(UNKNOWN)
            )
        return checked

    async def _insist(
        self, run: ReflectRun, draft: Draft, checked: Checked
    ) -> tuple[Draft, Checked]:
        """An answer that nothing is known is asked about once more where there is evidence."""
        if not checked.declines:
            return draft, checked
        near = checking.at_hand(run.query.text, run.evidence.items)
        if not near:
            return draft, checked
        best = sorted(near, key=lambda item: (-item.similarity, -item.weight))[:TEN_BEST]
        again = await _tried(run, "again", prompts.DECLINED, draft.text, best)
        second = None if again is None else await self._read(run, again)
        if again is None or second is None or second.declines or not second.supported:
            run.degraded["declined"] = None
            return draft, checked
        return again, second

    async def _mend(self, run: ReflectRun, draft: Draft, checked: Checked) -> tuple[Draft, Checked]:
        """Asks once for a better answer where sentences rest on nothing, or it is too long."""
        most = run.query.max_tokens
        too_long = tokens.count(checked.answer.text) > most
        if not checked.faults and not too_long:
            return draft, checked
        problems = [fault.about for fault in checked.faults[:20]]
        demand = prompts.repair(problems, most if too_long else 0)
        mended = await _tried(run, "repair", demand, draft.text[: CHARS_A_TOKEN * most])
        if mended is None:
            return draft, checked
        second = await self._read(run, mended)
        shorter = len(second.answer.text) < len(checked.answer.text)
        better = len(second.faults) < len(checked.faults) or (
            too_long and shorter and len(second.faults) == len(checked.faults)
        )
        loses = checked.supported and not second.supported
        return (mended, second) if better and not loses else (draft, checked)

    async def _obey(
        self, run: ReflectRun, directives: Sequence[Directive], draft: Draft, checked: Checked
    ) -> Checked:
        """Has the answer judged by the bank's rules, and mended once."""
        try:
            problems = await run.judged(directives, checked.answer.text)
            if not problems:
                return checked
            mended = await run.ask("directives", prompts.repair(problems), draft=draft.text)
            second = None if mended is None else await self._read(run, mended)
            if second is not None and len(second.faults) <= len(checked.faults):
                checked = second
                if not await run.judged(directives, checked.answer.text):
                    return checked
        except FourfoldError as error:
            log.info("an answer could not be judged by its directives: %s", error)
        run.degraded["directive"] = None
        return checked

    async def _read(self, run: ReflectRun, draft: Draft) -> Checked:
        return await self._beside(self._examined, run, draft)

    async def _beside(self, work: Callable[P, Checked], *args: P.args, **more: P.kwargs) -> Checked:
        """An answer, checked beside the event loop: it is held against all that was found, however
        short it is."""
        async with self._checking:
            return await asyncio.to_thread(work, *args, **more)

    def _examined(self, run: ReflectRun, draft: Draft) -> Checked:
        answer = citing.parse(
            draft.text[: CHARS_A_TOKEN * run.query.max_tokens + 2_000], run.evidence
        )
        if draft.references and not answer.items:
            listed = {
                item.handle: item
                for reference in draft.references
                if (item := run.evidence.find(reference)) is not None
            }
            answer = checking.attached(answer, list(listed.values()))
        return self._checked(run, answer)

    def _checked(self, run: ReflectRun, answer: CitedAnswer) -> Checked:
        names = {name for item in run.evidence.items for name in item.names}
        return checking.check(answer, names, run.query.text, run.query.now)

    def _by_rules(self, run: ReflectRun) -> Checked:
        items = run.evidence.items
        return self._checked(run, by_rules.answer(run.query.text, items, run.query.max_tokens))

    async def _structured(
        self, run: ReflectRun, shape: ResponseSchema, answer: CitedAnswer
    ) -> tuple[dict[str, Any] | None, str | None]:
        """The answer in the shape that was asked for; else why there is none."""
        items = answer.items or tuple(run.evidence.best(TEN_BEST))
        if self._llm is None:
            return by_rules.structured(shape.schema, items)
        name = fence()
        shown = "\n".join([answer.text, *(item.line() for item in items)])
        messages = [
            {"role": "system", "content": prompts.STRUCTURED},
            {
                "role": "user",
                "content": f"Question: {run.query.text}\n\nThe answer, and the memories that it"
                f" rests on:\n{fenced(name, shown)}",
            },
        ]
        asker = dataclasses.replace(run.asker, about={"scope": "structured"})
        try:
            return await asker.read(
                messages, ("answer", shape.schema), shape.read, max_tokens=STRUCTURED_TOKENS
            ), None
        except ModelFailed as error:
            return None, str(error)
        except FourfoldError as error:
            return None, f"the language model could not be asked for it: {error}"


class _Nobody:
    """Stands where there is no language model; is never asked."""

    model_id = ""

    async def chat(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("there is no language model")


async def _tried(
    run: ReflectRun, scope: str, demand: str, text: str, items: Any = None
) -> Draft | None:
    """One more question about a draft, which stays where it cannot be asked."""
    try:
        return await run.ask(scope, demand, draft=text, items=items)
    except FourfoldError as error:
        log.info("a draft stays as it is: %s", error)
        run.degraded["unrepaired"] = None
        if isinstance(error, DeadlineExceeded):
            run.finish = "time"
        return None


def _sizes(query: ReflectQuery, settings: ReflectSettings, query_tokens: int) -> Sizes:
    """Tokens of the searches: the request's, else the bank's or the server's."""
    own: Mapping[str, Any] = settings.reflect_default_options or {}
    prefix = "reflect_search_observations"
    observations = query.observations_max_tokens or own.get(f"{prefix}_max_tokens") or 5_000
    entities = query.observations_include_entities
    if entities is None:
        entities = bool(own.get(f"{prefix}_include_entities", True))
    chunks = query.recall_chunks_max_tokens
    if chunks is None:
        chunks = settings.recall_chunks_max_tokens
    included = query.recall_include_chunks
    if included is None:
        included = settings.recall_include_chunks
    sources = settings.reflect_source_facts_max_tokens
    room = settings.reflect_max_context_tokens
    return Sizes(
        min(observations, room),
        min(query.recall_max_tokens or settings.recall_max_tokens, room),
        min(chunks, room) if included else 0,
        entities,
        None if sources < 0 else min(sources or room, room),
        query_tokens,
    )


def _traits(overrides: Any, profile: Any, common: ReflectSettings) -> dict[str, int]:
    own = {trait: overrides.get(f"disposition_{trait}") for trait in disposition.TRAITS}
    shared = {
        trait: level
        for trait in disposition.TRAITS
        if (level := getattr(common, f"disposition_{trait}")) is not None
    }
    return disposition.levels(own, profile["disposition"], shared)


def _shortened(answer: CitedAnswer, most_tokens: int) -> CitedAnswer:
    """The first sentences that fit; of one that does not fit alone, its first words."""
    kept = within([one.text for one in answer.sentences], most_tokens)
    while kept > 1 and tokens.count(answer.text[: answer.sentences[kept - 1].end]) > most_tokens:
        kept -= 1
    sentences = answer.sentences[: max(1, kept)]
    text = answer.text[: sentences[-1].end] if sentences else answer.text
    if tokens.count(text) > most_tokens:
        cut = tokens.cut(text, most_tokens)
        text = (cut.rsplit(maxsplit=1) or [""])[0] if " " in cut.strip() else cut
        sentences = tuple(
            dataclasses.replace(one, end=len(text), text=text[one.start :])
            for one in sentences
            if one.start < len(text)
        )
    return CitedAnswer(text, sentences)


def _result(
    run: ReflectRun,
    checked: Checked,
    applied: Sequence[Directive],
    left_out: Sequence[Directive],
    structured: dict[str, Any] | None,
    error: str | None,
) -> ReflectResult:
    supported = [one for one in checked.supported if one.items]
    cited = {item.handle: item for one in supported for item in one.items}
    return ReflectResult(
        text=checked.answer.text,
        citations=tuple(Citation(one.start, one.end, one.items) for one in supported),
        grounding=Grounding(
            len(checked.claims),
            tuple(
                Mark(fault.sentence.start, fault.sentence.end, fault.reason)
                for fault in checked.faults
            ),
        ),
        based_on=tuple(cited.values()),
        seen=run.evidence.items,
        directives=tuple(applied),
        directives_left_out=tuple(left_out),
        usage=run.asker.usage,
        tool_calls=tuple(run.journal.tools),
        llm_calls=tuple(run.journal.calls),
        finish=run.finish,
        degraded=tuple(run.degraded),
        structured=structured,
        structured_error=error,
    )
