"""Stored files as answers: whole, or from where a download broke off."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_PLAIN = re.compile(r"[A-Za-z0-9._ -]{1,255}")


@dataclass(frozen=True, slots=True)
class Download:
    """A file to be sent. disposition: the header of that name; `read`: its bytes [begin, end)."""

    media_type: str
    byte_size: int
    sha256: bytes
    disposition: str
    read: Callable[[int, int], AsyncIterator[bytes]]
    headers: Mapping[str, str] = field(default_factory=dict)


def named(name: str, *, inline: bool = False) -> str:
    """Content-Disposition for a file of this name, whatever characters it has."""
    kind = "inline" if inline else "attachment"
    if _PLAIN.fullmatch(name):
        return f'{kind}; filename="{name}"'
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def answer(
    file: Download, range: str | None, if_none_match: str | None, if_range: str | None
) -> Response:
    """200, 206 or 304; 416 where the range lies outside."""
    tag = f'"{file.sha256.hex()}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-transform",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": file.disposition,
        **file.headers,
    }
    if if_none_match is not None and _matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    span = (0, file.byte_size)
    status = 200
    if range is not None and (if_range is None or if_range.strip() == tag):
        found = _span(range, file.byte_size)
        if found is not None and found[0] >= file.byte_size:
            headers["Content-Range"] = f"bytes */{file.byte_size}"
            raise HTTPException(416, "the range lies outside the file", headers)
        if found is not None:
            span, status = found, 206
            headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{file.byte_size}"
    headers["Content-Length"] = str(span[1] - span[0])
    headers["Content-Type"] = file.media_type
    return StreamingResponse(file.read(*span), status, headers)


def _matches(given: str, tag: str) -> bool:
    return given.strip() == "*" or tag in (
        each.strip().removeprefix("W/") for each in given.split(",")
    )


def _span(given: str, size: int) -> tuple[int, int] | None:
    """[begin, end) of a range, which begins at `size` where it lies outside; None where it is to be
    ignored."""
    match = _RANGE.fullmatch(given.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        return size - length, size
    begin, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    if match[2] and int(match[2]) < begin:
        return None
    return min(begin, size), end
