"""Names that people join: URLs, e-mail addresses, paths, versions, snake_case, camelCase, codes.

Each is a term as a whole and in its parts. Hyphens, underscores and case changes vanish from the
whole, so `e-mail`, `E_Mail`, `eMail` and `email` share it; dots, slashes and other signs stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from retrieval.text.language import fold

_SCHEME = regex.compile(r"^[a-z][a-z0-9+.-]{1,9}://", regex.IGNORECASE)
_HARD = regex.compile(r"[/\\:@&+=#%?~]+")
_SOFT = regex.compile(r"[-_]+")
_NUMBER = regex.compile(r"\d+(?:[.,]\d+)*$")
_GROUPED = regex.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_VERSION = regex.compile(r"v?(\d+(?:\.\d+)+(?:[a-z0-9]|[-+.](?=[a-z0-9]))*)$", regex.IGNORECASE)
_CAMEL = regex.compile(
    r"(?<=[\p{Ll}\p{Nd}])(?=\p{Lu}\p{L})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})|(?<=\p{Ll})(?=\p{Lu})"
)
_MEASURE = regex.compile(r"(\d+)(\p{L}+)$")
_DIGITS = regex.compile(r"\d+|\D+")


def whole(text: str) -> str:
    """The term of the whole."""
    return fold(_SOFT.sub("", _SCHEME.sub("", text)))


def split(text: str, query: bool) -> Iterator[tuple[str, bool]]:
    """Pieces of joined text as (piece, final): a final piece is a term, others are plain words.

    A query for `Q417` means that code, while a text that holds it is also found by `417`.
    """
    parts = [part for part in _HARD.split(_SCHEME.sub("", text)) if part]
    if len(parts) > 1:
        yield whole(text), True
    for part in parts:
        yield from _dotted(part, query, len(parts) > 1)


def _dotted(text: str, query: bool, inside: bool) -> Iterator[tuple[str, bool]]:
    if _GROUPED.match(text):
        yield text.replace(",", ""), True
        return
    version = _VERSION.match(text)
    if version:
        yield fold(version[1]), True
        numbers = version[1].split(".")
        if not query and len(numbers) > 2:
            yield ".".join(numbers[:2]), True
        return
    parts = [part for part in regex.split(r"[.,·]+", text) if part]
    if len(parts) > 1:
        if all(len(part) == 1 for part in parts):
            yield fold("".join(parts)), True  # U.S.A.
            return
        yield whole(text), True
    for part in parts:
        yield from _soft(part, query, inside or len(parts) > 1)


def _soft(text: str, query: bool, inside: bool) -> Iterator[tuple[str, bool]]:
    parts = [part for part in _SOFT.split(text) if part]
    if len(parts) > 1:
        yield "".join(parts), False
    for part in parts:
        yield from _camel(part, query, inside or len(parts) > 1)


def _camel(text: str, query: bool, inside: bool) -> Iterator[tuple[str, bool]]:
    parts = _CAMEL.split(text)
    if len(parts) > 1:
        yield text, False
        yield from ((part, False) for part in parts if len(part) > 1)
        return
    if inside and len(text) == 1:
        return
    yield text, False
    measure = _MEASURE.match(text)
    if measure and len(measure[2]) > 1:
        yield measure[1], False
        yield measure[2], False
    elif not query and not text.isalpha() and not _NUMBER.match(text):
        yield from ((part, False) for part in _DIGITS.findall(text) if len(part) > 1)
