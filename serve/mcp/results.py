"""From a route's answer to a tool's result: no nulls, bounded, structured and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from mcp_types import CallToolResult, TextContent

from retrieval.text import tokens
from serve.mcp.calls import RouteResponse

TOKENS_MAX = 20_000
"""Of a result, in cl100k tokens. Clients refuse what is above 25,000 of their own model's."""
SENTENCE_MAX = 2_000
"""Characters of what went wrong: it may quote what was sent."""
_HINT = (
    "the answer was too long and was cut: {what} of {whole} of `{name}` are shown;"
    " ask for less, or page with limit and offset"
)


def failed(sentence: str) -> CallToolResult:
    """A result that says what went wrong."""
    shown = sentence if len(sentence) <= SENTENCE_MAX else f"{sentence[:SENTENCE_MAX]}..."
    return CallToolResult(content=[TextContent(type="text", text=shown)], is_error=True)


def refused(answer: RouteResponse) -> CallToolResult:
    """The result of a route that answered a status of 400 or more."""
    sentence = _sentence(answer)
    if answer.retry_after_s is not None and answer.status in (429, 503):
        sentence += f"; try again in {answer.retry_after_s} s"
    return failed(sentence)


def _sentence(answer: RouteResponse) -> str:
    detail = answer.content.get("detail") if isinstance(answer.content, dict) else None
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list) and detail:
        return "; ".join(f"{_field(one['loc'])}{in_words(one['msg'])}" for one in detail[:5])
    return f"the server answered with status {answer.status}"


def in_words(message: str) -> str:
    """What a check says, without the library's own words around ours."""
    return message.removeprefix("Value error, ")


def _field(loc: list[Any]) -> str:
    """The argument that a place in a route's body or query stands for."""
    parts = [str(part) for part in loc[1:]]
    if parts[:2] == ["items", "0"]:
        parts = parts[2:]
    return f"{'.'.join(parts)[:100]}: " if parts else ""


def result(content: Mapping[str, Any]) -> CallToolResult:
    """`content` as structured content and as the same JSON in a text. Costs about 1 ms for each 10
    KB above TOKENS_MAX bytes: run it in a thread where it may be long."""
    shown = _bounded(_without_nulls(content))
    text = orjson.dumps(shown).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=shown)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _bounded(content: dict[str, Any]) -> dict[str, Any]:
    """`content` with its longest fields cut until it is within TOKENS_MAX, and a hint."""
    if len(orjson.dumps(content)) <= TOKENS_MAX:  # a token has at least a byte
        return content
    sizes = {name: _size(value) for name, value in content.items()}
    hints: list[str] = []
    room = TOKENS_MAX - 200  # for the hint
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sum(sizes.values()) <= room:
            break
        others = sum(sizes.values()) - sizes[name]
        content, hint = _cut(content, name, max(0, room - others))
        sizes[name] = _size(content[name])
        hints.append(hint)
    return {**content, "truncated": "; ".join(hints)[:500]} if hints else content


def _size(value: Any) -> int:
    return 8 + tokens.count(orjson.dumps(value).decode())


def _cut(content: dict[str, Any], name: str, room: int) -> tuple[dict[str, Any], str]:
    """`content` with as much of the field `name` as has room, and what to say of it."""
    value = content[name]
    if isinstance(value, dict | list):
        entries = list(value.items()) if isinstance(value, dict) else value
        kept, used = 0, 0
        for entry in entries:
            used += _size(entry)
            if used > room:
                break
            kept += 1
        part: Any = dict(entries[:kept]) if isinstance(value, dict) else entries[:kept]
        return {**content, name: part}, _HINT.format(what=kept, whole=len(value), name=name)
    text = str(value)
    part = tokens.cut(text, int(room * 0.9))
    what = f"{len(part):,} characters"
    return {**content, name: part}, _HINT.format(what=what, whole=f"{len(text):,}", name=name)
