"""Values at the edge: text and times as they come in and as the API writes them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from typing import Any
from uuid import UUID

from retrieval import zones
from retrieval.errors import InvalidInput, TooMuch
from retrieval.types import NO_TIME, microseconds


def uuid_of(value: str) -> UUID | None:
    """The UUID that a caller wrote; None if it is not one."""
    with suppress(ValueError):
        id = UUID(value)
        if id.hex in value.replace("-", "").lower():  # int() reads blanks and underscores, too
            return id
    return None


def as_uuid(value: str, field: str) -> UUID:
    """The UUID that a caller wrote; InvalidInput names `field` if it is not one."""
    if (id := uuid_of(value)) is not None:
        return id
    raise InvalidInput(f"{field}: {value[:60]!r} is not a UUID", field)


def as_ids(values: Sequence[str], field: str) -> tuple[bytes, ...]:
    """The 16 bytes of each UUID that a caller wrote; InvalidInput names `field`. All at once where
    they are written as usual: ten thousand by themselves take a twentieth of a second."""
    digits = [value.replace("-", "") for value in values]
    if all(len(each) == 32 for each in digits):
        with suppress(ValueError):
            raw = bytes.fromhex("".join(digits))
            if len(raw) == 16 * len(digits):  # blanks are no digits
                return tuple(raw[i : i + 16] for i in range(0, len(raw), 16))
    return tuple(as_uuid(value, field).bytes for value in values)


def as_texts(ids: Iterable[UUID]) -> list[str]:
    """In a thread where they may be many: a hundred thousand take a tenth of a second."""
    return [str(id) for id in ids]


def clean(text: str) -> str:
    """`text` without NUL characters and lone surrogates, which the database refuses."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def parse_local(value: str | datetime, field: str) -> datetime:
    """As `zones.written`; InvalidInput names `field` where that is a ValueError."""
    try:
        return zones.written(value) if isinstance(value, str) else zones.in_calendar(value)
    except ValueError as error:
        raise InvalidInput(f"{field}: {error}", field) from None


def parse_time(value: str | datetime, field: str) -> datetime:
    """As `parse_local`, in UTC; without an offset it is UTC."""
    return zones.utc(parse_local(value, field))


def micros(time: datetime | None) -> int:
    """Microseconds since the epoch, as the columns hold them; NO_TIME for None."""
    return NO_TIME if time is None else microseconds(time)


def iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def like(text: str) -> str:
    """`text` as a literal inside a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def page(limit: int, offset: int, most: int | None = None) -> tuple[int, int]:
    """A checked (limit, offset)."""
    if limit < 0 or offset < 0:
        raise InvalidInput(
            "limit and offset must not be negative", "limit" if limit < 0 else "offset"
        )
    return (limit if most is None else min(limit, most)), offset


PAGE_BYTES = 16 * 2**20


def fits(sizes: Sequence[int]) -> None:
    """TooMuch where entries of these sizes, in bytes, are more than one page of a list may be; it
    says how many of them would fit."""
    total = sum(sizes)
    if total > PAGE_BYTES:
        fitting = max(1, bisect_right(list(accumulate(sizes)), PAGE_BYTES))
        raise TooMuch(
            f"limit: these {len(sizes)} entries are {total} bytes long, and a page has"
            f" {PAGE_BYTES} at most: ask for {fitting} at a time",
            "limit",
        )


def one_of(value: str, choices: Sequence[str], field: str) -> str:
    """`value`; InvalidInput names `field` if it is none of the choices."""
    if value not in choices:
        raise InvalidInput(f"{field} must be one of {', '.join(choices)}", field)
    return value


def listing(
    key: str, rows: list[dict[str, Any]], total: int, limit: int, offset: int
) -> dict[str, Any]:
    return {key: rows, "total": total, "limit": limit, "offset": offset}
