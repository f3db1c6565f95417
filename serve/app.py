"""The HTTP application, over whatever services it is given."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from serve.http import errors, routes
from serve.http.bodies import Bodies, BodyMemory
from serve.http.brake import Brake
from serve.http.following import ID_HEADER, Following, SlowLog
from serve.http.guard import RequestGuard
from serve.http.routes.recall import DEGRADED_HEADER
from serve.http.routes.service import API_VERSION, BUILD_HEADER
from serve.http.routing import IGNORED_HEADER, Addresses
from serve.http.services import Services
from serve.inspector import reference
from serve.inspector import routes as inspector
from serve.mcp import transport
from serve.settings import Settings


def create(settings: Settings, services: Services | None = None) -> FastAPI:
    """The application. `services` may come later, as `app.state.services`, before it serves."""
    server = settings.server
    app = FastAPI(
        title="Fourfold",
        summary="A GPU-batched recall server for the memory of AI agents.",
        version=API_VERSION,
        redirect_slashes=False,
        openapi_url="/openapi.json" if server.enable_docs else None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.state.bodies = Bodies(
        min(server.max_small_body_bytes, server.max_body_bytes),
        server.max_body_bytes,
        BodyMemory(max(server.body_memory_bytes, 2 * server.max_body_bytes)),
        BodyMemory(server.answer_memory_bytes, "answers that nobody has read yet"),
    )
    app.state.brake = Brake(settings.limits.refusals_per_s)
    errors.install(app)
    base = server.base_path.rstrip("/")
    if server.enable_docs:
        reference.install(app, base)
    app.add_middleware(Addresses, banks=(f"{base}/v1/default/banks/", f"{base}{transport.PATH}/"))
    if server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.cors_origins,
            allow_methods=["*"],
            allow_headers=[
                "authorization",
                "content-encoding",
                "x-request-timeout-s",
                *transport.CLIENT_HEADERS,
            ],
            expose_headers=[
                IGNORED_HEADER,
                DEGRADED_HEADER,
                BUILD_HEADER,
                ID_HEADER,
                "Retry-After",
            ],
        )
    keyless = not settings.limits.require_api_key
    app.add_middleware(
        RequestGuard,
        hosts=(*server.allowed_hosts, server.host) if keyless else None,
        origins=server.cors_origins if keyless else None,
    )
    app.state.slow_log = SlowLog(server.slow_recall_s)
    app.add_middleware(Following)
    for router in routes.ROUTERS:
        app.include_router(router, prefix=base)
    transport.install(app, settings)
    if server.inspector:
        inspector.install(app, base)
    return app
