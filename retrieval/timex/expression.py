"""What the analyser takes and gives: settings, and the expression it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retrieval.types import Window

Relation = Literal["before", "after", "during", "since", "until"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How ambiguous words are read.

    hemisphere: where seasons are meant; `south` moves each by six months.
    fiscal_year_start_month: 1-12. A fiscal year bears the number of the year in which it ends.
    day_first: how 3/7/2017 is read; None leaves it to the language (English: month first).
    region: "GB" and the like: English of a region that writes the day first.
    names: words that are somebody's name here, unless something beside them makes them a time.
    fallback: ask `dateparser` where the text has date words of a language without a grammar.
    """

    hemisphere: Literal["north", "south"] = "north"
    fiscal_year_start_month: int = 1
    day_first: bool | None = None
    region: str | None = None
    fallback: bool = True
    names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.hemisphere not in ("north", "south"):
            raise ValueError(f"hemisphere must be 'north' or 'south', not {self.hemisphere!r}")
        if not 1 <= self.fiscal_year_start_month <= 12:
            raise ValueError("fiscal_year_start_month must be 1-12")


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """One expression of time in a text.

    window: aware, in UTC, both bounds inside; None on a side that is open.
    start, end: the characters [start, end) of the given text that say it; `text` is those.
    rule: the name of the rule that read it, for traces.
    confidence: 0-1; 1 for an explicit date, less the more was assumed.
    granularity: the finest unit that was named: hour, day, week, month, quarter, year ...
    explicit: named in full, year and all, so that the reference time does not matter.
    maybe_name: one word with nothing beside it that makes it a time; where somebody is known who is
        called so, it is a name.
    """

    window: Window
    start: int
    end: int
    text: str
    rule: str
    confidence: float
    granularity: str
    explicit: bool = False
    maybe_name: bool = False


@dataclass(frozen=True, slots=True)
class EventReference:
    """A time given by an event instead of a date: "before Alice joined Google".

    start, end: the characters [start, end) of the text that are the event; `phrase` is those.
    """

    relation: Relation
    phrase: str
    start: int
    end: int
