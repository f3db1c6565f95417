"""The dialect of chat completions: a question as a body, a body as an answer. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from models.llm.providers import Rung
from models.llm.settings import LLMSettings
from models.llm.types import Completion, CompletionRequest, Finish, TokenUsage, ToolCall
from models.types import BadOutput

PATH = "/chat/completions"


def headers(settings: LLMSettings) -> dict[str, str]:
    key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    return {**key, **settings.headers}


def body(
    question: CompletionRequest,
    settings: LLMSettings,
    rung: Rung,
    dropped: Collection[str],
    max_tokens: int,
) -> dict[str, Any]:
    """`dropped`: optional parameters that this model was found not to know."""
    messages: Sequence[Mapping[str, Any]] = question.messages
    made: dict[str, Any] = {"model": settings.model}
    limits = ("max_tokens", "max_completion_tokens")
    usual, other = limits[::-1] if settings.known.completion_tokens else limits
    limit = other if usual in dropped else usual
    made[limit] = max_tokens
    if settings.temperature is not None:
        made["temperature"] = settings.temperature
    if settings.reasoning_effort:
        made["reasoning_effort"] = settings.reasoning_effort
    if settings.num_ctx is not None:
        made["options"] = {"num_ctx": settings.num_ctx}
    if settings.send_bank and question.bank:
        made["user"] = question.bank
    if settings.cache_affinity and question.bank:
        made["prompt_cache_key"] = f"{question.operation}:{question.tenant}:{question.bank}"
    if question.tools:
        made["tools"] = list(question.tools)
        made["tool_choice"] = question.tool_choice
    if question.schema is not None:
        shape = shaped(question.schema.schema, settings.max_items and "maxItems" not in dropped)
        name = question.schema.name
        if rung <= Rung.SCHEMA:
            inner: dict[str, Any] = {"name": name, "schema": shape}
            if rung is Rung.STRICT:
                inner["strict"] = True
            made["response_format"] = {"type": "json_schema", "json_schema": inner}
        elif rung is Rung.TOOL:
            made["tools"] = [{"type": "function", "function": {"name": name, "parameters": shape}}]
            made["tool_choice"] = {"type": "function", "function": {"name": name}}
        else:
            if rung is Rung.OBJECT:
                made["response_format"] = {"type": "json_object"}
            messages = with_shape(messages, shape)
    made["messages"] = list(messages)
    for parameter in dropped:
        if parameter not in ("max_tokens", "max_completion_tokens"):
            made.pop(parameter, None)
    return {**made, **settings.extra_body}


def shaped(schema: Mapping[str, Any], max_items: bool) -> Mapping[str, Any]:
    """The schema, without bounds of lists where a model's server does not know them."""
    if max_items:
        return schema
    return {
        key: shaped(value, max_items)
        if isinstance(value, Mapping)
        else [shaped(v, max_items) if isinstance(v, Mapping) else v for v in value]
        if isinstance(value, list)
        else value
        for key, value in schema.items()
        if key not in ("maxItems", "minItems")
    }


def with_shape(
    messages: Sequence[Mapping[str, Any]], shape: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """The messages, the first of which also says what shape the answer must have."""
    said = (
        "Answer with one JSON object and nothing else. It must follow this JSON schema:\n"
        + orjson.dumps(shape).decode()
    )
    first = messages[0]
    if first.get("role") == "system":
        return [{**first, "content": f"{first['content']}\n\n{said}"}, *messages[1:]]
    return [{"role": "system", "content": said}, *messages]


def read(answer: Any, rung: Rung | None) -> Completion:
    """`rung`: how the shape was asked for, None where none was. BadOutput where it is no answer."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
    except (KeyError, IndexError, TypeError):
        raise BadOutput("the answer has no choices") from None
    if not isinstance(message, Mapping):
        raise BadOutput("the answer's message is not an object")
    text = _text(message.get("content"))
    calls = tuple(_calls(message.get("tool_calls")))
    reason = choice.get("finish_reason")
    finish: Finish = "stop"
    if reason in ("length", "max_tokens", "model_length"):
        finish = "length"
    elif reason in ("content_filter", "refusal", "safety") or message.get("refusal"):
        finish = "refused"
        text = text or _text(message.get("refusal"))
    elif not text.strip() and not calls:
        # Nothing but reasoning: the budget went into thoughts.
        finish = "length"
    if rung is Rung.TOOL and calls:
        text, calls = calls[0].arguments, ()
    if calls and finish == "stop":
        finish = "tool_calls"
    return Completion(text, calls, _usage(answer.get("usage")), finish)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _calls(found: Any) -> list[ToolCall]:
    calls = []
    for place, call in enumerate(found if isinstance(found, list) else []):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments if arguments is not None else {}).decode()
        id = call.get("id")
        calls.append(
            ToolCall(id if isinstance(id, str) else f"call_{place}", function["name"], arguments)
        )
    return calls


def count(found: Any, *path: str) -> int:
    """A number somewhere in `found`; 0 where there is none."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
        return 0
    return int(found)


def _usage(found: Any) -> TokenUsage:
    thoughts = count(found, "completion_tokens_details", "reasoning_tokens")
    return TokenUsage(
        count(found, "prompt_tokens"),
        max(0, count(found, "completion_tokens") - thoughts),
        count(found, "prompt_tokens_details", "cached_tokens"),
        thoughts,
    )
