"""Which version of this program runs."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def program() -> str:
    """Its version as it was installed, which is looked for in folders: once. "0" in a checkout that
    was not."""
    try:
        return version("fourfold")
    except PackageNotFoundError:
        return "0"
