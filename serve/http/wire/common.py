"""What all request bodies share: nulls, times, names, numbers.

Null counts as "not given" wherever a field has a default: the public client sends every field.
Unknown fields are ignored here and named in a response header (serve/http/routing.py).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
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

_DATE_AND_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}")

_INT_MAX = 2**31 - 1
Number = Annotated[float, Field(allow_inf_nan=False)]
Int = Annotated[int, Field(ge=-_INT_MAX, le=_INT_MAX)]
Natural = Annotated[int, Field(ge=0, le=_INT_MAX)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


def local_moment(value: str) -> datetime:
    """An ISO 8601 date or date-time with the offset that it was written with, if any.

    ValueError for anything else, and for years outside 1..9999 once in UTC.
    """
    text = value.strip()
    if _DATE_ONLY.fullmatch(text):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{value[:80]!r} is not a day of the calendar") from None
        return datetime(day.year, day.month, day.day)
    if not _DATE_AND_TIME.match(text):
        raise ValueError(f"{value[:80]!r} is not an ISO 8601 date or date-time")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{value[:80]!r} is not an ISO 8601 date or date-time") from None
    try:
        _ = parsed.tzinfo is None or parsed.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value[:80]!r} is out of range") from None
    return parsed


def moment(value: str) -> datetime:
    """An ISO 8601 date or date-time as an aware datetime in UTC; without an offset it is UTC.

    ValueError as `local_moment`.
    """
    parsed = local_moment(value)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _local_moment(value: Any) -> Any:
    return local_moment(value) if isinstance(value, str) else value


LocalMoment = Annotated[datetime, BeforeValidator(_local_moment, json_schema_input_type=str)]
"""As written: aware where an offset was given."""
Zone = Annotated[str, StringConstraints(max_length=100), AfterValidator(zones.canonical)]
"""An IANA name such as Europe/Berlin."""


class Body(BaseModel):
    """A request body in which a null field counts as not given."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data
