"""What all request bodies share: nulls, times, names, numbers.

Null counts as "not given" wherever a field has a default: the public client sends every field.
Unknown fields are ignored here and named in a response header (serve/http/routing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from retrieval import zones

_INT_MAX = 2**31 - 1
Int = Annotated[int, Field(ge=-_INT_MAX, le=_INT_MAX)]
Natural = Annotated[int, Field(ge=0, le=_INT_MAX)]
Limit = Annotated[int, Field(ge=-1, le=_INT_MAX)]
"""How many at most; -1 is no limit, as the public client sends it."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


def not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _written(value: Any) -> Any:
    return zones.written(value) if isinstance(value, str) else value


LocalMoment = Annotated[datetime, BeforeValidator(_written, json_schema_input_type=str)]
"""As written: aware where an offset was given."""
Zone = Annotated[str, StringConstraints(max_length=100), AfterValidator(zones.canonical)]
"""An IANA name such as Europe/Berlin."""


def fields_of(described: type[BaseModel]) -> Callable[[Any], dict[str, Any]]:
    """Takes an object as it was sent, less what `described` does not name and what is null. The
    values are for whoever stores the object to check."""
    names = tuple(described.model_fields)

    def taken(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        return {name: value[name] for name in names if value.get(name) is not None}

    return taken


class Body(BaseModel):
    """A request body in which a null field counts as not given."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data
