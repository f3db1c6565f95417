"""Structured answers: which schemas may be asked for, and values that follow them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jsonschema
import regex
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError

from retrieval.llm.reading import NoJson, json_object

TYPES = ("string", "number", "integer", "boolean", "array", "object")
MOST_NODES = 2_000
"""Objects and lists of a schema, with its references written out."""
MOST_DEPTH = 32
PATTERN_S = 0.05
"""How long one pattern may look at one text."""


class ResponseSchema:
    """A schema whose references are written out. ValueError where it cannot be asked for."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if schema.get("type", "object") != "object":
            raise ValueError("response_schema: its type must be object")
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            raise ValueError("response_schema: it needs properties")
        self.schema: Mapping[str, Any] = {
            "type": "object",
            **{
                k: v for k, v in _Inlined(schema).value.items() if k not in ("$defs", "definitions")
            },
        }
        for name, property in self.schema["properties"].items():
            _check_type(name, property)
        try:
            Draft202012Validator.check_schema(self.schema)
        except SchemaError as error:
            raise ValueError(f"response_schema: {error.message[:300]}") from None
        except RecursionError:
            raise ValueError("response_schema: it is nested too deep") from None
        self._validator = _VALIDATOR(self.schema)

    def read(self, text: str, last: bool = True) -> dict[str, Any]:
        """The object in a model's answer. NoJson, which says what is wrong with it."""
        value = json_object(text)
        try:
            problems = sorted(self._validator.iter_errors(value), key=lambda one: len(one.path))
        except (TimeoutError, RecursionError):
            raise NoJson("the answer takes too long to check") from None
        if problems:
            raise NoJson("; ".join(_sentence(problem) for problem in problems[:5]))
        return value


def _check_type(name: str, property: Any) -> None:
    if property is True or property == {}:
        return
    kinds = property.get("type") if isinstance(property, Mapping) else None
    if (
        kinds is None
        and isinstance(property, Mapping)
        and {"anyOf", "enum", "const"} & set(property)
    ):
        return
    given = kinds if isinstance(kinds, list) else [kinds]
    if not given or not all(kind in (*TYPES, "null") for kind in given) or given == ["null"]:
        raise ValueError(
            f"response_schema: the type of {name[:60]!r} must be one of {', '.join(TYPES)}"
        )


class _Inlined:
    """A schema with references to its own parts in their places."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._nodes = 0
        self.value: dict[str, Any] = self._copied(schema, 0, ())

    def _copied(self, part: Any, depth: int, inside: tuple[str, ...]) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > MOST_DEPTH:
            raise ValueError(
                f"response_schema: at most {MOST_NODES} parts, {MOST_DEPTH} deep, references"
                " written out"
            )
        if isinstance(part, list):
            return [self._copied(one, depth + 1, inside) for one in part]
        if not isinstance(part, Mapping):
            return part
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in part:
                raise ValueError(f"response_schema: {key} cannot be used")
        rest = {
            key: self._copied(value, depth + 1, inside)
            for key, value in part.items()
            if key not in ("$ref", "$id", "$schema", "$defs", "definitions", "$anchor")
            or (key in ("$id", "$anchor") and not isinstance(value, str))
        }
        reference = part.get("$ref")
        if not isinstance(reference, str):
            return rest
        if not reference.startswith("#"):
            raise ValueError("response_schema: $ref may only lead to parts of the schema itself")
        if reference in inside:
            raise ValueError("response_schema: it may not contain itself")
        target = self._copied(self._target(reference), depth + 1, (*inside, reference))
        return {**target, **rest} if isinstance(target, dict) else target

    def _target(self, reference: str) -> Any:
        part: Any = self._root
        for name in reference[1:].strip("/").split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            if not name:
                continue
            if isinstance(part, list) and name.isdigit() and int(name) < len(part):
                part = part[int(name)]
            elif isinstance(part, Mapping) and name in part:
                part = part[name]
            else:
                raise ValueError(f"response_schema: {reference[:80]!r} leads nowhere")
        return part


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Any:
    """As jsonschema's own, within a time: a pattern is the caller's, a text the model's."""
    if isinstance(instance, str) and not regex.search(pattern, instance, timeout=PATTERN_S):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern[:80]!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Any:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for key, value in instance.items():
            if regex.search(pattern, key, timeout=PATTERN_S):
                yield from validator.descend(value, inner, path=key, schema_path=pattern)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    _VALIDATOR: Any = validators.extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {"pattern": _pattern, "patternProperties": _pattern_properties},
    )


def _sentence(problem: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in problem.absolute_path)
    said = problem.message if len(problem.message) <= 200 else f"{problem.message[:200]}…"
    return f"{where}: {said}" if where else said
