"""What a hostile or merely unlucky client puts into a request: texts, numbers, structures, bodies,
and parts of addresses. Sizes are bytes of the request, up to what a route takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

TEXTS: Mapping[str, str] = {
    "words": "harbour log ",
    "line ends": "\n",
    "blanks then a word": " " * 40 + "x",
    "names": "Qa, ",
    "initials": "A. B. ",
    "full stops": ".",
    "sentences": "Alice met Bob in Paris. They talked until the evening. ",
    "dates": "on 3 March 2024 ",
    "relative times": "two weeks after the last Monday before ",
    "numbers": "1234567890",
    "decimals": "1.",
    "brackets": "(",
    "quotes": '"',
    "backslashes": "\\",
    "markup": "<b>",
    "combining marks": "e\u0301\u0302",
    "ligatures": "\ufdfa",
    "bidi": "\u202e\u2066",
    "zero width": "\u200b\u200d",
    "soft hyphens": "a\u00ad",
    "Han": "昨天我在港口看到一艘船。",
    "Thai": "เมื่อวานนี้",
    "Hangul": "어제",
    "emoji": "👩\u200d👩\u200d👧",
    "NUL": "a\0",
    "percent": "%_\\",
    "regular expression": "(a+)+$",
    "surrogate in words": "\\ud800",
    "hyphens": "-a",
    "apostrophes": "'s ",
    "addresses": "http://a.b/",
}
"""Repeated to the size that is wanted."""

NUMBERS: Mapping[str, Any] = {
    "-0": -0.0,
    "10^308": 1e308,
    "-10^308": -1e308,
    "tiny": 5e-324,
    "2^31": 2**31,
    "-2^31": -(2**31) - 1,
    "2^53": 2**53 + 1,
    "2^64": 2**64,
    "10^300": 10**300,
    "true": True,
}


def _nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = wrap(value)
    return value


_ALIKE = {"id": "i", "key": "k", "name": "n", "text": "t", "content": "c", "source_query": "q"}

STRUCTURES: Mapping[str, Callable[[int], Any]] = {
    "empty": lambda _: "",
    "blank": lambda _: " \t",
    "null": lambda _: None,
    "no entries": lambda _: [],
    "no members": lambda _: {},
    "deep lists": lambda _: _nested(60, lambda value: [value]),
    "deep objects": lambda _: _nested(60, lambda value: {"or": [value]}),
    "too deep": lambda _: _nested(500, lambda value: [value]),
    "JSON in a text, deep": lambda size: "[" * (size // 2),
    "nulls": lambda size: [None] * (size // 6),
    "empty texts": lambda size: [""] * (size // 4),
    "texts": lambda size: [f"t{i}" for i in range(size // 12)],
    "one text again and again": lambda size: ["tag"] * (size // 8),
    "zeros": lambda size: [0] * (size // 3),
    "empty lists": lambda size: [[]] * (size // 4),
    "empty objects": lambda size: [{}] * (size // 4),
    "many members": lambda size: {f"k{i}": "v" for i in range(size // 16)},
    "members that are lists": lambda size: {f"k{i}": [] for i in range(size // 16)},
    "one long name": lambda size: {"k" * (size - 10): 1},
    "long texts": lambda size: ["x" * 1000] * (size // 1004),
    "objects that are alike": lambda size: [_ALIKE] * (size // 80),
    "objects that differ": lambda size: [
        {**_ALIKE, "id": f"i{i}", "key": f"k{i}", "name": f"n{i}"} for i in range(size // 90)
    ],
}
"""By the bytes they may have."""

BODIES: Mapping[str, Callable[[int], bytes]] = {
    "open brackets": lambda size: b"[" * size,
    "open objects": lambda size: b'{"a":' * (size // 5),
    "empty objects": lambda size: b'{"a":[' + b",".join([b"{}"] * (size // 3 - 4)) + b"]}",
    "zeros": lambda size: b'{"a":[' + b"0," * ((size - 8) // 2) + b"0]}",
    "short texts": lambda size: b'{"a":[' + b'"a",' * ((size - 12) // 4) + b'"b"]}',
    "one name again and again": lambda size: b"{" + b'"a":1,' * ((size - 8) // 6) + b'"b":1}',
    "names": lambda size: (
        b"{" + b"".join(b'"%07d":1,' % i for i in range((size - 8) // 12)) + b'"b":1}'
    ),
    "escapes": lambda size: b'{"a":"' + b"\\u0000" * ((size - 8) // 6) + b'"}',
    "backslashes": lambda size: b'{"a":"' + b"\\\\" * ((size - 8) // 2) + b'"}',
    "escaped quotes": lambda size: b'{"a":"' + b'\\"' * ((size - 8) // 2) + b'"}',
    "half a surrogate": lambda size: b'{"a":"\\ud800"}',
    "a long number": lambda size: b'{"a":' + b"9" * (size - 8) + b"}",
    "a long fraction": lambda size: b'{"a":0.' + b"1" * (size - 10) + b"}",
    "a long exponent": lambda size: b'{"a":1e' + b"9" * (size - 10) + b"}",
    "NaN": lambda _: b'{"a":NaN}',
    "white space": lambda size: b" " * (size - 2) + b"{}",
    "no end": lambda size: b'{"a":"' + b"x" * (size - 8),
    "no text": lambda size: b"\xff" * size,
    "nothing": lambda _: b"",
}
"""Whole bodies of so many bytes at most."""

SEGMENTS: Mapping[str, str] = {
    "long": "x" * 8_000,
    "slashes": "%2F" * 50,
    "up": "..%2F..%2F..%2Fetc",
    "dots": "%2e%2e",
    "dot": "%2e",
    "NUL": "a%00b",
    "line end": "a%0d%0ab",
    "no UTF-8": "%ff%fe",
    "half a surrogate": "%ed%a0%80",
    "bidi": "%e2%80%ae",
    "percent": "%25%5f",
    "combining": "e" + "%cc%81" * 400,
    "quote": "%27%20or%201=1",
    "big number": "9" * 400,
    "blank": "%20",
}
"""Parts of an address, as they are sent."""

QUERIES: Mapping[str, str] = {
    **{name: text for name, text in SEGMENTS.items() if name not in ("long", "dots", "dot")},
    "long": "x" * 16_000,
    "brackets": "%5B" * 5_000,
    "deep groups": "%5B" + "%7B%22not%22:" * 300 + "%7B%7D" + "%7D" * 300 + "%5D",
    "wide groups": (
        "%5B%7B%22or%22:%5B" + ",".join(["%7B%22tags%22:%5B%5D%7D"] * 900) + "%5D%7D%5D"
    ),
    "wildcards": "*%25" * 2_000,
    "2^31": str(2**31),
    "2^63": str(2**63),
    "-1": "-1",
    "10^308": "1e308",
    "NaN": "NaN",
    "a date": "2024-02-30T99:99:99",
    "empty": "",
}
"""Values of query parameters, as they are sent."""
