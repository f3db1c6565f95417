"""Lists that go on where they ended: a page begins behind the last row of the one before, wherever
that is, so that later pages cost no more than the first."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import orjson

from retrieval.errors import DeadlineExceeded, InvalidInput
from retrieval.store.glance import MOST

Count = Literal["exact", "upto"]
Bind = Callable[[Any], str]
SEARCH_S = 2.0
"""A search for a part of a text reads all rows; whoever goes through pages waits for it."""


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of an order. `kind` is what its values are: time, int, text or uuid."""

    name: str
    kind: str
    descending: bool = False
    nullable: bool = False
    """Rows without a value come last."""


@asynccontextmanager
async def searching(q: str | None, count: Count | None) -> AsyncIterator[None]:
    """Inside, a list is read; DeadlineExceeded after SEARCH_S where it is searched for `q` and
    asked for in pages."""
    try:
        async with asyncio.timeout(SEARCH_S if q and count == "upto" else None):
            yield
    except TimeoutError:
        raise DeadlineExceeded("search") from None


def cursor(values: Sequence[Any]) -> str:
    """Where a page ended, by the values of its last row in the columns of the order."""
    return closed([_plain(v) for v in values])


def closed(places: Any) -> str:
    """As `opened` reads it."""
    return base64.urlsafe_b64encode(orjson.dumps(places)).decode().rstrip("=")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def read(text: str, order: Sequence[SortColumn]) -> list[Any]:
    """The values in a cursor of this order; InvalidInput for what `cursor` did not make."""
    try:
        found = opened(text)
        if not isinstance(found, list) or len(found) != len(order):
            raise ValueError("not ours")
        return [_value(v, column) for v, column in zip(found, order, strict=True)]
    except (ValueError, TypeError, AttributeError):
        raise foreign() from None


def opened(text: str) -> Any:
    """What a cursor holds, unchecked. ValueError where nothing of ours looks like that."""
    padded = text + "=" * (-len(text) % 4)
    return orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))


def foreign() -> InvalidInput:
    return InvalidInput("cursor: not one that this list gave", "cursor")


def _value(value: Any, column: SortColumn) -> Any:
    if value is None and column.nullable:
        return None
    if column.kind == "int":
        if type(value) is not int or abs(value) >= 2**62:
            raise ValueError("no number")
        return value
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("no text")
    if column.kind == "uuid":
        return UUID(value)
    if column.kind == "time":
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("no zone")
        return moment
    return value


def clause(order: Sequence[SortColumn]) -> str:
    """The columns as ORDER BY takes them."""
    return ", ".join(
        column.name
        + (" desc" if column.descending else "")
        + (" nulls last" if column.nullable else "")
        for column in order
    )


def names(order: Sequence[SortColumn]) -> str:
    """The columns as a SELECT takes them, called k0, k1 and so on; what `last` reads."""
    return ", ".join(
        f"{column.name}{'::text' if column.kind == 'uuid' else ''} as k{i}"
        for i, column in enumerate(order)
    )


def last(rows: Sequence[Any], order: Sequence[SortColumn]) -> list[Any] | None:
    """The values of the last of these rows in the columns of the order."""
    return [rows[-1][f"k{i}"] for i in range(len(order))] if rows else None


def behind(order: Sequence[SortColumn], values: Sequence[Any], bind: Bind) -> str:
    """The SQL test for rows that come after one with these values."""
    tests: list[str] = []
    same: list[str] = []
    for column, value in zip(order, values, strict=True):
        name = column.name
        if value is None:
            same.append(f"{name} is null")
            continue
        place = bind(value)
        beyond = f"{name} {'<' if column.descending else '>'} {place}"
        if column.nullable:
            beyond = f"({beyond} or {name} is null)"
        tests.append(" and ".join([*same, beyond]))
        same.append(f"{name} = {place}")
    return f"({' or '.join(tests)})"


def total(table: str, where: str, count: Count | None) -> str:
    """SQL that counts the rows: all of them, or `upto` MOST and one more."""
    if count == "upto":
        return f"select count(*) from (select from {table} where {where} limit {MOST + 1}) counted"
    return f"select count(*) from {table} where {where}"


def paged(
    listing: dict[str, Any], count: Count | None, full: bool, last: Sequence[Any] | None
) -> dict[str, Any]:
    """A list as it was asked for: with `next` (None at the end) where `count` says `upto`, and then
    a total of MOST stands for more."""
    if count != "upto":
        return listing
    whole = listing["total"]
    return {
        **listing,
        "total": min(whole, MOST),
        "total_is_estimate": whole > MOST,
        "next": cursor(last) if full and last is not None else None,
    }
