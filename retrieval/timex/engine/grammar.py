"""The machine under all rules: tokens, rules as patterns over token kinds, and one reducing pass.

A rule's pattern is written in token kinds, for example "THE? PREV UNIT | THE? UNIT PREV". Kinds
become single private-use characters, patterns become regular expressions over them, and a text
becomes a string with one character a token; so the regular-expression engine does the searching,
over strings as short as the text has words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from typing import TypeAlias

from retrieval.timex.expression import Settings

KINDS: dict[str, str] = {}
_MACROS = {
    "UNIT": "UDAYS|UWEEK|UMONTH|UYEARS|UQUARTER|UHALF|UWEEKEND|UDECADE|UCENTURY|UWORK|UFORTNIGHT",
    "UWORK": "UWORKDAY|UWORKWEEK",
    "UTIME": "UHOUR|UMINUTE|USECOND",
    "UDAYS": "UDAY|MDAY",
    "UYEARS": "UYEAR|YMARK",
    "MON": "MONTH|WMONTH",
    "WEEKDAY": "DAY|WDAY|DAYS",
    "MOD": "PREV|THIS|NEXT",
    "SEP": "COMMA|DASH|SLASH|DOT",
    "COUNT": "NUM|YEAR|A|FEW|COUPLE",
    "DOM": "ORD|NUM",
    "LINK": "OF|IN|COMMA|DASH|SLASH|DOT|THE|LOC",
}

# Words that are two things at once, such as French "de" (of, from): a kind of their own, which
# patterns take for either.
COMPOSITES = (
    "A NUM", "A APPROX", "FEW APPROX", "APPROX NEAR", "REL BESIDE",
    "AFTER PRELATER", "AGO BEFORE", "AGO PAST PBEFORE", "AGO PBEFORE PREV", "AGO SINCE",
    "BETWEEN PBETWEEN", "BETWEEN PRELATER", "COMING LATER", "COMING LATER PAFTER", "FROM PSINCE",
    "FROM SINCE", "FROM STARTING", "HALFWORD MID", "IN ON", "IN PRELATER", "IN TO", "IN UYEAR",
    "LATE AGO SINCE", "LATER AFTER", "LATER LATERIN", "LATER LATERIN PAFTER", "LATER LOC",
    "LATER PRELATER", "NEXT COMING", "NUM MONTH", "OF DECS", "OF FROM", "OF IN", "OF ON",
    "OF THE", "ON BEFORE", "ON ONWARD", "ON TO", "ORD AGO", "ORD AGO PBEFORE", "ORD BEFORE AGO",
    "ORD EARLY", "PAFTER LATER", "PAFTER NEXT", "PART EARLY", "PAST AGO", "PAST RECENT",
    "PBEFORE AGO", "PBEFORE PREV", "PBETWEEN MID", "PREAGO BEFORE", "PREAGO SINCE",
    "PRELATER WITHIN", "PREV AGO", "PREV LASTORD", "PREV PAST", "PREV PAST PBEFORE",
    "PSINCE PSTARTING", "PSINCE PSTARTING TO", "PSINCE PSTARTING TO FROM", "SEASON LONESEASON",
    "THE TO", "THIS NOW", "TO BEFORE", "TO FROM", "TO PSINCE FROM", "TO PUNTIL", "TO UNTIL",
    "TO UNTIL ON", "UDAY ON", "UHOUR NOW",
)  # fmt: skip

Value: TypeAlias = "int | float | str | Span | None"


def kind_of(name: str) -> str:
    """The character that stands for a kind of token."""
    if name not in KINDS:
        KINDS[name] = chr(0xE000 + len(KINDS))
    return KINDS[name]


OTHER = kind_of("X")
_SEPT = kind_of("NUM MONTH")  # French "sept": seven, and the month that was the seventh in Rome


_MOST = 6
"""How often a pattern's `*` and `+` repeat: more words than people put between two parts of a date,
and few enough that no text makes a rule look far from every place of it."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    def one(match: re.Match[str]) -> str:
        return "[" + "".join(sorted(chars_of(match.group()))) + "]"

    bounded = pattern.replace("*", f"{{0,{_MOST}}}").replace("+", f"{{1,{_MOST}}}")
    bare = re.sub(r"[A-Z]+", one, bounded)
    return re.compile(re.sub(r"\s+", "", bare).replace("(", "(?:").replace("(?:?", "(?"))


@cache
def chars_of(name: str) -> frozenset[str]:
    """All characters that a kind or a group of kinds in a pattern stands for."""
    if name in _MACROS:
        return frozenset().union(*(chars_of(part) for part in _MACROS[name].split("|")))
    composites = (kind_of(c) for c in COMPOSITES if name in c.split())
    return frozenset({kind_of(name), *composites})


def any_of(names: str) -> frozenset[str]:
    """All characters of several kinds, whose names are divided by spaces."""
    return frozenset().union(*map(chars_of, names.split()))


COUNTED = any_of("UNIT WEEKDAY")
"""What numbers and orders count."""


def composite(first: str, second: str) -> str | None:
    """The kind that is both kinds, if there is one."""
    names = {c: n for n, c in KINDS.items()}
    wanted = {*names[first].split(), *names[second].split()}
    for declared in COMPOSITES:
        if set(declared.split()) == wanted:
            return kind_of(declared)
    return None


@dataclass(frozen=True, slots=True)
class Span:
    """Days that an expression names; None leaves a side open.

    month, day, weekday: set where the year (or everything but the weekday) was assumed, so that a
    neighbour can still complete it. `part` is "early", "mid" or "late" where one was cut out of
    `whole`. `moments` are exact times where hours were named.
    """

    first: date | None
    last: date | None
    grain: str
    confidence: float = 1.0
    rule: str = ""
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    relative: bool = False
    explicit: bool = False
    part: str = ""
    whole: tuple[date, date] | None = None
    moments: tuple[datetime, datetime] | None = None
    event_year: Callable[[int], tuple[date, date]] | None = None
    void: bool = False


@dataclass(slots=True)
class Token:
    kind: str
    value: Value
    start: int
    end: int
    text: str = ""


def _never(place: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Context:
    """What every rule may look at: the reference time, in its own offset; how words are read."""

    now: datetime
    settings: Settings
    language: str = "en"
    day_first: bool = False
    options: frozenset[str] = field(default_factory=frozenset)
    text: str = ""
    is_capital: Callable[[int], bool] = _never
    """Whether the character at a place of what is read was a capital letter."""

    @property
    def today(self) -> date:
        return self.now.date()


Handler: TypeAlias = "Callable[[Context, Match], Span | None]"


class Match:
    """The tokens that a rule matched, with a look at what stands around them."""

    __slots__ = ("_end", "_start", "_text", "tokens")

    def __init__(self, text: Sequence[Token], start: int, end: int) -> None:
        self.tokens = text[start:end]
        self._text, self._start, self._end = text, start, end

    def back(self, steps: int = 1) -> Token | None:
        """The token this many places before the match."""
        at = self._start - steps
        return self._text[at] if at >= 0 else None

    @property
    def before(self) -> Token | None:
        return self.back()

    @property
    def after(self) -> Token | None:
        return self._text[self._end] if self._end < len(self._text) else None

    def ahead(self, steps: int) -> Token | None:
        """The token this many places after the match."""
        at = self._end + steps - 1
        return self._text[at] if at < len(self._text) else None

    def all(self, *kinds: str) -> list[Token]:
        wanted = frozenset().union(*map(chars_of, kinds))
        return [t for t in self.tokens if t.kind in wanted]

    def one(self, *kinds: str) -> Token | None:
        found = self.all(*kinds)
        return found[0] if found else None

    def number(self, *kinds: str) -> int:
        """The whole number that the first token of these kinds carries."""
        token = self.one(*kinds)
        if token is None or not isinstance(token.value, int | float | str):
            raise LookupError(kinds)
        if token.kind == _SEPT and "MON" in kinds:
            return int(token.value) + 2
        return int(token.value)

    def word(self, *kinds: str) -> str:
        token = self.one(*kinds)
        if token is None:
            raise LookupError(kinds)
        return str(token.value)

    def has(self, *kinds: str) -> bool:
        return bool(self.all(*kinds))

    def spans(self) -> list[Span]:
        return [t.value for t in self.tokens if isinstance(t.value, Span)]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    pattern: re.Pattern[str]
    handler: Handler


class Rules:
    """An ordered list of rules; at one place in the text the first that applies wins."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._any: re.Pattern[str] | None = None

    def __call__(self, name: str, pattern: str) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            # Stacked decorators run bottom-up; the rules are tried as they read, top down.
            at = len(self._rules)
            while at and self._rules[at - 1].handler is handler:
                at -= 1
            self._rules.insert(at, Rule(name, compile_pattern(pattern), handler))
            return handler

        return register

    def reduce(self, context: Context, tokens: list[Token]) -> list[Token]:
        """The tokens with every match, left to right, put together as one DATE token."""
        if self._any is None:
            self._any = re.compile("|".join(f"(?:{r.pattern.pattern})" for r in self._rules))
        kinds = "".join(t.kind for t in tokens)
        reduced: list[Token] = []
        position = done = 0
        while (hit := self._any.search(kinds, position)) is not None:
            at = hit.start()
            made = self._apply(context, tokens, kinds, at)
            if made is None:
                position = at + 1
                continue
            token, end = made
            reduced.extend(tokens[done:at])
            reduced.append(token)
            position = done = end
        reduced.extend(tokens[done:])
        return reduced

    def _apply(
        self, context: Context, tokens: list[Token], kinds: str, at: int
    ) -> tuple[Token, int] | None:
        for rule in self._rules:
            hit = rule.pattern.match(kinds, at)
            if hit is None or hit.end() == at:
                continue
            end = hit.end()
            match = Match(tokens, at, end)
            try:
                span = rule.handler(context, match)
            except (OverflowError, LookupError, ValueError):
                span = None
            if span is not None:
                if not span.rule:
                    span = named(span, rule.name)
                return Token(DATE, span, tokens[at].start, tokens[end - 1].end), end
        return None


def named(span: Span, rule: str) -> Span:
    return change(span, rule=rule)


def change(span: Span, **changes: object) -> Span:
    """A copy of the span with some fields other."""
    return replace(span, **changes)  # type: ignore[arg-type]


DATE = kind_of("DATE")
