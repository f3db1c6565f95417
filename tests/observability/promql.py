"""The part of PromQL that our rules and dashboard are written in: parsed and evaluated.

Vectors of one moment, from series that are functions of time: rate, sum/max by, histogram_quantile,
scalar, arithmetic, comparison and `and`. What is not understood is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Series: TypeAlias = Mapping[tuple[str, Labels], Callable[[float], float]]
"""A counter or gauge at a time in seconds, by name and labels."""

_TOKEN = re.compile(
    r'\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_:]\w*)|(?P<text>"[^"]*")'
    r"|(?P<sign>=~|!=|>=|<=|==|[-+*/><(){}\[\],=]))"
)
_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


@dataclass(frozen=True, slots=True)
class Selector:
    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def at(self, series: Series, time: float) -> Vector:
        return {
            labels: value(time)
            for (name, labels), value in series.items()
            if name == self.name and self._fits(dict(labels))
        }

    def _fits(self, labels: dict[str, str]) -> bool:
        return all(
            re.fullmatch(wanted, labels.get(label, "")) is not None
            if sign == "=~"
            else (labels.get(label, "") == wanted) == (sign == "=")
            for label, sign, wanted in self.matchers
        )


def tokens(text: str) -> list[str]:
    found, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"not understood: {text[place:]!r}")
        found.append(match.group().strip())
        place = match.end()
    return found


Value: TypeAlias = "Vector | float"
Evaluated: TypeAlias = Callable[[Series, float], Value]


class Parser:
    """A query as a function of series and time; `selectors` are those that it reads."""

    def __init__(self, text: str) -> None:
        self._tokens = [*tokens(text), ""]
        self._place = 0
        self.selectors: list[Selector] = []
        self.query = self._both()
        if self._tokens[self._place]:
            raise ValueError(f"not understood: {self._tokens[self._place :]}")

    def _next(self, *wanted: str) -> str | None:
        token = self._tokens[self._place]
        if wanted and token not in wanted:
            return None
        self._place += 1
        return token

    def _need(self, token: str) -> None:
        if self._next(token) is None:
            raise ValueError(f"{token} is missing before {self._tokens[self._place :]}")

    def _both(self) -> Evaluated:
        left = self._compared()
        while self._next("and"):
            left = _and(left, self._compared())
        return left

    def _compared(self) -> Evaluated:
        left = self._sums()
        if sign := self._next(">", "<", ">=", "<=", "=="):
            return _binary(left, sign, self._sums(), keeps=True)
        return left

    def _sums(self) -> Evaluated:
        left = self._products()
        while sign := self._next("+", "-"):
            left = _binary(left, sign, self._products())
        return left

    def _products(self) -> Evaluated:
        left = self._atom()
        while sign := self._next("*", "/"):
            left = _binary(left, sign, self._atom())
        return left

    def _atom(self) -> Evaluated:
        token = self._next()
        assert token is not None
        if token == "(":
            inner = self._both()
            self._need(")")
            return inner
        if token[0].isdigit():
            number = float(token)
            return lambda _series, _time: number
        if token in _AGGREGATES:
            return self._aggregate(token)
        if token == "rate":
            self._need("(")
            selector = self._selector(str(self._next()))
            seconds = self._range()
            self._need(")")
            return _rate(selector, seconds)
        if token == "scalar":
            self._need("(")
            inner = self._both()
            self._need(")")
            return _scalar(inner)
        if token == "histogram_quantile":
            self._need("(")
            quantile = float(str(self._next()))
            self._need(",")
            inner = self._both()
            self._need(")")
            return _quantile(quantile, inner)
        return self._selector(token).at

    def _aggregate(self, name: str) -> Evaluated:
        by: tuple[str, ...] = ()
        if self._next("by"):
            by = self._names()
        self._need("(")
        inner = self._both()
        self._need(")")

        def evaluate(series: Series, time: float) -> Value:
            groups: dict[Labels, list[float]] = {}
            for labels, value in _vector(inner(series, time)).items():
                kept = frozenset(each for each in labels if each[0] in by)
                groups.setdefault(kept, []).append(value)
            return {labels: float(_AGGREGATES[name](v)) for labels, v in groups.items()}

        return evaluate

    def _names(self) -> tuple[str, ...]:
        self._need("(")
        names = [str(self._next())]
        while self._next(","):
            names.append(str(self._next()))
        self._need(")")
        return tuple(names)

    def _selector(self, name: str) -> Selector:
        if not re.fullmatch(r"[a-zA-Z_:]\w*", name):
            raise ValueError(f"{name!r} is no metric")
        matchers = []
        if self._next("{"):
            while not self._next("}"):
                label, sign, text = str(self._next()), str(self._next()), str(self._next())
                matchers.append((label, sign, text.strip('"')))
                self._next(",")
        selector = Selector(name, tuple(matchers))
        self.selectors.append(selector)
        return selector

    def _range(self) -> float:
        self._need("[")
        number, unit = str(self._next()), str(self._next())
        self._need("]")
        return float(number) * {"s": 1.0, "m": 60.0, "h": 3600.0}[unit]


def _vector(value: Value) -> Vector:
    return value if isinstance(value, dict) else {frozenset(): value}


def _rate(selector: Selector, seconds: float) -> Evaluated:
    def evaluate(series: Series, time: float) -> Value:
        now, before = selector.at(series, time), selector.at(series, time - seconds)
        return {labels: (value - before[labels]) / seconds for labels, value in now.items()}

    return evaluate


def _scalar(inner: Evaluated) -> Evaluated:
    def evaluate(series: Series, time: float) -> Value:
        found = _vector(inner(series, time))
        return next(iter(found.values())) if len(found) == 1 else float("nan")

    return evaluate


def _and(left: Evaluated, right: Evaluated) -> Evaluated:
    def evaluate(series: Series, time: float) -> Value:
        there = _vector(right(series, time))
        return {k: v for k, v in _vector(left(series, time)).items() if k in there}

    return evaluate


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else float("nan"),
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
}


def _binary(left: Evaluated, sign: str, right: Evaluated, keeps: bool = False) -> Evaluated:
    """`keeps`: a comparison, which leaves those elements of the left side that it holds for."""
    work = _OPERATIONS[sign]

    def evaluate(series: Series, time: float) -> Value:
        a, b = left(series, time), right(series, time)
        if not isinstance(a, dict) and not isinstance(b, dict):
            return float(work(a, b))
        if isinstance(b, dict):
            pairs = {k: (v, b[k]) for k, v in _vector(a).items() if k in b}
        else:
            pairs = {k: (v, b) for k, v in _vector(a).items()}
        if keeps:
            return {k: x for k, (x, y) in pairs.items() if work(x, y)}
        return {k: float(work(x, y)) for k, (x, y) in pairs.items()}

    return evaluate


def _quantile(quantile: float, inner: Evaluated) -> Evaluated:
    def evaluate(series: Series, time: float) -> Value:
        groups: dict[Labels, list[tuple[float, float]]] = {}
        for labels, value in _vector(inner(series, time)).items():
            edge = float(dict(labels)["le"])
            rest = frozenset(each for each in labels if each[0] != "le")
            groups.setdefault(rest, []).append((edge, value))
        return {k: found for k, v in groups.items() if (found := _at(quantile, sorted(v))) >= 0}

    return evaluate


def _at(quantile: float, buckets: list[tuple[float, float]]) -> float:
    total = buckets[-1][1]
    if total <= 0:
        return -1.0
    below, last = 0.0, 0.0
    for edge, count in buckets:
        if count >= quantile * total:
            if edge == float("inf"):
                return last
            share = (quantile * total - below) / (count - below)
            return last + (edge - last) * share
        below, last = count, edge
    raise AssertionError("buckets do not add up")
