"""What every endpoint shares: reading the body, naming what was ignored, answering errors."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote

import orjson
from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from retrieval.errors import FourfoldError, Overloaded
from retrieval.lifecycle.audit.recorder import Recorder, noting
from retrieval.lifecycle.audit.redaction import BODY_BYTES
from retrieval.store import aliases, answers
from retrieval.store.audit import AuditEntry
from serve.http import auditing, scopes, structure
from serve.http.bodies import SMALL_BYTES, Bodies, declared
from serve.http.brake import Brake
from serve.http.errors import LengthRequired, TooLarge, json_response, problems, refusal
from serve.http.guard import arrived
from serve.http.services import TENANT, authenticate, require, tenant_of
from serve.http.structure import JsonBounds

log = logging.getLogger(__name__)

IGNORED_HEADER = "X-Ignored-Params"
_NAMED_AT_MOST = 20
NO_NUL = "addresses must not contain NUL"

DEPTH_MAX = 64
"""Levels of objects and lists in a body."""
SMALL_BOUNDS = JsonBounds(DEPTH_MAX, containers=25_000, values=25_000)
LARGE_BOUNDS = JsonBounds(DEPTH_MAX, containers=250_000, values=500_000)
"""Of bodies of all routes, and of those that store memories in bulk. At their bounds they are
parsed in about 3 and 50 ms, the latter in pieces of 5."""
ERRORS_MAX = 1_000
"""Of more problems than this none is described: each description costs some microseconds."""


class StrictRequest(Request):
    """A request whose body was read by its route, before the framework asks for it."""

    started: datetime
    noted: bytes = b""
    """The body as far as the audit log keeps it."""
    entry: AuditEntry | None = None
    """Its entry in the audit log."""
    ignored: Sequence[str] = ()
    """Unknown names at the top of the body, the first ones."""

    def took(
        self, body: bytes, model: BaseModel | None = None, ignored: Sequence[str] = ()
    ) -> None:
        """The framework finds `model` for the body's JSON; without one, the bytes."""
        self._body = body if model is None else body[:1]  # not kept: it may be large
        if model is not None:
            self._json = model
        self.ignored = ignored

    def taken(self) -> Any:
        """What `took` got, which the request does not keep any longer."""
        return self.__dict__.pop("_json", None)

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = orjson.loads(await self.body())
        return self._json


class BodyReader:
    """How the JSON body of one route is read: within bounds, checked against its model.

    NUL characters, which no text needs and the database refuses, are left out of every string.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.large: bool = getattr(model, "LARGE", False)
        self._bounds = LARGE_BOUNDS if self.large else SMALL_BOUNDS
        self._names = frozenset(
            name
            for field, info in model.model_fields.items()
            for name in (field, info.alias)
            if name
        )
        self._model = model

    def __call__(self, body: bytes) -> tuple[BaseModel, list[str]]:
        """The body as the route's model, and names that it ignored. RequestValidationError."""
        try:
            content = structure.loads(body, self._bounds)
        except structure.JsonTooLarge as error:
            raise _invalid("body_too_complex", ("body",), f"the body {error}") from None
        except orjson.JSONDecodeError as error:
            raise _invalid("json_invalid", ("body", error.pos), error.msg) from None
        if b"\\u0000" in body:
            content = _without_nul(content)
        try:
            model = self._model.model_validate(content, from_attributes=True)
        except ValidationError as error:
            if (count := error.error_count()) > ERRORS_MAX:
                sentence = f"{count:,} values of the body are wrong, too many to name them"
                raise _invalid("too_many_errors", ("body",), sentence) from None
            found = error.errors(include_url=False, include_input=False)
            raise RequestValidationError(
                [{**problem, "loc": ("body", *problem["loc"])} for problem in found]
            ) from None
        unknown = (name for name in content if name not in self._names)
        return model, list(islice(unknown, _NAMED_AT_MOST))


def let_go(model: object) -> None:
    """Frees the lists of a body entry by entry: the interpreter frees what is left of one in one
    go, for up to 50 ms, whatever thread it is in. They must be nobody else's."""
    values = list(vars(model).values()) if isinstance(model, BaseModel) else []
    del model
    while values:
        value = values.pop()
        while isinstance(value, list) and value:
            value.pop()


def _invalid(kind: str, loc: tuple[str | int, ...], sentence: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": loc, "msg": sentence}])


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(part) for key, part in value.items()}
    return [_without_nul(part) for part in value] if isinstance(value, list) else value


F = TypeVar("F", bound=Callable[..., Any])
_STREAMED = "fourfold_streamed"


def streamed(endpoint: F) -> F:
    """Marks an endpoint that reads its body itself, in pieces."""
    setattr(endpoint, _STREAMED, True)
    return endpoint


class Endpoint(APIRoute):
    """A route that knows whose a request is before it reads anything, reads strictly, answers every
    error by the table, and names what it ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        queries = frozenset(_query_names(self.dependant))
        needs_tenant = takes_tenant(self.dependant)
        scope = scopes.needed(self.methods or (), self.path)
        reads = scope == "read"
        reading = _reading_of(self)
        reads_itself = getattr(self.endpoint, _STREAMED, False)
        action = self.operation_id or self.name

        async def prepared(request: StrictRequest) -> Response:
            tenant = ""
            if needs_tenant:
                tenant = await authenticate(request)
                require(request, scope)
                if "bank_id" in (ids := request.scope["path_params"]):
                    pool = request.app.state.services.pool
                    ids["bank_id"] = await aliases.resolve(pool, tenant, ids["bank_id"])
            if reading is None:
                if not reads_itself:
                    _refuse_body(request)
                return await noted(request)
            bodies: Bodies = request.app.state.bodies
            async with bodies.read(request, tenant, large=reading.large) as body:
                if not body or not is_json(request):
                    request.took(body)
                elif len(body) <= SMALL_BYTES:
                    request.took(body, *reading(body))
                else:
                    request.took(body, *await bodies.parsed(tenant, reading, body))
                request.noted = body if len(body) <= BODY_BYTES + 1 else body[: BODY_BYTES + 1]
                if answers.FIELD in request.headers:
                    request.state.digest = await asyncio.to_thread(_digest, body)
                large = len(body) > SMALL_BYTES
                del body
                try:
                    return await noted(request)
                finally:
                    if large:
                        await asyncio.to_thread(let_go, request.taken())

        async def noted(request: StrictRequest) -> Response:
            """A change is in the audit log with what it commits."""
            if auditing.changes(request, action):
                request.entry = await _entry(request, action)
            with noting(request.entry):
                return await handle(request)

        async def answered(request: StrictRequest) -> Response:
            if b"%00" in request.scope["query_string"]:
                return json_response({"detail": NO_NUL}, 400)
            _restore_slashes(request.scope["path_params"])
            try:
                response = await prepared(request)
            except RequestValidationError as error:
                return problems(error.errors())
            except HTTPException as error:
                return json_response({"detail": error.detail}, error.status_code, error.headers)
            except ClientDisconnect:
                raise
            except Exception as error:
                return refusal(error)
            if request.scope["query_string"] or request.ignored:
                _name_ignored(request, response, queries)
            if reads:
                bodies: Bodies = request.app.state.bodies
                try:
                    response = bodies.counted(request.scope.get(TENANT, ""), response)
                except Overloaded as error:
                    return refusal(error)
            return response

        async def answer(request: Request) -> Response:
            request = StrictRequest(request.scope, request.receive)
            request.started = datetime.now(UTC)
            try:
                response = await answered(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            response = await _audited(request, response, action)
            if response.status_code >= 400:
                brake: Brake = request.app.state.brake
                await brake.hold(request.scope.get(TENANT, ""), arrived(request.scope))
            return response

        return answer


def _recorder(request: Request) -> Recorder | None:
    services = request.app.state.services
    return None if services is None else services.recorder


async def _entry(request: StrictRequest, action: str) -> AuditEntry | None:
    recorder = _recorder(request)
    if recorder is None:
        return None
    return await auditing.begun(recorder, request, action, request.started, request.noted)


async def _audited(request: StrictRequest, response: Response, action: str) -> Response:
    """The response, once the audit log has how the request ended; what cannot be noted counts as
    lost."""
    recorder = _recorder(request)
    if recorder is not None and (response.status_code < 500 or request.entry is not None):
        try:
            entry = request.entry or await _entry(request, action)
            if entry is not None:
                await auditing.ended(recorder, request, response, action, entry)
        except FourfoldError as error:
            log.error("not in the audit log: %s", error)
            recorder.lost += 1
    return response


def _digest(body: bytes) -> bytes:
    """What tells two bodies apart under one Idempotency-Key: SHA-256."""
    return hashlib.sha256(body).digest()


def _refuse_body(request: Request) -> None:
    """No body of any size is waited for where none is read."""
    length = declared(request.headers)
    if length is None:
        raise LengthRequired("this address reads no body")
    if length > SMALL_BYTES:
        raise TooLarge(SMALL_BYTES)


def is_json(request: Request) -> bool:
    """Does the request say that its body is JSON?"""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    main, _, sub = kind.partition("/")
    return main == "application" and (sub == "json" or sub.endswith("+json"))


class Addresses:
    """Reads an address as it was sent, before routing: an encoded slash is part of an id.

    Frameworks route on the decoded path, where it would end the id, or make its end a route's. It
    travels as NUL, which no address may contain, and is a slash again in the parameters that an
    endpoint gets.
    """

    def __init__(self, app: ASGIApp, banks: Sequence[str]) -> None:
        """`banks`: what stands before a bank's id in an address."""
        self._app = app
        self._banks = tuple(before.encode() for before in banks)

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
        place = next(before for before in self._banks if raw.startswith(before)).count(b"/")
        parts = [unquote(part.decode("latin-1")) for part in raw.split(b"/")]
        parts[place:] = [part.replace("/", "\0") for part in parts[place:]]
        return "/".join(parts)


def _restore_slashes(parameters: dict[str, Any]) -> None:
    for name, value in parameters.items():
        if isinstance(value, str) and "\0" in value:
            parameters[name] = value.replace("\0", "/")


def _name_ignored(request: StrictRequest, response: Response, queries: frozenset[str]) -> None:
    unknown = (name for name in request.query_params if name not in queries)
    ignored = [*islice(unknown, _NAMED_AT_MOST), *request.ignored]
    if ignored:
        names = [quote(name[:100], safe="[]") for name in dict.fromkeys(ignored[:_NAMED_AT_MOST])]
        response.headers[IGNORED_HEADER] = ", ".join(names)


def _query_names(dependant: Dependant) -> list[str]:
    own = [field.alias for field in dependant.query_params]
    return own + [name for inner in dependant.dependencies for name in _query_names(inner)]


def takes_tenant(dependant: Dependant) -> bool:
    return dependant.call is tenant_of or any(map(takes_tenant, dependant.dependencies))


def _reading_of(route: APIRoute) -> BodyReader | None:
    kind = route.body_field.field_info.annotation if route.body_field else None
    return BodyReader(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else None


class Router(APIRouter):
    """A router whose endpoints are all of the kind above."""

    endpoint: ClassVar[type[APIRoute]] = Endpoint

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=self.endpoint, **options)
