"""The tools that the model may call, and hard limits on every argument.

What is asked for beyond them is refused with a sentence. No tool takes a bank, tags, fact types or
a time: those are the run's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.llm.reading import NoJson, json_object

CALLS_A_TURN = 5
MOST_TOKENS = 8_000
MOST_QUERY = 500
MOST_IDS = 20
MOST_MODELS = 20
ARGUMENT_CHARS = 16_000
"""Longer arguments of a search are not even read."""
ANSWER_CHARS = 1_000_000

_LETTER = re.compile(r"[^\W_]")
_LONG = 120

Query = Annotated[str, Field(min_length=1, max_length=MOST_QUERY)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class BadCall(ValueError):
    """A call that is not made; str() says why, for the model."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    reason: Any = None
    """Why you call this."""


class SearchModels(_Arguments):
    """Search mental models: documents that were written about a subject beforehand."""

    query: Query
    """What to look for."""
    max_results: Annotated[int, Field(ge=1, le=MOST_MODELS)] = 5


class SearchObservations(_Arguments):
    """Search observations: what was concluded from many facts."""

    query: Query
    """What to look for."""
    max_tokens: Tokens = 5000


class Recall(_Arguments):
    """Search facts: what was said and what happened, as it was recorded."""

    query: Query
    """What to look for."""
    max_tokens: Tokens = 2048
    max_chunk_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 1000
    """Tokens of the passages that the facts come from."""


class Expand(_Arguments):
    """See the passage, or the whole document, that memories come from."""

    memory_ids: Annotated[list[str], Field(min_length=1, max_length=MOST_IDS, fail_fast=True)]
    """Ids that you were shown, such as F1."""
    depth: Literal["chunk", "document"] = "chunk"


class Done(BaseModel):
    """Give the answer, when you have what you need."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    answer: str
    """The answer, with the ids of what each sentence rests on behind it."""
    memory_ids: Any = None
    """Ids of the facts that the answer rests on."""
    observation_ids: Any = None
    """Ids of the observations that it rests on."""
    mental_model_ids: Any = None
    """Ids of the mental models that it rests on."""

    @property
    def references(self) -> list[str]:
        """All ids that are texts."""
        lists = (self.memory_ids, self.observation_ids, self.mental_model_ids)
        given = [value for each in lists if isinstance(each, list) for value in each]
        return [value for value in given[:200] if isinstance(value, str)]


ARGUMENTS: Mapping[str, type[BaseModel]] = {
    "search_mental_models": SearchModels,
    "search_observations": SearchObservations,
    "recall": Recall,
    "expand": Expand,
    "done": Done,
}
_LISTS = ("memory_ids", "observation_ids", "mental_model_ids")


def _plain(schema: Any) -> Any:
    """Without the titles that pydantic adds."""
    if isinstance(schema, dict):
        return {
            k: _plain(v) for k, v in schema.items() if not (k == "title" and isinstance(v, str))
        }
    return [_plain(part) for part in schema] if isinstance(schema, list) else schema


def _described(name: str, kind: type[BaseModel]) -> dict[str, Any]:
    shape = _plain(kind.model_json_schema())
    description = shape.pop("description")
    if "reason" in shape["properties"]:
        shape["properties"]["reason"] = {"type": "string", "description": "Why you call this."}
    if kind is Done:
        for key in _LISTS:
            shape["properties"][key] |= {"type": "array", "items": {"type": "string"}}
            shape["properties"][key].pop("default", None)
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": shape},
    }


_DESCRIBED = {name: _described(name, kind) for name, kind in ARGUMENTS.items()}


def described(offered: Collection[str]) -> list[dict[str, Any]]:
    """These tools, as they are offered to the model; always in the same order."""
    return [tool for name, tool in _DESCRIBED.items() if name in offered]


@dataclass(frozen=True, slots=True)
class Request:
    """A call that may be made. `key` is the same for calls that ask the same."""

    name: str
    arguments: BaseModel
    key: str

    @property
    def shown(self) -> dict[str, Any]:
        return self.arguments.model_dump(exclude={"reason"})


def read(name: str, arguments: str, offered: Collection[str]) -> Request:
    """The call that a model asks for. BadCall where it may not be made."""
    if name not in offered:
        known = ", ".join(tool for tool in ARGUMENTS if tool in offered)
        raise BadCall(f"there is no tool {name[:_LONG]!r}: use one of {known}")
    most = ANSWER_CHARS if name == "done" else ARGUMENT_CHARS
    if len(arguments) > most:
        raise BadCall(f"the arguments of {name} have more than {most} characters")
    try:
        given = _clean(json_object(arguments)) if arguments.strip() else {}
    except NoJson as error:
        raise BadCall(f"the arguments of {name} cannot be read: {error}") from None
    kind = ARGUMENTS[name]
    try:
        checked = kind.model_validate(given)
    except ValidationError as error:
        raise BadCall(f"{name}: {_sentence(error)}") from None
    query = getattr(checked, "query", None)
    if query is not None and not _LETTER.search(query):
        raise BadCall(f"{name}: query must have a letter or digit")
    shown = checked.model_dump(exclude={"reason"})
    return Request(name, checked, f"{name} {orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)!r}")


def _clean(value: Any) -> Any:
    """Without lone surrogates, which nothing behind this can write."""
    if isinstance(value, str):
        return value.encode("utf-8", "ignore").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(part) for key, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list) else value


def _sentence(error: ValidationError) -> str:
    """What is wrong, without what was given: it may be long, and it is the model's own."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part)[:_LONG] for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no argument {where}"
    return f"{where}: {first['msg']}"
