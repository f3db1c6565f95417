"""What every endpoint shares: reading the body, naming what was ignored, answering errors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import orjson
from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.errors import json_response, problems, refusal

IGNORED_HEADER = "X-Ignored-Params"
_NAMED_AT_MOST = 20
NO_NUL = "addresses must not contain NUL"


class StrictRequest(Request):
    """A request whose body is bounded, and JSON in the strict sense: no NaN, no lone surrogates.

    NUL characters, which no text needs and the database refuses, are left out of every string.
    """

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            limit = self.app.state.max_body_bytes
            if int(self.headers.get("content-length") or 0) > limit:
                raise _too_large(limit)
            parts, size = [], 0
            async for part in self.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
            self._body = b"".join(parts)
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            self._json = orjson.loads(body)
            if b"\\u0000" in body:
                self._json = _without_nul(self._json)
        return self._json


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the request body is larger than {limit} bytes")


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(part) for key, part in value.items()}
    return [_without_nul(part) for part in value] if isinstance(value, list) else value


class Endpoint(APIRoute):
    """A route that reads strictly, answers every error by the table, and names what it ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        queries = frozenset(_query_names(self.dependant))
        fields = _body_names(self)

        async def answer(request: Request) -> Response:
            request = StrictRequest(request.scope, request.receive)
            if b"%00" in request.scope["query_string"]:
                return json_response({"detail": NO_NUL}, 400)
            _restore_slashes(request.scope["path_params"])
            try:
                response = await handle(request)
            except RequestValidationError as error:
                return problems(error.errors())
            except HTTPException:
                raise
            except Exception as error:
                return refusal(error)
            if request.scope["query_string"] or fields is not None:
                _name_ignored(request, response, queries, fields)
            return response

        return answer


class Addresses:
    """Reads an address as it was sent, before routing: an encoded slash is part of an id.

    Frameworks route on the decoded path, where it would end the id, or make its end a route's. It
    travels as NUL, which no address may contain, and is a slash again in the parameters that an
    endpoint gets.
    """

    def __init__(self, app: ASGIApp, banks: str) -> None:
        self._app = app
        self._place = banks.count("/")
        self._banks = banks.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if "\0" in scope["path"]:
                await json_response({"detail": NO_NUL}, 400)(scope, receive, send)
                return
            raw = scope.get("raw_path") or b""
            if raw.startswith(self._banks) and b"%2f" in raw.lower():
                scope = {**scope, "path": self._path(raw)}
        await self._app(scope, receive, send)

    def _path(self, raw: bytes) -> str:
        parts = [unquote(part.decode("latin-1")) for part in raw.split(b"/")]
        parts[self._place :] = [part.replace("/", "\0") for part in parts[self._place :]]
        return "/".join(parts)


def _restore_slashes(parameters: dict[str, Any]) -> None:
    for name, value in parameters.items():
        if isinstance(value, str) and "\0" in value:
            parameters[name] = value.replace("\0", "/")


def _name_ignored(
    request: StrictRequest,
    response: Response,
    queries: frozenset[str],
    fields: frozenset[str] | None,
) -> None:
    ignored = [name for name in request.query_params if name not in queries]
    body = getattr(request, "_json", None)
    if fields is not None and isinstance(body, dict):
        ignored += [name for name in body if name not in fields]
    if ignored:
        names = [quote(name[:100], safe="[]") for name in dict.fromkeys(ignored)]
        response.headers[IGNORED_HEADER] = ", ".join(names[:_NAMED_AT_MOST])


def _query_names(dependant: Dependant) -> list[str]:
    own = [field.alias for field in dependant.query_params]
    return own + [name for inner in dependant.dependencies for name in _query_names(inner)]


def _body_names(route: APIRoute) -> frozenset[str] | None:
    """The field names of the route's JSON body; None if it has none."""
    kind = route.body_field.field_info.annotation if route.body_field else None
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    return frozenset(
        name for field, info in kind.model_fields.items() for name in (field, info.alias) if name
    )


class Router(APIRouter):
    """A router whose endpoints are all of the kind above."""

    endpoint: ClassVar[type[APIRoute]] = Endpoint

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=self.endpoint, **options)
