"""What a model meant where it wrote a tool call, or the arguments of one, as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from retrieval.llm.reading import NoJson, json_object, thoughtless
from retrieval.reflect import tools

TEXT_CHARS = 400_000
"""Of a longer text the rest is not looked at."""
NESTING = 4
"""Calls that stand deeper inside others are not read."""

_BLOCK = re.compile(
    r"<(tool_call|function_call|function_calls|invoke|tool_use|tool_code|tool)\b[^>]*>"
    r"(.*?)(?:</\1>|\Z)"
    r"|<function=([\w.]+)>(.*?)(?:</function>|\Z)"
    r"|```tool_(?:code|call)s?\n(.*?)(?:```|\Z)"
    r"|\[TOOL_CALLS?\](.*)",
    re.DOTALL | re.IGNORECASE,
)
_MARK = re.compile(
    r"<\|?/?(?:tool_calls?|function_calls?|tool_use|tool_code|python_tag|im_start|im_end|eom_id"
    r"|eot_id|assistant|channel|message|invoke|parameter|think|thinking|reasoning"
    r"|function=[\w.]+|function)\b[^>]{0,80}>|\[/?TOOL_CALLS?\]",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"""name\s*=\s*["']?(?:functions\.)?(\w+)""")
_PARAMETER = re.compile(r'<parameter\s+name="(\w+)"[^>]*>(.*?)</parameter>', re.DOTALL)
_CALLED = re.compile(
    rf"^\W{{0,3}}(?:functions\.|default_api\.)?({'|'.join(tools.ARGUMENTS)})\s*\((.*)\)\W{{0,3}}$",
    re.DOTALL,
)
_KEYWORD = re.compile(
    r"""(?<!\w)(\w++)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[[^\]]*\]|[\w.+-]+)"""
)
_CITES = re.compile(r"\[\s*[FOM]\d")
_NAMES = ("name", "tool", "tool_name", "function", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "input", "args", "tool_input")


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call that was written as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a text comes to: calls, or else an answer with the references beside it. Nothing at all
    where it was empty, or machinery that cannot be read."""

    text: str = ""
    references: tuple[str, ...] = ()
    calls: tuple[TextCall, ...] = ()


def read(text: str) -> Said:
    """Never raises."""
    text = thoughtless(text[:TEXT_CHARS])
    text = text.encode("utf-8", "ignore").decode()
    calls: list[TextCall] = []
    for block in _BLOCK.finditer(text):
        calls += _in_block(block)
    bare = _MARK.sub("", _BLOCK.sub("", text)).strip()
    if not calls:
        whole = _whole(bare)
        if isinstance(whole, Said):
            return whole
        calls = whole
        bare = "" if calls else bare
    done = next((call for call in calls if call.name == "done"), None)
    if done is not None and (answer := _answer(done.arguments)):
        return answer
    if calls and not _CITES.search(bare):  # what stands beside is "let me look that up"
        return Said(calls=tuple(calls))
    return Said(bare if re.search(r"\w", bare) else "")


def _in_block(block: re.Match[str], depth: int = 0) -> list[TextCall]:
    kind, inner, function, body, code, listed = block.groups()
    if function:
        return [TextCall(function.removeprefix("functions."), body.strip())]
    content = next(part for part in (inner, code, listed, "") if part is not None).strip()
    if (kind or "").lower() in ("invoke", "tool") and (name := _ATTRIBUTE.search(block[0])):
        given = {key: _value(value) for key, value in _PARAMETER.findall(content)}
        return [TextCall(name[1], orjson.dumps(given).decode() if given else content)]
    if nested := list(_BLOCK.finditer(content)):
        if depth == NESTING:
            return []
        return [call for each in nested for call in _in_block(each, depth + 1)]
    found = _whole(content)
    return [] if isinstance(found, Said) else found


def _value(text: str) -> Any:
    try:
        return orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return text.strip()


def _whole(text: str) -> Said | list[TextCall]:
    """A text that is nothing but a call, or the arguments of `done`."""
    if match := _CALLED.match(text):
        given = {key: _value(value.replace("'", '"')) for key, value in _KEYWORD.findall(match[2])}
        return [TextCall(match[1], orjson.dumps(given).decode())]
    if text[:1] not in "{[`" or not text:
        return []
    for candidate in (text, text.strip("`").removeprefix("json").strip()):
        try:
            given = orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
        if isinstance(given, list) and given and all(_named(one) for one in given):
            return [_named(one) or TextCall("", "") for one in given]
        break
    try:
        held = json_object(text)
    except NoJson:
        return []
    if call := _named(held):
        return [call]
    return _answer(text) or []


def _named(held: Any) -> TextCall | None:
    if not isinstance(held, dict):
        return None
    if isinstance(held.get("function"), dict):
        held = held["function"]
    name = next((held[key] for key in _NAMES if isinstance(held.get(key), str)), None)
    given = next((held[key] for key in _ARGUMENTS if key in held), None)
    if name is None or given is None:
        return None
    written = given if isinstance(given, str) else orjson.dumps(given).decode()
    return TextCall(name.removeprefix("functions."), written)


def _answer(arguments: str) -> Said | None:
    """The answer inside arguments of `done`."""
    try:
        done = tools.read("done", arguments, ("done",)).arguments
    except tools.BadCall:
        return None
    assert isinstance(done, tools.Done)
    text = clean(done.answer)
    return Said(text, tuple(done.references)) if text else None


def clean(text: str) -> str:
    """An answer without thoughts and marks of tools."""
    text = thoughtless(text[:TEXT_CHARS]).encode("utf-8", "ignore").decode()
    return _MARK.sub("", _BLOCK.sub("", text)).strip()
