"""Metadata filters: the table of the documentation, and a slower reading of it as the oracle."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.store.metadata import compiled, holds

pytestmark = pytest.mark.unit


def passes(stored: str | None, predicate: dict[str, Any]) -> bool:
    return holds(compiled({"k": predicate}), {} if stored is None else {"k": stored})


SAME = [
    ("1180934561231233026", "1180934561231233026"),
    ("01234", "01234"),
    ("", ""),
    ("Ä", "Ä"),
    ("3", 3),
    ("3", 3.0),
    ("3.0", 3),
    ("1.10", 1.1),
    ("1e3", 1000),
    ("1E+3", 1000),
    ("-0", 0),
    ("0.1", 0.1),
    ("12345678901234567890123", 12345678901234567890123),
    ("1e+22", 1e22),
    ("true", True),
    ("false", False),
    ("true", "true"),
    (None, None),
    ("2024-05-01T10:00:00Z", "2024-05-01T12:00:00+02:00"),
    ("2024-05-01T10:00:00", "2024-05-01T10:00:00.000Z"),
    ("2024-05-01", "2024-05-01T00:00:00Z"),
    ("2024-05-01 10:00", "2024-05-01T10:00:00z"),
    ("2024-05-01T10:00:00+0530", "2024-05-01T04:30:00Z"),
    ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00+14"),
]
DIFFERENT = [
    ("1180934561231233025", "1180934561231233026"),
    ("1234", "01234"),
    ("1.1", "1.10"),
    ("34e9999", "12e4567"),
    ("1e400", "2e400"),
    ("3", "3.0"),
    ("1000", "1e3"),
    ("1_000", "1000"),
    ("١٢", "12"),
    (" 3", "3"),
    ("a", "A"),
    ("e\u0301", "\u00e9"),
    ("true", "True"),
    ("inf", "Infinity"),
    ("nan", "nan "),
    ("01234", 1234),
    ("+3", 3),
    ("3.", 3),
    (".5", 0.5),
    (" 3", 3),
    ("3\n", 3),
    ("٣", 3),
    ("0x10", 16),
    ("1_0", 10),
    ("12e4567", 5),
    ("9007199254740993", 9007199254740992),
    ("9007199254740993", 9007199254740992.0),
    ("0.30000000000000004", 0.3),
    ("nan", 0),
    ("1", True),
    ("0", False),
    ("True", True),
    ("true", 1),
    ("", False),
    ("", None),
    ("null", None),
    (None, ""),
    (None, 0),
    (None, False),
    ("2024-05-01T10:00:00.0000001Z", "2024-05-01T10:00:00Z"),
    ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00"),
    ("2024-02-30", "2024-03-01"),
    ("20240501", "2024-05-01"),
    ("2024-05-01T24:00:00Z", "2024-05-02T00:00:00Z"),
    ("2024-05-01T10:00:60Z", "2024-05-01T10:01:00Z"),
]


@pytest.mark.parametrize(("stored", "wanted"), SAME, ids=repr)
def test_equal(stored: str | None, wanted: Any) -> None:
    assert passes(stored, {"eq": wanted})
    assert passes(stored, {"in": ["another", wanted, 7, None]})


@pytest.mark.parametrize(("stored", "wanted"), DIFFERENT, ids=repr)
def test_not_equal(stored: str | None, wanted: Any) -> None:
    assert not passes(stored, {"eq": wanted})
    assert not passes(stored, {"in": ["another", wanted, 77.7]})


@pytest.mark.parametrize(
    ("stored", "predicate", "expected"),
    [
        ("10", {"gt": 9}, True),
        ("10", {"gt": "9"}, False),
        ("10", {"lt": "9"}, True),
        ("10", {"gte": 10, "lte": 10}, True),
        ("10", {"gt": 10}, False),
        ("9007199254740993", {"gt": 9007199254740992}, True),
        ("-1.5", {"lt": -1}, True),
        ("x", {"gte": 0}, False),
        ("x", {"lt": 0}, False),
        ("012", {"gte": 0}, False),
        ("12e4567", {"gte": 0}, False),
        ("b", {"gt": "a", "lt": "c"}, True),
        ("B", {"gt": "a"}, False),
        ("2024-05-01T01:00:00+02:00", {"lt": "2024-05-01T00:00:00Z"}, True),
        ("2024-05-01T01:00:00+02:00", {"gte": "2024-05-01"}, False),
        ("2024-04-30T23:00:00-02:00", {"gte": "2024-05-01"}, True),
        ("2024-05-01T00:00:00.5Z", {"gt": "2024-05-01T00:00:00.49Z"}, True),
        ("soon", {"gte": "2024-05-01"}, False),
        ("soon", {"lt": "2024-05-01"}, False),
        ("2024-05-01", {"gt": "2024"}, True),
        (None, {"lt": 5}, False),
        (None, {"gte": ""}, False),
        ("", {"gte": ""}, True),
        ("x", {"exists": True}, True),
        ("", {"exists": True}, True),
        (None, {"exists": True}, False),
        (None, {"exists": False}, True),
        ("x", {"exists": False}, False),
        ("x", {"in": []}, False),
        (None, {"in": []}, False),
        (None, {"in": ["x", None]}, True),
        (None, {"eq": None, "exists": False}, True),
        ("x", {"eq": "x", "exists": False}, False),
        ("x", {"eq": "x", "in": ["y"]}, False),
        ("x", {"eq": "x", "in": ["y", "x"]}, True),
    ],
)
def test_ranges_and_presence(stored: str | None, predicate: dict[str, Any], expected: bool) -> None:
    assert passes(stored, predicate) is expected


def test_every_key_must_hold() -> None:
    predicates = compiled({"a": {"eq": "1"}, "b": {"exists": False}})
    assert holds(predicates, {"a": "1"})
    assert not holds(predicates, {"a": "1", "b": "2"})
    assert not holds(predicates, None)
    assert holds((), None)


# The oracle: what the documentation says, by other means.

NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 1.1, 2**53, 2**53 + 1, 1e22, 5e-324]),
)
TIMES = st.builds(
    lambda moment, hours, spelling: spelling(moment.astimezone(timezone(timedelta(hours=hours)))),
    st.datetimes(datetime(2023, 12, 31), datetime(2024, 1, 2), timezones=st.just(UTC)),
    st.integers(-12, 14),
    st.sampled_from(
        [
            lambda moment: moment.isoformat(),
            lambda moment: moment.replace(minute=0, second=0, microsecond=0).isoformat(),
            lambda moment: moment.date().isoformat(),
            lambda moment: moment.astimezone(UTC).replace(tzinfo=None).isoformat(" "),
        ]
    ),
)
TEXTS = st.one_of(
    st.sampled_from(["", "x", "01", "1.10", "1.1", "+1", "true", "null", "12e4567", "NaN", "1e3"]),
    st.text("0123456789-+.eE ", max_size=5),
    NUMBERS.map(str),
    NUMBERS.map(json.dumps),
    TIMES,
)
OPERANDS = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none())
RANGED = st.one_of(TEXTS, NUMBERS)
PREDICATES = st.fixed_dictionaries(
    {},
    optional={
        "eq": OPERANDS,
        "in": st.lists(OPERANDS, max_size=4),
        "gt": RANGED,
        "gte": RANGED,
        "lt": RANGED,
        "lte": RANGED,
        "exists": st.booleans(),
    },
)


def read_number(text: str) -> Fraction | None:
    try:
        found = json.loads(text, parse_float=Fraction, parse_constant=lambda _: None)
    except ValueError:
        return None
    if text != text.strip() or isinstance(found, bool) or not isinstance(found, int | Fraction):
        return None
    exponent = text.lower().partition("e")[2]
    return Fraction(found) if abs(int(exponent or 0)) <= 308 else None


def read_time(text: str) -> tuple[datetime, Fraction] | None:
    """The whole second, and the rest of it."""
    if len(text) < 10 or text[4:8:3] != "--":
        return None
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        found = datetime.fromisoformat((whole + rest[len(digits) :]).upper())
    except ValueError:
        return None
    if dot and not digits:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return found, Fraction(int(digits or 0), 10 ** len(digits))


def order(stored: str, wanted: Any, equality: bool) -> int | None:
    left: Any
    right: Any
    if isinstance(wanted, bool):
        left, right = stored, json.dumps(wanted)
    elif isinstance(wanted, int | float):
        left, right = read_number(stored), Fraction(json.dumps(wanted))
    elif read_time(wanted) is not None and not (equality and read_time(stored) is None):
        left, right = read_time(stored), read_time(wanted)
    else:
        left, right = stored, wanted
    return None if left is None else int(left > right) - int(left < right)


def oracle(stored: str | None, predicate: dict[str, Any]) -> bool:
    def equal(wanted: Any) -> bool:
        if stored is None or wanted is None:
            return stored is wanted
        return order(stored, wanted, True) == 0

    for name, wanted in predicate.items():
        if name == "exists":
            good = (stored is not None) == wanted
        elif name == "eq":
            good = equal(wanted)
        elif name == "in":
            good = any(map(equal, wanted))
        elif stored is None or (side := order(stored, wanted, False)) is None:
            good = False
        else:
            good = side in {"gt": (1,), "gte": (0, 1), "lt": (-1,), "lte": (-1, 0)}[name]
        if not good:
            return False
    return True


@given(st.one_of(TEXTS, st.none()), PREDICATES)
def test_as_the_oracle(stored: str | None, predicate: dict[str, Any]) -> None:
    assert passes(stored, predicate) == oracle(stored, predicate)
