"""Long JSON texts are parsed in pieces: they say the same, and what is not JSON is refused."""

from __future__ import annotations

import random
import time
from typing import Any

import orjson
import pytest

from serve.http import structure
from serve.http.routing import LARGE_BOUNDS

pytestmark = pytest.mark.unit

PIECE = 200
"""Small pieces, so that short texts are cut everywhere."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "PIECE_BYTES", PIECE)


def some(draw: random.Random, depth: int) -> Any:
    kind = draw.random()
    if depth == 0 or kind < 0.4:
        return draw.choice(
            [
                1,
                -2.5,
                True,
                None,
                "",
                "a,b]}",
                '"',
                "\\",
                '\\"',
                "é" * 7,
                "x" * draw.choice((3, 300)),
            ]
        )
    if kind < 0.7:
        return [some(draw, depth - 1) for _ in range(draw.randrange(12))]
    names = ("a", "b,", '"', "\\", "c]", "long" * 30)
    return {draw.choice(names) + str(i): some(draw, depth - 1) for i in range(draw.randrange(12))}


def texts(seed: int) -> bytes:
    draw = random.Random(seed)
    option = draw.choice((0, orjson.OPT_INDENT_2))
    return orjson.dumps({"memories": [some(draw, 5) for _ in range(12)], "x": 1}, option=option)


@pytest.mark.parametrize("seed", range(60))
def test_pieces_say_what_the_whole_says(seed: int) -> None:
    text = texts(seed)
    assert structure.loads(text, LARGE_BOUNDS) == orjson.loads(text)


@pytest.mark.parametrize("seed", range(60))
def test_a_spoilt_text_is_refused_whenever_the_whole_is(seed: int) -> None:
    text, draw = bytearray(texts(seed)), random.Random(seed)
    for _ in range(10):
        spoilt = bytearray(text)
        place = draw.randrange(len(spoilt))
        match draw.randrange(3):
            case 0:
                del spoilt[place]
            case 1:
                spoilt[place] = draw.choice(b',:[]{}"\\ 1a')
            case _:
                spoilt.insert(place, draw.choice(b',:[]{}"\\ 1a'))
        whole: Any
        try:
            whole = orjson.loads(spoilt)
        except orjson.JSONDecodeError:
            with pytest.raises((orjson.JSONDecodeError, structure.JsonTooLarge)):
                structure.loads(bytes(spoilt), LARGE_BOUNDS)
        else:
            assert structure.loads(bytes(spoilt), LARGE_BOUNDS) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"1," * 400 + b"]",
        b"[" + b"1," * 150 + b"," + b"1," * 200 + b"1]",
        b'{"a":[' + b"1," * 400 + b"1}]",
        b'{"a":[' + b"1," * 400 + b"1]} x",
        b'{"a":[' + b"1," * 400 + b'1]"b":2}',
        b"{[1]:[" + b"1," * 400 + b"1]}",
        b'{"a":1' + b',"b":2' * 100 + b",}",
        b"[" + b" " * 500,
        b"1," * 400,
        b'{"a" "' + b"x" * 500 + b'"}',
        b"\xff" * 500,
        b"[" + b" " * 300 + b"1 2" + b" " * 300 + b"]",
    ],
)
def test_no_json(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    with pytest.raises(orjson.JSONDecodeError):
        structure.loads(text, LARGE_BOUNDS)


def test_the_last_of_equal_names_counts() -> None:
    long = b"[" + b"1," * 300 + b"1]"
    text = b'{"a":' + long + b',"a":2,"b":3,"b":' + long + b"}"
    assert structure.loads(text, LARGE_BOUNDS) == orjson.loads(text)


def test_white_space_alone_in_brackets() -> None:
    assert structure.loads(b"[" + b" " * 500 + b"]", LARGE_BOUNDS) == []
    assert structure.loads(b'{"a":{' + b" " * 500 + b"}}", LARGE_BOUNDS) == {"a": {}}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[' + b"0," * 499_990 + b"0]}",
        b'{"a":{"b":{"c":[{"d":[' + b"[]," * 249_900 + b"[]]}]}}}",
        b"{" + b"".join(b'"%06d":1,' % i for i in range(499_000)) + b'"b":1}',
        b'{"m":[' + b",".join([b'{"text":"x","tags":["a","b","c"]}'] * 100_000) + b"]}",
    ],
    ids=["values", "deep", "members", "memories"],
)
def test_no_piece_is_long(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    longest, loads = 0, orjson.loads

    def measured(part: bytes) -> Any:
        nonlocal longest
        longest = max(longest, len(part))
        return loads(part)

    monkeypatch.setattr(orjson, "loads", measured)
    begin = time.process_time()
    found = structure.loads(text, LARGE_BOUNDS)
    assert time.process_time() - begin < 10
    assert longest <= structure.PIECE_BYTES + 2
    monkeypatch.undo()
    assert found == orjson.loads(text)


SIGNS = ("a", "é", "昨", "👩", "\\\\", '\\"', "\\n", "\\u00e9", "\\ud83d\\udc69", "\\\\u", "/")


@pytest.mark.parametrize("seed", range(40))
def test_one_long_text_is_cut_between_its_signs(seed: int) -> None:
    draw = random.Random(seed)
    few = draw.sample(SIGNS, draw.randrange(1, 5))
    long = "".join(draw.choices(few, k=draw.randrange(300, 900)))
    for whole in (f' "{long}" ', f'{{"a": "{long}"}}', f'{{ "{long}" : 1}}', f'["{long}", "b"]'):
        text = whole.encode()
        assert structure.loads(text, LARGE_BOUNDS) == orjson.loads(text)


@pytest.mark.parametrize(
    "broken",
    [
        '"%s" "b"', '"%s', '%s"', '{"%s" "b"}', '{"a":"%s" 1}', '{"a" b:"%s"}', '{"a":"%s"b"}',
        '{"%s":}', '{:"%s"}', '"%s\\', '"%s\\x%s"', '"%s\\ud83d%s"', '"%s\n%s"', '\x0b"%s"',
    ],
)  # fmt: skip
def test_one_long_text_that_is_wrong(broken: str) -> None:
    for sign in ("a", "é", "\\n", '\\"', "\\\\"):
        text = broken.replace("%s", sign * 300).encode()
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(text)
        with pytest.raises(orjson.JSONDecodeError):
            structure.loads(text, LARGE_BOUNDS)


@pytest.mark.parametrize("empty", ["{%s}", "[%s]", '{"a":{%s}}', "[[%s]]", '[{"a":[%s]}]'])
def test_nothing_but_white_space_inside(empty: str) -> None:
    text = empty.replace("%s", " \n" * 300).encode()
    assert structure.loads(text, LARGE_BOUNDS) == orjson.loads(text)


def test_one_long_text_is_not_parsed_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Parser:
        JSONDecodeError = orjson.JSONDecodeError

        @staticmethod
        def loads(part: bytes) -> Any:
            seen.append(len(part))
            return orjson.loads(part)

    monkeypatch.setattr(structure, "orjson", Parser)
    structure.loads(
        b'{"a":"' + b"x" * 5_000 + b'","' + b"y" * 5_000 + b'":["' + b"z" * 5_000 + b'"]}',
        LARGE_BOUNDS,
    )
    assert max(seen) <= PIECE + 2


def test_no_text_at_all() -> None:
    for sign in (b"\x80", b"\xff", b"\xe6\x98"):
        with pytest.raises(orjson.JSONDecodeError):
            structure.loads(b'"' + sign * 600 + b'"', LARGE_BOUNDS)
