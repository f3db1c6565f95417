"""A metadata filter in a request: its form, and how much of it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from retrieval.store.edge import clean
from retrieval.store.metadata import OPERATORS, cut_off

MAX_KEYS = 64
MAX_OPERANDS = 2_000
"""Operands of one filter, those of `in` each counted."""
MAX_TEXT = 65_536
"""Characters of all keys and operands."""

_RANGES = ("gte", "gt", "lte", "lt")


def _predicates(value: Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
    """Key to predicate, a bare value made one. ValueError names the key and what would be right."""
    if len(value) > MAX_KEYS:
        raise ValueError(f"{len(value)} keys are too many: give {MAX_KEYS} at most")
    found = {clean(key): _predicate(key, wanted) for key, wanted in value.items()}
    operands = characters = 0
    for key, predicate in found.items():
        characters += len(key)
        for operand in _operands(predicate.values()):
            operands += 1
            characters += len(operand) if isinstance(operand, str) else 0
    if operands > MAX_OPERANDS:
        raise ValueError(f"{operands} operands are too many: give {MAX_OPERANDS} at most")
    if characters > MAX_TEXT:
        raise ValueError(f"{characters} characters are too many: give {MAX_TEXT} at most")
    return found


def _predicate(key: str, wanted: Any) -> dict[str, Any]:
    name = repr(key[:60])
    if not isinstance(wanted, dict):
        return {"eq": _operand(name, wanted)}
    if not wanted or not wanted.keys() <= set(OPERATORS):
        raise ValueError(f"{name}: give a value, or an object of {', '.join(OPERATORS)}")
    return {operator: _checked(name, operator, operand) for operator, operand in wanted.items()}


def _checked(name: str, operator: str, operand: Any) -> Any:
    where = f"{name}, {operator}"
    if operator == "exists":
        if not isinstance(operand, bool):
            raise ValueError(f"{where}: give true or false")
        return operand
    if operator == "in":
        if not isinstance(operand, list):
            raise ValueError(f"{where}: give a list of values")
        if len(operand) > MAX_OPERANDS:
            raise ValueError(f"{where}: {len(operand)} operands, {MAX_OPERANDS} are allowed")
        return [_operand(where, one) for one in operand]
    if operator in _RANGES and (operand is None or isinstance(operand, bool)):
        raise ValueError(f"{where}: give a text, a time or a number")
    return _operand(where, operand)


def _operand(where: str, value: Any) -> str | int | float | bool | None:
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        if cut_off(value):
            raise ValueError(f"{where}: numbers of so many digits are not exact: give it as a text")
        return value
    raise ValueError(f"{where}: a value is a text, a finite number, true, false or null")


def _operands(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


Predicates = Annotated[
    dict[str, Any],
    AfterValidator(_predicates),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
"""Key to predicate, as `retrieval.types.Filters.metadata`."""
