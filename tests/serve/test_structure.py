"""Depth and width of JSON texts, measured before they are parsed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.http import structure
from serve.http.structure import JsonBounds, JsonTooLarge

pytestmark = pytest.mark.unit

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[],\n ', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=30,
)


def measured(value: Any) -> tuple[int, int]:
    """(depth, containers)"""
    if not isinstance(value, list | dict):
        return 0, 0
    inner = [measured(part) for part in (value.values() if isinstance(value, dict) else value)]
    return 1 + max((d for d, _ in inner), default=0), 1 + sum(c for _, c in inner)


@given(value=VALUES, block=st.integers(1, 40))
def test_measures_what_a_parser_would_find(value: Any, block: int) -> None:
    text = json.dumps(value).encode()
    depth, containers = measured(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "BLOCK_BYTES", block)
        structure.outlined(text, JsonBounds(depth, containers, 10**9))
        if depth:
            with pytest.raises(JsonTooLarge):
                structure.outlined(text, JsonBounds(depth - 1, containers, 10**9))
            with pytest.raises(JsonTooLarge):
                structure.outlined(text, JsonBounds(depth, containers - 1, 10**9))


def check(text: bytes, bounds: JsonBounds) -> None:
    with suppress(orjson.JSONDecodeError):
        structure.loads(text, bounds)


def test_says_what_is_too_much() -> None:
    bounds = JsonBounds(depth=4, containers=10, values=20)
    check(b"[[[[1]]]]", bounds)
    check(b'{"a": "[[[[[[[[[[[[[[[[[[[[ , , , , , , , , , , , , , , , , , , , , , , , ,"}', bounds)
    with pytest.raises(JsonTooLarge, match="deeper than 4"):
        check(b"[[[[[1]]]]]", bounds)
    with pytest.raises(JsonTooLarge, match="more than 10 objects"):
        check(b"[" + b"{}," * 10 + b"{}]", bounds)
    with pytest.raises(JsonTooLarge, match="more than 20 values"):
        check(b"[" + b"0," * 20 + b"0]", bounds)
    check(b"", bounds)
    check(b'"""\\\\\\', bounds)
