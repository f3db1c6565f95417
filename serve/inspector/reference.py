"""The pages that show the API (/docs, /redoc), with all that they load from this server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_redoc_html
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from serve.inspector.assets import answer

ASSETS, LOOK = "/docs-assets", "/docs-look"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Swagger UI writes styles; its scripts are files, and ask nobody but this server."""
_OURS = ("app.css", "theme.js", "icon.svg", "reference/reference.css", "reference/reference.js")


def install(app: FastAPI, base: str) -> None:
    """Adds both pages and what they load, below `base`; the root leads there."""
    folder = Path(fastapi_offline.__file__).parent / "static"
    app.mount(f"{base}{ASSETS}", StaticFiles(directory=folder), name="docs-assets")
    app.add_api_route(f"{base}{LOOK}/{{path:path}}", look, include_in_schema=False)
    for path, page in (("/docs", docs), ("/redoc", redoc)):
        app.add_api_route(f"{base}{path}", page, include_in_schema=False)
        if base:
            app.add_api_route(path, _leading_to(f".{base}{path}"), include_in_schema=False)
    if base:
        app.add_api_route(f"{base}/openapi.json", openapi, include_in_schema=False)


def _leading_to(place: str) -> Callable[[], Awaitable[Response]]:
    async def led() -> Response:
        return RedirectResponse(place, 307)

    return led


async def docs(request: Request) -> Response:
    return answer("reference/index.html", request, HEADERS)


async def look(path: str, request: Request) -> Response:
    if path not in _OURS:
        raise HTTPException(404, "there is nothing at this address: /docs lists the API")
    return answer(path, request, HEADERS)


async def openapi(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


async def redoc(request: Request) -> HTMLResponse:
    return get_redoc_html(
        openapi_url="openapi.json",
        title=request.app.title,
        redoc_js_url=f"{ASSETS[1:]}/redoc.standalone.js",
        redoc_favicon_url=f"{ASSETS[1:]}/favicon.png",
        with_google_fonts=False,
    )
