"""What a tool is: arguments that are checked, and the route that does the work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from string import Formatter
from typing import Annotated, Any, ClassVar, TypeVar

import orjson
from pydantic import BeforeValidator, Field, ValidationError

from serve.http.routes.recall import BANK
from serve.http.wire.common import Body
from serve.http.wire.pages import OFFSET_MAX, PAGE_MAX
from serve.mcp.calls import Route, RouteRequest
from serve.mcp.results import in_words

PROBLEMS_SAID = 5


class Effect(Enum):
    """What a call does to what is stored."""

    READS = "reads"
    ADDS = "adds"
    """It adds or changes, and what was there can be had back or is not lost."""
    DESTROYS = "destroys"


class Tool(Body):
    """One call of a tool; its fields are the arguments. The docstring tells the model what it does.

    Fields whose names stand in the route's address are ids there; the others are its body or query.
    Unknown arguments are left out, null counts as not given.
    """

    NAME: ClassVar[str]
    EFFECT: ClassVar[Effect]
    ROUTE: ClassVar[Route]
    OF_BANK: ClassVar[bool] = True
    """Of one bank; where not, only an address without a bank has it."""
    ALL_BANKS: ClassVar[bool] = False
    """Only an address without a bank has it."""
    NEEDS_MODEL: ClassVar[bool] = False
    """Shown only where a language model is configured."""

    def sent(self) -> dict[str, Any]:
        """The body or query: what was given, and defaults that are not null."""
        return self.model_dump(mode="json", exclude=set(_ids(self.ROUTE)), exclude_none=True)

    def calls(self, bank_id: str) -> Sequence[RouteRequest]:
        """The requests that do the work, in order; the first that fails is the answer."""
        ids = {"bank_id": bank_id}
        ids |= {
            name: getattr(self, name)
            for name in _ids(self.ROUTE)
            if name in type(self).model_fields
        }
        return (self.ROUTE.call(ids, self.sent()),)

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What the client sees of the routes' answers, put together."""
        return answer


def _ids(route: Route) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(route.path) if name]


def in_bank(method: str, path: str = "") -> Route:
    return Route(method, BANK + path)


def problems(error: ValidationError) -> str:
    """What is wrong with the arguments, as a sentence."""
    found = error.errors(include_url=False, include_input=False)
    said = [
        f"{_place(problem['loc'])}{in_words(problem['msg'])}" for problem in found[:PROBLEMS_SAID]
    ]
    if more := len(found) - len(said):
        said.append(f"and {more} more")
    return "; ".join(said)


def _place(loc: Iterable[int | str]) -> str:
    parts = [str(part) for part in loc if not str(part).startswith("function-")]
    return f"{'.'.join(parts)[:100]}: " if parts else ""


def _parsed(value: Any) -> Any:
    """Some clients send a list or an object as its JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _listed(value: Any) -> Any:
    parsed = _parsed(value)
    return [parsed] if isinstance(parsed, str) else parsed


T = TypeVar("T")
ListOf = Annotated[list[T], Field(fail_fast=True), BeforeValidator(_listed)]
"""A list, its JSON, or the one text that it holds."""
Object = Annotated[dict[str, Any], BeforeValidator(_parsed)]
Id = Annotated[str, Field(min_length=1, max_length=1024)]
Page = Annotated[int, Field(ge=1, le=PAGE_MAX)]
Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
