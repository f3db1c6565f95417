"""Metadata filters: when a stored value satisfies a predicate.

Stored values are texts; what was written as a number or a truth value is held as JSON writes it,
and null is not held at all. A predicate's operand decides how a value is read:

    text      equal letter by letter, or as instants where both are ISO 8601 times; in ranges as
              instants where the operand is a time (other values then fail), else by code point
    number    only values that are JSON numbers, compared exactly, without any rounding
    boolean   the texts "true" and "false"
    null      a key that is not there

A time is a date, or a date and a time of day, with any offset; without one it is UTC. An absent key
satisfies nothing but null and {"exists": false}. Pure; safe on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

Test: TypeAlias = Callable[[str | None], bool]
Instant: TypeAlias = tuple[int, str]
"""Seconds since the first day, and the digits of the fraction without trailing zeros: exact, and
ordered as the times are."""

OPERATORS = ("eq", "in", "gte", "gt", "lte", "lt", "exists")

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE]([+-]?[0-9]{1,3}))?")
_LARGEST_EXPONENT = 308
"""That of a double: what looks like a number beyond it is a hash or a code."""

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d+))?)?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):?([0-5]\d)?)?)?",
    re.ASCII,
)
_RANGES: Mapping[str, Callable[[Any, Any], bool]] = {"gte": ge, "gt": gt, "lte": le, "lt": lt}


_WHOLE = 2.0**63
_ROUND_DIGITS = 12
"""A measure of that size has no more. An id of twenty digits looks as if it had no more in one of
six thousand cases, when it is read as a double."""


def cut_off(value: float) -> bool:
    """Whether digits of a number may be lost: JSON readers make doubles of whole numbers beyond 64
    bits, so that an id of twenty digits would become another's."""
    digits = repr(value).partition("e")[0].strip("-").replace(".", "").rstrip("0")
    return isinstance(value, float) and abs(value) >= _WHOLE and len(digits) > _ROUND_DIGITS


def number(text: str) -> Decimal | None:
    """The number that `text` is in JSON; None where it is none."""
    found = _NUMBER.fullmatch(text)
    if found is None or abs(int(found[1] or 0)) > _LARGEST_EXPONENT:
        return None
    return Decimal(text)


def instant(text: str) -> Instant | None:
    """The instant that `text` names; None where it is no ISO 8601 date or date-time."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, hour, minute, second, fraction, sign, ahead, ahead_minute = found.groups()
    try:
        days = date.fromisoformat(day).toordinal()
    except ValueError:  # no day of the calendar
        return None
    seconds = (days * 24 + int(hour or 0)) * 3600 + int(minute or 0) * 60 + int(second or 0)
    if sign is not None:
        offset = int(ahead) * 3600 + int(ahead_minute or 0) * 60
        seconds -= offset if sign == "+" else -offset
    return seconds, (fraction or "").rstrip("0")


@dataclass(frozen=True, slots=True)
class Predicate:
    """What the value of one key must satisfy.

    `texts`: where not None, nothing but these texts can (what a database may look for first);
    `absent`: whether a key that is not there does.
    """

    key: str
    tests: tuple[Test, ...]
    texts: frozenset[str] | None
    absent: bool

    def holds(self, value: str | None) -> bool:
        return all(test(value) for test in self.tests)


def compiled(predicates: Mapping[str, Mapping[str, Any]]) -> tuple[Predicate, ...]:
    """`Filters.metadata`, read once for any number of memories."""
    return tuple(_predicate(key, tests) for key, tests in predicates.items())


def holds(predicates: Iterable[Predicate], metadata: Mapping[str, str] | None) -> bool:
    """Whether a memory with this metadata satisfies every predicate."""
    held = metadata or {}
    return all(one.holds(held.get(one.key)) for one in predicates)


def _predicate(key: str, wanted: Mapping[str, Any]) -> Predicate:
    tests: list[Test] = []
    texts: frozenset[str] | None = None
    for name, operand in wanted.items():
        if name == "exists":
            tests.append(_exists(bool(operand)))
        elif name in _RANGES:
            tests.append(_ranged(_RANGES[name], operand))
        else:
            test, plain = _among([operand] if name == "eq" else operand)
            tests.append(test)
            if plain is not None:
                texts = plain if texts is None else texts & plain
    return Predicate(key, tuple(tests), texts, all(test(None) for test in tests))


def _exists(wanted: bool) -> Test:
    return lambda value: (value is not None) is wanted


def _among(operands: Sequence[Any]) -> tuple[Test, frozenset[str] | None]:
    """The test for one of the operands, and its texts where nothing else can satisfy it."""
    texts: set[str] = set()
    numbers: set[Decimal] = set()
    instants: set[Instant] = set()
    absent = False
    for operand in operands:
        if operand is None:
            absent = True
        elif isinstance(operand, bool):
            texts.add(_truth(operand))
        elif isinstance(operand, str):
            texts.add(operand)
            if (moment := instant(operand)) is not None:
                instants.add(moment)
        else:
            numbers.add(_exact(operand))

    def test(value: str | None) -> bool:
        if value is None:
            return absent
        return (
            value in texts
            or (len(numbers) > 0 and number(value) in numbers)
            or (len(instants) > 0 and instant(value) in instants)
        )

    return test, None if absent or numbers or instants else frozenset(texts)


def _ranged(side: Callable[[Any, Any], bool], operand: Any) -> Test:
    read: Callable[[str], Any] = str
    wanted: Any = operand
    if not isinstance(operand, str):
        read, wanted = number, _exact(operand)
    elif (moment := instant(operand)) is not None:
        read, wanted = instant, moment

    def test(value: str | None) -> bool:
        found = None if value is None else read(value)
        return found is not None and side(found, wanted)

    return test


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _exact(value: float) -> Decimal:
    """A number of a request as it is written, not as its binary digits."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))
