"""The files of the inspector's pages, in memory: small, compressed once, told apart by content."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

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
