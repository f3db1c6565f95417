"""The files of the inspector's pages, in memory: small, compressed once, told apart by content."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    compressed: bytes
    etag: str
    media_type: str


@cache
def assets() -> Mapping[str, Asset]:
    """By path below the page's address."""
    return dict(_found(files("serve.inspector").joinpath("static"), ""))


def _found(folder: Traversable, before: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        path = f"{before}{entry.name}"
        if entry.is_dir():
            yield from _found(entry, f"{path}/")
        elif (kind := entry.name.rpartition(".")[2]) in _TYPES:
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            yield path, Asset(body, gzip.compress(body, 9, mtime=0), etag, _TYPES[kind])


def answer(path: str, request: Request, headers: Mapping[str, str]) -> Response:
    """The file with these headers; 304 where the browser has it, 404 where there is none."""
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, "the inspector has no such file")
    headers = {**headers, "ETag": asset.etag, "Vary": "Accept-Encoding"}
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    body = asset.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = asset.compressed, "gzip"
    return Response(body, 200, headers, asset.media_type)
