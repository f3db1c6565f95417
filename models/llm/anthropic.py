"""Anthropic's dialect, Messages: a question as a body, a body as an answer. Pure functions.

Its layer for chat completions ignores response_format, so it is spoken natively; structured answers
are asked for by one forced tool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from models.llm.openai import count, shaped, with_shape
from models.llm.providers import Rung
from models.llm.settings import LLMSettings
from models.llm.types import Completion, CompletionRequest, Finish, TokenUsage, ToolCall
from models.types import BadOutput

PATH = "/messages"
VERSION = "2023-06-01"


def headers(settings: LLMSettings) -> dict[str, str]:
    return {"x-api-key": settings.api_key, "anthropic-version": VERSION, **settings.headers}


def body(
    question: CompletionRequest,
    settings: LLMSettings,
    rung: Rung,
    dropped: Collection[str],
    max_tokens: int,
) -> dict[str, Any]:
    """`dropped`: optional parameters that this model was found not to know."""
    messages: Sequence[Mapping[str, Any]] = question.messages
    made: dict[str, Any] = {"model": settings.model, "max_tokens": max_tokens}
    if settings.temperature is not None:
        made["temperature"] = settings.temperature
    if settings.send_bank and question.bank:
        made["metadata"] = {"user_id": question.bank}
    if question.tools:
        made["tools"] = [_tool(tool["function"]) for tool in question.tools]
        kind = {"required": "any", "none": "none"}.get(question.tool_choice, "auto")
        made["tool_choice"] = {"type": kind}
    if question.schema is not None:
        shape = shaped(question.schema.schema, settings.max_items and "maxItems" not in dropped)
        if rung <= Rung.TOOL:
            name = question.schema.name
            made["tools"] = [{"name": name, "input_schema": shape}]
            made["tool_choice"] = {"type": "tool", "name": name}
        else:
            messages = with_shape(messages, shape)
    system = [m["content"] for m in messages if m["role"] == "system"]
    if system:
        # The fixed part of a prompt comes first, and is the same for all banks.
        blocks = [{"type": "text", "text": text} for text in system]
        made["system"] = [{**blocks[0], "cache_control": {"type": "ephemeral"}}, *blocks[1:]]
    made["messages"] = _messages([m for m in messages if m["role"] != "system"])
    kept = {name: value for name, value in made.items() if name not in dropped}
    return {**kept, **settings.extra_body, "max_tokens": max_tokens}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters", {"type": "object"}),
    }


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls and results as blocks; neighbours of one role are joined, as the API demands."""
    made: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks: list[dict[str, Any]] = []
        text = message.get("content")
        if message["role"] == "tool":
            call = message["tool_call_id"]
            blocks.append({"type": "tool_result", "tool_use_id": call, "content": text})
        elif text:
            blocks.append({"type": "text", "text": text})
        for call in message.get("tool_calls") or []:
            function = call["function"]
            try:
                input = orjson.loads(function["arguments"])
            except orjson.JSONDecodeError:
                input = {}
            if not isinstance(input, dict):
                input = {}
            blocks.append(
                {"type": "tool_use", "id": call["id"], "name": function["name"], "input": input}
            )
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def read(answer: Any, rung: Rung | None) -> Completion:
    """`rung`: how the shape was asked for, None where none was. BadOutput where it is no answer."""
    blocks = answer.get("content") if isinstance(answer, Mapping) else None
    if not isinstance(blocks, list):
        raise BadOutput("the answer has no content")
    texts, calls = [], []
    for place, block in enumerate(blocks):
        if not isinstance(block, Mapping):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block.get("type") == "tool_use" and isinstance(block.get("name"), str):
            arguments = orjson.dumps(block.get("input") or {}).decode()
            calls.append(ToolCall(str(block.get("id", f"call_{place}")), block["name"], arguments))
    text = "".join(texts)
    reason = answer.get("stop_reason")
    finish: Finish = "stop"
    if reason in ("max_tokens", "model_context_window_exceeded"):
        finish = "length"
    elif reason == "refusal":
        finish = "refused"
    elif not text.strip() and not calls:
        finish = "length"
    if rung is Rung.TOOL and calls:
        text, calls = calls[0].arguments, []
    if calls and finish == "stop":
        finish = "tool_calls"
    usage = answer.get("usage")
    cached = count(usage, "cache_read_input_tokens")
    written = count(usage, "cache_creation_input_tokens")
    return Completion(
        text,
        tuple(calls),
        TokenUsage(
            count(usage, "input_tokens") + cached + written,
            count(usage, "output_tokens"),
            cached,
        ),
        finish,
    )
