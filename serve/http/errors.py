"""The one table from exceptions to HTTP."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from retrieval import errors
from retrieval.store.answers import KeyReused
from serve.http import scopes

log = logging.getLogger(__name__)


class Unauthorized(errors.FourfoldError):
    """No key, or one that is not valid (401)."""


class ForeignOrigin(errors.FourfoldError):
    """A web page of somebody else asks for a change (403)."""


class SlowBody(errors.FourfoldError):
    """The body does not come (408)."""

    def __init__(self, bytes_per_s: int) -> None:
        super().__init__(
            f"the request body arrives too slowly: at least {bytes_per_s} bytes a second"
        )


class LengthRequired(errors.FourfoldError):
    """A body without a length where none is read (411)."""


class TooLarge(errors.FourfoldError):
    """The body is larger than may be (413)."""

    def __init__(self, limit: int, whose: str = "") -> None:
        super().__init__(f"the request body is larger than {whose}{limit} bytes")


class UnsupportedEncoding(errors.FourfoldError):
    """A body in an encoding that is not read (415)."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"content-encoding {encoding!r} is not supported: use gzip, deflate or none"
        )


class BadEncoding(errors.FourfoldError):
    """A body that is not what its content-encoding says (400)."""

    def __init__(self, why: str) -> None:
        super().__init__(f"content-encoding: {why}")


class Misdirected(errors.FourfoldError):
    """The request is for a host that is not this server (403)."""


class HeadersTooLarge(errors.FourfoldError):
    """More or longer header fields than are read (431)."""


STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.TooMuch, 413),
    (KeyReused, 422),
    (errors.InvalidInput, 400),
    (errors.NeedsModel, 400),
    (BadEncoding, 400),
    (Unauthorized, 401),
    (ForeignOrigin, 403),
    (Misdirected, 403),
    (scopes.Forbidden, 403),
    (errors.NotFound, 404),
    (SlowBody, 408),
    (errors.Conflict, 409),
    (LengthRequired, 411),
    (TooLarge, 413),
    (UnsupportedEncoding, 415),
    (HeadersTooLarge, 431),
    (errors.RateLimited, 429),
    (errors.ModelRefused, 422),
    (errors.ModelCut, 422),
    (errors.ModelTooLong, 422),
    (errors.ModelFailed, 502),
    (errors.Overloaded, 503),
    (errors.Unavailable, 503),
    (errors.DeadlineExceeded, 504),
    (TimeoutError, 504),
)
"""First match wins. What is not here is a fault of ours: 500 with a sentence, no detail."""


_ENTRIES = 200


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """`content` as JSON; what orjson cannot write is a fault of ours."""
    return Response(orjson.dumps(content), status, headers, "application/json")


async def long_json_response(content: Mapping[str, Any]) -> Response:
    """As `json_response`, for objects with long lists: written in a thread, some of their entries
    at a time, since what writes them keeps the interpreter."""
    if max((len(v) for v in content.values() if isinstance(v, list)), default=0) <= _ENTRIES:
        return json_response(content)
    return Response(await asyncio.to_thread(_written, content), media_type="application/json")


def _written(content: Mapping[str, Any]) -> bytes:
    members = []
    for name, value in content.items():
        if isinstance(value, list) and len(value) > _ENTRIES:
            parts = (value[i : i + _ENTRIES] for i in range(0, len(value), _ENTRIES))
            text = b"[" + b",".join(orjson.dumps(part)[1:-1] for part in parts) + b"]"
        else:
            text = orjson.dumps(value)
        members.append(orjson.dumps(name) + b":" + text)
    return b"{" + b",".join(members) + b"}"


def refusal(error: Exception) -> Response:
    """The answer to a request that ended in `error`."""
    for kind, status in STATUS:
        if isinstance(error, kind):
            return json_response(_body(error), status, _headers(error, status))
    log.error("unexpected error", exc_info=error)
    return json_response({"detail": "an unexpected error occurred; see the server's log"}, 500)


def _body(error: Exception) -> dict[str, Any]:
    body: dict[str, Any] = {"detail": str(error)}
    if isinstance(error, errors.DeadlineExceeded):
        body["stage"] = error.stage
        body["finished"] = {name: round(spent, 6) for name, spent in error.finished.items()}
    return body


def _headers(error: Exception, status: int) -> dict[str, str] | None:
    """What a status obliges to say beside the sentence."""
    if status in (429, 503):
        seconds = getattr(error, "retry_after_s", 1.0)
        return {"Retry-After": str(max(1, math.ceil(seconds)))}
    return _ALWAYS.get(status)


_ALWAYS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    415: {"Accept-Encoding": "gzip, deflate"},
}


@contextmanager
def wrong_at(top: str, *before: str) -> Iterator[None]:
    """What is wrong with an entry of the list `top` of a body, as whoever stores the entries says,
    is answered as what is wrong with the body: 422, with its place behind `before`."""
    try:
        yield
    except errors.TooMuch:
        raise
    except errors.InvalidInput as error:
        if error.together or error.field is None or not error.field.startswith(f"{top}["):
            raise
        place = [
            int(part[1:-1]) if part[0] == "[" else part
            for part in re.findall(r"\[\d+\]|[^.\[\]]+", error.field)
        ]
        said = str(error).removeprefix(f"{error.field}: ")
        raise RequestValidationError(
            [{"type": "value_error", "loc": (*before, *place), "msg": said}]
        ) from None


def problems(found: Sequence[Any]) -> Response:
    """422 with one entry per problem of a request: where, what, which kind."""
    detail = [
        {"loc": list(problem["loc"]), "msg": _sentence(problem), "type": problem["type"]}
        for problem in found[:100]
    ]
    return json_response({"detail": detail}, 422)


def _sentence(problem: Mapping[str, Any]) -> str:
    """What is wrong; the framework says little where a whole body cannot be read."""
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    if problem["type"] == "model_attributes_type" and tuple(problem["loc"]) == ("body",):
        return "the body must be a JSON object, sent with content-type application/json"
    return str(problem["msg"])


def _methods(request: Request) -> list[str]:
    """What may be done at the address of a request."""
    return [
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def install(app: FastAPI) -> None:
    """Make `app` answer every exception by the table."""

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problems(error.errors())

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers, detail = dict(error.headers or {}), error.detail
        if error.status_code == 405:
            allowed = _methods(request)
            headers["Allow"] = ", ".join(allowed)
            if "GET" in allowed:
                headers["Allow"] += ", HEAD"
            detail = f"{request.method} cannot be used here: use {' or '.join(allowed)}"
        elif error.status_code == 404 and detail == "Not Found":  # the framework's own
            detail = "there is nothing at this address: /docs lists the API"
        return json_response({"detail": detail}, error.status_code, headers)

    async def known(_request: Request, error: Exception) -> Response:
        return refusal(error)

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(errors.FourfoldError, known)
    app.add_exception_handler(Exception, known)
