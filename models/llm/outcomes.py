"""What an HTTP answer of a model's server means, and how long it asks to be left alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any

import orjson


class Outcome(Enum):
    GOOD = auto()
    UNSUPPORTED = auto()
    """A parameter is not known to this model: drop or replace it and ask again."""
    TOO_LONG = auto()
    REFUSED = auto()
    SETUP = auto()
    """Key, address or model are wrong: final until somebody mends them."""
    REJECTED = auto()
    """Any other 4xx: this request is wrong, and will be next time."""
    TRANSIENT = auto()
    LIMITED = auto()
    EXHAUSTED = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`wait_s`: what the server asked for; 0 where it said nothing. `parameter`: of UNSUPPORTED."""

    outcome: Outcome
    message: str = ""
    wait_s: float = 0.0
    parameter: str = ""


OPTIONAL = (
    "temperature", "max_completion_tokens", "max_tokens", "reasoning_effort", "tool_choice",
    "tools", "response_format", "parallel_tool_calls", "prompt_cache_key", "user", "options",
    "strict", "maxItems",
)  # fmt: skip
"""What can be left out of a request, or said otherwise."""

_DISLIKED = re.compile(
    r"unsupported|not support|does ?n.t support|unknown|unrecogni[sz]ed|unexpected|not allowed"
    r"|not permitted|extra (?:inputs|fields)|invalid|only the default|deprecated|not available"
    r"|not compatible|incompatible|use '?max_",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|input is too long|exceeds? the (?:model|maximum|limit).{0,40}token|string_above_max_length"
    r"|request_too_large|reduce the length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|quota[_ ](?:exceeded|exhausted)|billing"
    r"|exceeded your current quota|credit balance|payment required|out of credits|arrearage"
    r"|daily limit|monthly limit|spending limit",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[_ ](?:filter|policy|management)|responsible[_ ]?ai|safety|moderation"
    r"|data_inspection_failed|sensitive words",
    re.IGNORECASE,
)
QUOTA_WAIT_S = 3600.0
"""When to look again at an account whose quota is used up and which does not say until when."""
MESSAGE_CHARS = 300


def judge(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime, longest_wait_s: float
) -> Verdict:
    """`headers` with lower-case names. A limit for longer than `longest_wait_s` is EXHAUSTED."""
    if 200 <= status < 300:
        return Verdict(Outcome.GOOD)
    error = _error(body)
    message = _sentence(error, body)
    said = f"{error.get('code', '')} {error.get('type', '')} {error.get('status', '')} {message}"
    told = f"{status} {message}".strip()
    if status == 429 or status == 402:
        wait_s = wait(headers, now)
        if status == 402 or _QUOTA.search(said):
            return Verdict(Outcome.EXHAUSTED, told, wait_s or QUOTA_WAIT_S)
        if wait_s > longest_wait_s:
            return Verdict(Outcome.EXHAUSTED, told, wait_s)
        return Verdict(Outcome.LIMITED, told, wait_s)
    if status == 413 or (status in (400, 422) and _CONTEXT.search(said)):
        return Verdict(Outcome.TOO_LONG, told)
    if status in (400, 422):
        if parameter := _parameter(error, message):
            return Verdict(Outcome.UNSUPPORTED, told, parameter=parameter)
        if _FILTER.search(said):
            return Verdict(Outcome.REFUSED, told)
        if _QUOTA.search(said):
            return Verdict(Outcome.EXHAUSTED, told, wait(headers, now) or QUOTA_WAIT_S)
        return Verdict(Outcome.REJECTED, told)
    if status in (401, 403, 404):
        if status == 403 and _QUOTA.search(said):
            return Verdict(Outcome.EXHAUSTED, told, wait(headers, now) or QUOTA_WAIT_S)
        return Verdict(Outcome.SETUP, told)
    if status == 408 or status == 409 or status >= 500:
        return Verdict(Outcome.TRANSIENT, told, wait(headers, now))
    return Verdict(Outcome.REJECTED, told)


def wait(headers: Mapping[str, str], now: datetime) -> float:
    """Seconds until the server wants to be asked again; 0 where it does not say.

    Retry-After counts (seconds or a date), or retry-after-ms; else the longest of the
    x-ratelimit-reset-* and anthropic-ratelimit-*-reset whose budget is used up.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    after = headers.get("retry-after")
    if after is not None:
        return _moment(after, now)
    found = 0.0
    for name, value in headers.items():
        if match := re.fullmatch(r"x-ratelimit-reset(-.+)?", name):
            left = headers.get(f"x-ratelimit-remaining{match[1] or ''}")
        elif match := re.fullmatch(r"(anthropic-ratelimit-.+)-reset", name):
            left = headers.get(f"{match[1]}-remaining")
        else:
            continue
        if left is None or (_number(left) or 0) <= 0:
            found = max(found, _moment(value, now))
    return found


def _moment(value: str, now: datetime) -> float:
    """Seconds from now: a number, a span like 6m0s or 250ms, an HTTP or ISO date, an epoch."""
    value = value.strip()
    if (seconds := _number(value)) is not None:
        if seconds > 1e9:  # an epoch, in seconds or in milliseconds
            seconds = (seconds / 1000 if seconds > 1e11 else seconds) - now.timestamp()
        return max(0.0, seconds)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value)
    if parts and "".join(a + b for a, b in parts) == value:
        unit = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
        return sum(float(amount) * unit[name] for amount, name in parts)
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
        except (ValueError, TypeError):
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - now).total_seconds())
    return 0.0


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _error(body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body[:1_000_000])
    except orjson.JSONDecodeError:
        return {}
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        inner = found.get("error", found)
        if isinstance(inner, dict):
            return inner
        return {"message": str(inner)}
    return {}


def _sentence(error: Mapping[str, Any], body: bytes) -> str:
    message = error.get("message") or error.get("detail") or ""
    if not isinstance(message, str):
        message = orjson.dumps(message, default=str).decode()
    return (message or body[:MESSAGE_CHARS].decode(errors="replace")).strip()[:MESSAGE_CHARS]


def _parameter(error: Mapping[str, Any], message: str) -> str:
    """The parameter that a refusal is about; "" where it is about something else."""
    named = error.get("param")
    if isinstance(named, str):
        first = re.split(r"[.\[]", named)[0]
        if first in OPTIONAL:
            return first
    if _DISLIKED.search(message) or "unsupported" in str(error.get("code", "")):
        if places := {message.find(name): name for name in OPTIONAL if name in message}:
            return places[min(places)]
        if "json_schema" in message or "json_object" in message or "structured output" in message:
            return "response_format"
    return ""
