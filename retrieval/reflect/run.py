"""One run: searches, calls of the model and its tools, until there is a draft. All of it bounded.

A run ends because the model is done, or because a bound of calls, time or context is reached: then
it is asked once more, without tools, for the answer. Every question after the loop is one flat text
(question, what was found, what was wrong), so that providers which insist on tools beside tool
results need none, and so that what is sent stays small.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from retrieval.errors import (
    DeadlineExceeded,
    FourfoldError,
    ModelCut,
    ModelFailed,
    ModelTooLong,
    NotFound,
    RateLimited,
)
from retrieval.llm.asking import Asker
from retrieval.llm.fences import fence, fenced
from retrieval.protocols import Completion, ToolCall
from retrieval.reflect import citing, judging, leaks, prompts, tools
from retrieval.reflect.evidence import EvidenceItem, EvidenceSet, within
from retrieval.reflect.query import Finish, Listener, ModelCall, ReflectQuery, ToolRecord
from retrieval.reflect.searches import FACTS, Searches, SearchOutcome
from retrieval.store.directives import Directive
from retrieval.text import tokens
from retrieval.types import Budget, FactType

log = logging.getLogger(__name__)

SHARE = {Budget.LOW: 0.5, Budget.MID: 1.0, Budget.HIGH: 2.0}
"""Part of the iterations that a budget gets."""
ANSWER_AT = 0.8
"""Part of its time after which a run has to answer."""
MODELS_SHOWN = 5
CALL_TOKENS = 16_000
"""Most tokens of one answer, thoughts included."""
MOST_CALLS = 4 * tools.CALLS_A_TURN
"""Calls of one answer that are looked at at all."""
QUESTIONS = 2
"""How often an answer is asked for that turns out to be none."""


@dataclass(frozen=True, slots=True)
class RunBounds:
    """What one run may use. `answer_at`, `deadline` on time.monotonic()."""

    iterations: int
    context_tokens: int
    answer_at: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer with handles, and the references that came beside it."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(slots=True)
class Journal:
    """What happened, for traces."""

    tools: list[ToolRecord] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)


class ReflectRun:
    """The state of one run. `degraded` and `finish` say how it went."""

    def __init__(
        self,
        query: ReflectQuery,
        searches: Searches,
        asker: Asker,
        voice: prompts.Voice,
        bounds: RunBounds,
        listener: Listener | None = None,
    ) -> None:
        self.query = query
        self.evidence: EvidenceSet = searches.evidence
        self.finish: Finish = "done"
        self.degraded: dict[str, None] = {}
        self.trouble = "empty"
        self.journal = Journal()
        self.asker = asker
        self.bounds = bounds
        self._searches = searches
        self._listener = listener
        self._fence = fence()
        self._system = prompts.system(query, voice)
        self._offered: list[str] = []
        self._shown: list[str] = []
        self._asked: dict[str, int] = {}
        self._results: dict[str, SearchOutcome] = {}
        self._left = bounds.context_tokens

    # The searches that come first

    async def search(self) -> None:
        """All that the question itself finds, at once. Errors of searches go to the caller."""
        query, sizes = self.query, self._searches.sizes
        text, deadline = query.text, self.bounds.deadline
        types = query.scope.filters.types
        work = {}
        if query.scope.models:
            work["search_mental_models"] = (
                {"query": text, "max_results": MODELS_SHOWN},
                self._searches.models(text, MODELS_SHOWN, deadline),
            )
        if FactType.OBSERVATION in types:
            work["search_observations"] = (
                {"query": text, "max_tokens": sizes.observations},
                self._searches.observations(text, sizes.observations, deadline, careful=False),
            )
        if any(kind in types for kind in FACTS):
            work["recall"] = (
                {"query": text, "max_tokens": sizes.recall, "max_chunk_tokens": sizes.chunks},
                self._searches.recall(text, sizes.recall, sizes.chunks, deadline, careful=False),
            )
        started = time.monotonic()
        tasks = [asyncio.ensure_future(search) for _, search in work.values()]
        try:
            findings = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        spent = time.monotonic() - started
        for (name, (asked, _)), finding in zip(work.items(), findings, strict=True):
            self._note(name, asked, finding.output, spent, 0)
            self._take_in(finding)
            self._asked[_key(name, asked)] = 1
            self._results[_key(name, asked)] = finding
            if finding.items or finding.seen:
                self._offered.append(name)
                self._shown.append(f"{name}:\n{finding.text}")
        if "recall" not in self._offered and "recall" in work and self._searches.head.next_ordinal:
            self._offered.append("recall")
        if any(item.kind != "model" for item in self.evidence.items):
            self._offered.append("expand")
        self._offered.append("done")

    # The loop

    async def draft(self) -> Draft | None:
        """What the model answers; None where it gave no answer that can be read."""
        found = await self._loop()
        return found or await self.ask("final", prompts.ANSWER_NOW)

    async def _loop(self) -> Draft | None:
        messages: list[dict[str, Any]] = [
            self._system,
            prompts.question(self.query, self._fence, self._found("\n\n".join(self._shown))),
        ]
        offered = tools.described(self._offered)
        sent, counted = tokens.count(orjson.dumps(offered).decode()), 0
        for iteration in range(1, self.bounds.iterations):
            if time.monotonic() >= self.bounds.answer_at:
                self.finish = "time"
                return None
            sent, counted = sent + _tokens(messages[counted:]), len(messages)
            if sent > self.bounds.context_tokens:
                self.finish = "context"
                return None
            try:
                said = await self._chat(
                    f"agent_{iteration}", messages, self.bounds.answer_at, tools=offered
                )
            except DeadlineExceeded:
                self.finish = "time"
                return None
            except ModelTooLong:
                self.finish = "context"
                self._left //= 2
                return None
            except ModelFailed as error:
                log.info("a reflect's call was no answer: %s", error)
                return None
            except RateLimited:
                if iteration == 1:
                    raise
                self.finish = "budget"
                return None
            calls, written = _calls(said)
            if not calls:
                return written
            messages.append(_assistant(said.text, calls))
            draft, ended = await self._answer_calls(calls, messages, iteration)
            if draft is not None:
                return draft
            if ended:
                break
        self.finish = "iterations"
        return None

    async def _answer_calls(
        self, calls: Sequence[ToolCall], messages: list[dict[str, Any]], iteration: int
    ) -> tuple[Draft | None, bool]:
        """Adds a result per call to the messages; (the draft of a `done`, has searching ended?)."""
        ended = False
        for place, call in enumerate(calls):
            if call.name == "done" and (draft := _done(call)):
                return draft, False
            if place >= tools.CALLS_A_TURN:
                said = f"Not done: at most {tools.CALLS_A_TURN} calls at once."
            else:
                said, last = await self._do(call, iteration)
                ended = ended or last
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        return None, ended

    async def _do(self, call: ToolCall, iteration: int) -> tuple[str, bool]:
        """What comes of one call, and whether it was the third of its kind."""
        started = time.monotonic()
        shown: Mapping[str, Any] = {}
        try:
            request = tools.read(call.name, call.arguments, self._offered)
            shown = request.shown
            key = _key(request.name, shown)
            times = self._asked[key] = self._asked.get(key, 0) + 1
            if times > 2:
                self._note(request.name, shown, {"error": prompts.LAST_TIME}, 0.0, iteration)
                return prompts.LAST_TIME, True
            if times > 1 and key in self._results:
                said = f"{prompts.AGAIN}\n{_names_only(self._results[key])}"
                self._note(request.name, shown, {"again": True}, 0.0, iteration)
                return self._found(said), False
            finding = await self._perform(request)
        except tools.BadCall as problem:
            error = str(problem)
        except (DeadlineExceeded, NotFound):
            raise
        except FourfoldError as problem:
            error = f"the search failed: {problem}"
        else:
            self._results[key] = finding
            self._take_in(finding)
            spent = time.monotonic() - started
            self._note(request.name, shown, finding.output, spent, iteration)
            return self._found(finding.text), False
        name = call.name if call.name in tools.ARGUMENTS else "unknown"
        self._note(name, shown, {"error": error}, time.monotonic() - started, iteration)
        return f"Not done: {error}.", False

    async def _perform(self, request: tools.Request) -> SearchOutcome:
        deadline = self.bounds.deadline
        match request.arguments:
            case tools.SearchModels() as asked:
                return await self._searches.models(asked.query, asked.max_results, deadline)
            case tools.SearchObservations() as asked:
                most = min(asked.max_tokens, self._room())
                return await self._searches.observations(asked.query, most, deadline)
            case tools.Recall() as asked:
                most = min(asked.max_tokens, self._room())
                passages = min(asked.max_chunk_tokens, self._room())
                return await self._searches.recall(asked.query, most, passages, deadline)
            case tools.Expand() as asked:
                items = self._known(asked.memory_ids)
                return await self._searches.expand(
                    items, asked.depth, min(tools.MOST_TOKENS // 2, self._room())
                )
            case _:
                raise tools.BadCall(f"{request.name}: the answer is empty")

    def _known(self, references: Sequence[str]) -> list[EvidenceItem]:
        """The items that these ids stand for. BadCall for ids that were never shown."""
        found = {reference: self.evidence.find(reference) for reference in references}
        unknown = [reference[:40] for reference, item in found.items() if item is None]
        if unknown:
            raise tools.BadCall(f"expand: {', '.join(unknown)} was not shown to you")
        return [item for item in found.values() if item is not None]

    def _room(self) -> int:
        """Tokens that may still be shown."""
        return max(200, self._left)

    def _take_in(self, finding: SearchOutcome) -> None:
        self._left -= tokens.count(finding.text)
        for part in finding.degraded:
            self.degraded[f"recall: {part}"] = None

    def _found(self, text: str) -> str:
        return fenced(self._fence, text or prompts.NOTHING)

    # Questions after the loop

    async def ask(
        self,
        scope: str,
        demand: str,
        *,
        draft: str = "",
        items: Sequence[EvidenceItem] | None = None,
    ) -> Draft | None:
        """Asks for the answer, without tools, out of `items` (None: all that was shown); again
        where it is none. None where there is none then, either: `trouble` says why."""
        again = demand
        reason = "empty"
        for _ in range(QUESTIONS):
            try:
                said = await self._chat(
                    scope, self._flat(again, draft, items), self.bounds.deadline
                )
            except ModelTooLong:
                self._left, reason = self._left // 2, "context"
                items = self.evidence.best(max(5, len(self.evidence.items) // 4))
                continue
            except ModelCut:
                again, reason = f"{demand}\n{prompts.SHORTER}", "cut"
                continue
            except ModelFailed:
                reason = "refused"
                continue
            except RateLimited:
                if not self.journal.calls:
                    raise
                self.finish, reason = "budget", "budget"
                break
            calls, written = _calls(said)
            for call in calls:  # none was offered, but this one says something
                written = written or (_done(call) if call.name == "done" else None)
            if written is not None:
                return written
            again, reason = f"{demand}\n{prompts.EMPTY}", "empty"
        self.trouble = reason
        return None

    async def judged(self, directives: Sequence[Directive], text: str) -> list[str]:
        """What a text does against these rules; see judging.broken."""
        started = time.monotonic()
        asker = dataclasses.replace(self.asker, about={**self.asker.about, "scope": "judge"})
        try:
            return await judging.broken(asker, directives, text)
        finally:
            self.journal.calls.append(ModelCall("judge", time.monotonic() - started))

    def _flat(
        self, demand: str, draft: str, items: Sequence[EvidenceItem] | None
    ) -> list[dict[str, Any]]:
        chosen = self.evidence.items if items is None else items
        lines = []
        for item in chosen:
            lines.append(item.line())
            lines += [
                orjson.dumps({"passage_of": [item.handle], "text": text}).decode()
                for text in item.also
            ]
        fixed = tokens.count(
            f"{self._system['content']}{self.query.text}{self.query.context}{draft}"
        )
        room = max(500, self.bounds.context_tokens - fixed - 500)
        count = within(lines, room)
        if count < len(lines):
            ranked = sorted(chosen, key=lambda item: -item.weight)
            lines = [item.line() for item in ranked]
            count = within(lines, room)
            lines = [*lines[:count], f"{len(lines) - count} more of lower rank were left out."]
        messages = [
            self._system,
            prompts.question(self.query, self._fence, self._found("\n".join(lines))),
        ]
        if draft:
            messages.append({"role": "assistant", "content": draft})
            messages.append({"role": "user", "content": demand})
        else:
            messages[1]["content"] += f"\n\n{demand}"
        return messages

    async def _chat(
        self,
        scope: str,
        messages: Sequence[Mapping[str, Any]],
        deadline: float,
        **more: Any,
    ) -> Completion:
        about = {**self.asker.about, "scope": scope}
        asker = dataclasses.replace(self.asker, deadline=deadline, about=about)
        most = min(CALL_TOKENS, self.query.max_tokens * 3 // 2 + 1_000)
        started = time.monotonic()
        try:
            # The model keeps to the deadline itself; this is for one that does not.
            async with asyncio.timeout(max(0.0, deadline - started) + 0.25):
                return await asker.chat(list(messages), max_tokens=most, **more)
        except TimeoutError:
            raise DeadlineExceeded(f"the language model's answer ({scope})") from None
        finally:
            self.journal.calls.append(ModelCall(scope, time.monotonic() - started))
            if self._listener is not None:
                self._listener(self.asker.usage)

    def _note(
        self,
        name: str,
        asked: Mapping[str, Any],
        output: Mapping[str, Any],
        seconds: float,
        iteration: int,
    ) -> None:
        record = ToolRecord(name, asked, output, seconds, iteration)
        self.journal.tools.append(record)
        if self._listener is not None:
            self._listener(record)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that the model wrote as text."""

    id: str
    name: str
    arguments: str


def _calls(said: Completion) -> tuple[list[ToolCall], Draft | None]:
    """The calls of an answer, also where it wrote them as text; else what it says, if anything."""
    if said.calls:
        return [
            _Call(call.id or f"call_{i}", _plain(call.name), _plain(call.arguments))
            for i, call in enumerate(said.calls[:MOST_CALLS])
        ], None
    meant = leaks.read(said.text)
    if citing.says(meant.text):
        return [], Draft(meant.text, meant.references)
    written = [_Call(f"call_{i}", c.name, c.arguments) for i, c in enumerate(meant.calls)]
    return list(written), None


def _plain(text: str) -> str:
    """Without lone surrogates, which nothing behind this can write."""
    return text.encode("utf-8", "ignore").decode()


def _tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of messages as they are sent, calls of tools included."""
    written = [str(message.get("content") or "") for message in messages]
    written += [orjson.dumps(m["tool_calls"]).decode() for m in messages if "tool_calls" in m]
    return int(tokens.counts(written).sum())


def _done(call: ToolCall) -> Draft | None:
    """The draft of a call of `done`; None where it holds no answer."""
    try:
        done = tools.read("done", call.arguments, ("done",)).arguments
    except tools.BadCall:
        return None
    assert isinstance(done, tools.Done)
    text = leaks.clean(done.answer)
    return Draft(text, tuple(done.references)) if citing.says(text) else None


def _assistant(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    written = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name[:64],
                "arguments": call.arguments if len(call.arguments) <= 4_000 else "{}",
            },
        }
        for call in calls
    ]
    return {"role": "assistant", "content": text[:4_000] or None, "tool_calls": written}


def _names_only(finding: SearchOutcome) -> str:
    handles = [item.handle for item in (*finding.items, *finding.seen)]
    return f"Shown above already: {', '.join(handles)}." if handles else prompts.NOTHING


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    """The same for calls that ask the same."""
    return f"{name} {orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()}"
