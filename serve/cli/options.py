"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

Url = Annotated[str, typer.Option(envvar="FOURFOLD_URL", help="Address of the server.")]
Key = Annotated[
    str | None, typer.Option(envvar="FOURFOLD_API_KEY", help="API key, where the server needs one.")
]
Config = Annotated[
    Path | None, typer.Option(envvar="FOURFOLD_CONFIG", help="Configuration file, as in configs/.")
]
Data = Annotated[
    Path, typer.Option(envvar="FOURFOLD_DATA", help="Folder with the server's data and log.")
]

DEFAULT_URL = "http://127.0.0.1:8888"
DEFAULT_DATA = Path(".fourfold")

WithPool: TypeAlias = Callable[[Path | None, Path, Callable[[Any], Awaitable[Any]]], Any]
"""Runs a coroutine function with a pool on the database of (configuration, data folder)."""
