"""The addresses of the inspector: static files that may do nothing but ask this server."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from serve.inspector.assets import answer

PATH = "/inspector"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def install(app: FastAPI, base: str) -> None:
    """Adds the pages below `base`; a browser that asks for the root is led to them."""

    @app.get(f"{base}/", include_in_schema=False)
    async def root(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(404, "there is nothing at this address: /docs lists the API")
        return RedirectResponse(f".{PATH}/", 307)

    @app.get(f"{base}{PATH}", include_in_schema=False)
    async def without_slash() -> Response:
        return RedirectResponse(f".{PATH}/", 307)

    @app.get(f"{base}{PATH}/{{path:path}}", include_in_schema=False)
    async def file(path: str, request: Request) -> Response:
        return answer(path or "index.html", request, HEADERS)
