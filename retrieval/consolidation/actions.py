"""Reading what is to be done with a batch, and checking it: whatever a model says, what passes is
grounded in what it was shown.

An action that is not is dropped and counted, with the reason. Where less than four fifths are good,
or something was invented, the model is asked again, told why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

from retrieval import timex
from retrieval.consolidation.batch import Batch, Shown
from retrieval.consolidation.prompts import TEXT_CHARS
from retrieval.errors import InvalidInput
from retrieval.ingest.entities import naming
from retrieval.ingest.write.stored import StoredMemory
from retrieval.llm.grounding import (
    has_controls,
    has_machinery,
    invented_numbers,
    main_script,
    names_in,
    numbers,
    scripts,
)
from retrieval.llm.reading import NoJson, json_object, list_of, text_of
from retrieval.store.edge import parse_time
from retrieval.text.folding import fold

GOOD_SHARE = 0.8
ACTIONS = 16
"""So many actions of an answer are read beside four for every fact."""
REASON_CHARS = 300

Do: TypeAlias = Literal["create", "update", "end", "none"]
_HANDLE = re.compile(r"([FO])(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Action:
    """One good action: `facts` and `observation` are places in the batch."""

    do: Do
    facts: tuple[int, ...]
    observation: int | None = None
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    reason: str = ""
    partner: int | None = None
    """Of an end: the place, among the actions, of what says what holds since."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What passed; `open` are facts that only dropped actions cited: they are asked about again."""

    actions: tuple[Action, ...]
    dropped: tuple[str, ...] = ()
    open: tuple[int, ...] = ()


class _Bad(Exception):
    """Why an action is dropped. `invented`: it says what nobody said, and is asked about again."""

    def __init__(self, why: str, *, invented: bool = False) -> None:
        super().__init__(why)
        self.invented = invented


@dataclass(slots=True)
class ActionReader:
    """Reads the answers about one batch. `dropped` counts over all answers."""

    batch: Batch
    translated: bool = False
    questions: int = 0
    dropped: list[str] = field(default_factory=list)
    _spans: dict[UUID, list[tuple[datetime, datetime]]] = field(default_factory=dict)

    def read(self, text: str, last: bool) -> Decided:
        """What passes of an answer. NoJson where too little does, or something was invented
        and the model was not told yet."""
        self.questions += 1
        items = json_object(text).get("actions")
        if not isinstance(items, list):
            raise NoJson('"actions" is no list')
        good: list[Action] = []
        bad: list[str] = []
        cited: set[int] = set()
        invented = False
        for place, item in enumerate(items[: 4 * len(self.batch.facts) + ACTIONS]):
            try:
                if not isinstance(item, Mapping):
                    raise _Bad("is no object")
                good.append(self._action(item))
            except _Bad as error:
                invented |= error.invented
                bad.append(f"action {place} {error}")
                cited.update(self._known(item))
        few = bool(bad) and len(good) < GOOD_SHARE * (len(good) + len(bad))
        if few or (invented and self.questions == 1 and not last):
            self.dropped += bad
            raise NoJson("; ".join(bad[:5]))
        ended = [action for action in good if action.do == "end"]
        for action in [action for action in good if _contradicted(action, ended)]:
            good.remove(action)
            bad.append("an update gives an observation a new text that the same fact ends")
            cited.update(action.facts)
        self.dropped += bad
        taken = {fact for action in good for fact in action.facts}
        return Decided(_paired(good, self.batch), tuple(bad), tuple(sorted(cited - taken)))

    def _known(self, item: Any) -> list[int]:
        """The facts that a bad action names, as far as they are known."""
        handles = list_of(item.get("facts")) if isinstance(item, Mapping) else []
        places = (_place(handle, "F", len(self.batch.facts)) for handle in handles)
        return [place for place in places if place is not None]

    def _action(self, item: Mapping[str, Any]) -> Action:
        do = _do(item.get("do"))
        facts = self._facts(item.get("facts"))
        reason = text_of(item.get("reason"), REASON_CHARS)
        if has_controls(reason) or has_machinery(reason):
            reason = ""
        if do == "none":
            return Action("none", facts, reason=reason)
        if not facts:
            raise _Bad("cites no fact")
        place = None if do == "create" else self._observation(item.get("observation"))
        observation = None if place is None else self.batch.observations[place]
        cited = [self.batch.facts[fact] for fact in facts]
        since = self._time(item.get("from"), cited, observation)
        until = self._time(item.get("until"), cited, observation)
        if do == "end":
            assert observation is not None
            return Action(
                "end", facts, place, until=_end(observation, cited, until, self._subject),
                reason=reason,
            )  # fmt: skip
        text = self._text(item.get("text"), cited, observation)
        if since is not None and until is not None and until <= since:
            until = None
        return Action(do, facts, place, text, since, until, reason)

    def _facts(self, given: Any) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for handle in list_of(given):
            place = _place(handle, "F", len(self.batch.facts))
            if place is None:
                raise _Bad(f"cites {str(handle)[:20]!r}, which was not shown")
            found[place] = None
        return tuple(found)

    def _observation(self, given: Any) -> int:
        place = _place(given, "O", len(self.batch.observations))
        if place is None:
            raise _Bad(f"is about the observation {str(given)[:20]!r}, which was not shown")
        return place

    def _text(self, given: Any, cited: Sequence[StoredMemory], former: Shown | None) -> str:
        if not isinstance(given, str):
            raise _Bad("has no text")
        if has_controls(given):
            raise _Bad("has control characters in its text")
        text = " ".join(text_of(given, len(given)).split())
        if not re.search(r"\w", text):
            raise _Bad("has no text")
        if len(text) > TEXT_CHARS:
            raise _Bad(f"has a text of more than {TEXT_CHARS} characters")
        before = "" if former is None else former.stored.fact.text
        sources = [*_said(cited), *([before] if before else [])]
        if has_machinery(text, sources):
            raise _Bad("has handles or ids in its text")
        if same_text(text, before):
            return before
        self._check_script(text, sources)
        self._check_numbers(text, cited, former, sources)
        self._check_names(text, sources)
        if former is not None:
            self._check_older(text, cited, former)
        return text

    def _check_script(self, text: str, sources: Sequence[str]) -> None:
        if self.translated:
            return
        own, known = main_script(text), scripts(sources)
        if own and known and own not in known:
            raise _Bad(f"is written in {own}, which its facts are not", invented=True)

    def _check_numbers(
        self, text: str, cited: Sequence[StoredMemory], former: Shown | None, sources: Sequence[str]
    ) -> None:
        dates = [d for one in cited for d in _dates(one)]
        if former is not None:
            dates += [*_dates(former.stored), former.stored.fact.valid_until]
        wrong = invented_numbers(text, sources, dates=dates)
        for anchor in {one.fact.mentioned_at for one in cited if wrong} - {None}:
            wrong &= invented_numbers(text, sources, reference_time=anchor, dates=dates)
        if wrong:
            raise _Bad(f"says {min(wrong)}, which its facts do not", invented=True)

    def _check_names(self, text: str, sources: Sequence[str]) -> None:
        entities = self.batch.bank.entities
        held = "\n".join(sources)
        known = set(entities.find(held).tolist())
        for number in entities.find(text).tolist():
            name = entities.name[number]
            if number not in known and not names_in(held, [name]):
                raise _Bad(f"names {name[:60]!r}, which its facts do not", invented=True)
        # Who is not known to the bank yet. A lone word that begins a sentence may be no name.
        for name in naming.names(text):
            if not names_in(held, name.split()):
                raise _Bad(f"names {name[:60]!r}, which its facts do not", invented=True)

    def _check_older(self, text: str, cited: Sequence[StoredMemory], former: Shown) -> None:
        """News of an earlier time may add to what an observation says, but take nothing away that
        they do not name themselves, as a correction does."""
        newest, news = known_at(former), latest(cited)
        if newest is None or news is None or news.date() >= newest.date():
            return
        find, held = self.batch.bank.entities.find, "\n".join([text, *_said(cited)])
        before = former.stored.fact.text
        lost = set(find(before).tolist()) - set(find(held).tolist())
        if lost or numbers(before) - numbers(held):
            raise _Bad("lets news of an earlier time take the place of what is known of a later")

    def _subject(self, observation: Shown, cited: Sequence[StoredMemory]) -> bool:
        """Whether the facts name what the observation is about, as far as that can be told."""
        find = self.batch.bank.entities.find
        about = find(observation.stored.fact.text).tolist()
        named = set(find("\n".join(_said(cited))).tolist())
        named |= {number for one in cited for number, _ in one.named}
        return not about or not named or about[0] in named

    def _time(
        self, given: Any, cited: Sequence[StoredMemory], observation: Shown | None
    ) -> datetime | None:
        """A time that the cited facts (or what the observation was made from) mean; else None."""
        if not isinstance(given, str) or not given.strip():
            return None
        try:
            moment = parse_time(given, "from")
        except InvalidInput:
            return None
        known = [d for one in cited for d in _dates(one)]
        if observation is not None:
            fact = observation.stored.fact
            known += [*_dates(observation.stored), fact.valid_until]
        for one in known:
            if one is not None and one.date() == moment.date():
                return one
        for stored in cited:
            spans = self._spans.get(stored.fact.id)
            if spans is None:
                spans = self._spans[stored.fact.id] = _windows(stored)
            for start, end in spans:
                if start <= moment <= end:
                    return start
        return None


def _contradicted(action: Action, ended: Iterable[Action]) -> bool:
    """Whether an update rests on what also says that its observation is over: what is over keeps
    the text of the time when it held."""
    return action.do == "update" and any(
        action.observation == end.observation and set(action.facts) & set(end.facts)
        for end in ended
    )


def _do(given: Any) -> Do:
    for do in get_args(Do):
        if given == do:
            known: Do = do
            return known
    raise _Bad(f"would {str(given)[:20]!r}, which is none of create, update, end, none")


def _place(handle: Any, letter: str, count: int) -> int | None:
    match = _HANDLE.fullmatch(handle.strip()) if isinstance(handle, str) else None
    if match is None or match[1].upper() != letter or not 1 <= int(match[2]) <= count:
        return None
    return int(match[2]) - 1


def _said(cited: Iterable[StoredMemory]) -> list[str]:
    """All that the facts say: their texts, contexts, and the names that go with them."""
    return [
        part
        for one in cited
        for part in (one.fact.text, one.fact.context, *(name for _, name in one.named))
        if part
    ]


def _dates(stored: StoredMemory) -> list[datetime | None]:
    fact = stored.fact
    return [fact.occurred_start, fact.occurred_end, fact.mentioned_at, fact.valid_from]


def _windows(stored: StoredMemory) -> list[tuple[datetime, datetime]]:
    """The spans of time of a fact: its own, and those that its words mean."""
    fact = stored.fact
    start, end = fact.occurred_start, fact.occurred_end
    own = [] if start is None or end is None else [(start, end)]
    found = (
        timex.explicit_dates(fact.text, datetime.now(UTC))
        if fact.mentioned_at is None
        else timex.find(fact.text, fact.mentioned_at)
    )
    return own + [
        (one.window.start, one.window.end)
        for one in found
        if one.window.start is not None and one.window.end is not None
    ]


def latest(stored: Iterable[StoredMemory]) -> datetime | None:
    """When the newest of these facts happened, else was said."""
    moments = [
        moment
        for one in stored
        if (moment := one.fact.occurred_end or one.fact.occurred_start or one.fact.mentioned_at)
    ]
    return max(moments, default=None)


def known_at(shown: Shown) -> datetime | None:
    """The time of the newest that an observation rests on."""
    fact = shown.stored.fact
    moments = [source.when for source in shown.sources]
    moments += [fact.valid_from, fact.occurred_start or fact.mentioned_at]
    return max((moment for moment in moments if moment is not None), default=None)


def same_text(first: str, second: str) -> bool:
    """Whether two texts differ in nothing that a reader sees, but for case and a full stop."""
    return reading(first) == reading(second)


def reading(text: str) -> str:
    """What a reader sees of a text, but for case and a full stop."""
    return " ".join(fold(text).split()).rstrip(".!。 ")


def _end(
    observation: Shown,
    cited: Sequence[StoredMemory],
    until: datetime | None,
    subject: Callable[[Shown, Sequence[StoredMemory]], bool],
) -> datetime:
    """When the state is over: as said, else when the facts happened. Only a later event of the same
    subject ends a state."""
    if not subject(observation, cited):
        raise _Bad("ends an observation about something else than its facts")
    news = latest(cited)
    moment = until or news
    begun = known_at(observation)
    if moment is None or news is None:
        raise _Bad("ends a state without a time")
    if begun is not None and min(moment, news).date() < begun.date():
        raise _Bad("ends a state by what happened before it")
    return moment


def _paired(good: Sequence[Action], batch: Batch) -> tuple[Action, ...]:
    """The actions, where an end is joined to what says what holds since: they share a fact."""
    actions = list(good)
    for place, action in enumerate(actions):
        shared = [len(set(other.facts) & set(action.facts)) for other in actions]
        partners = [
            (count, -at)
            for at, (other, count) in enumerate(zip(actions, shared, strict=True))
            if count
            and other.do in ("create", "update")
            and other.observation != action.observation
        ]
        if action.do != "end" or not partners or action.observation is None:
            continue
        at = -max(partners)[1]
        other, moment = actions[at], action.until
        begun = known_at(batch.observations[action.observation])
        since = other.since
        if since and _dated(since, action, batch) and (begun is None or since >= begun):
            moment = since
        actions[place] = replace(action, partner=at, until=moment)
        if since is None and other.do == "create" and moment and _dated(moment, other, batch):
            until = other.until if other.until and other.until > moment else None
            actions[at] = replace(other, since=moment, until=until)
    return tuple(actions)


def _dated(moment: datetime, action: Action, batch: Batch) -> bool:
    """Whether a time is one of the facts that the action cites."""
    return any(moment in _dates(batch.facts[fact]) for fact in action.facts)
