"""The HTTP application, over whatever services it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from serve import errors, routes
from serve.routes.service import API_VERSION
from serve.routing import Addresses
from serve.services import Services
from serve.settings import Settings


def create(settings: Settings, services: Services | None = None) -> FastAPI:
    """The application. `services` may come later, as `app.state.services`, before it serves."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield

    app = FastAPI(
        title="Fourfold",
        summary="A GPU-batched recall server for the memory of AI agents.",
        version=API_VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.max_body_bytes = settings.server.max_body_bytes
    errors.install(app)
    base = settings.server.base_path.rstrip("/")
    app.add_middleware(Addresses, banks=f"{base}/v1/default/banks/")
    for router in routes.ROUTERS:
        app.include_router(router, prefix=base)
    return app
