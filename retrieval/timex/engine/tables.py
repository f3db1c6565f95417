"""The word lists of `languages/`, as they are written."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def word_lists(name: str) -> dict[str, Any]:
    """The list `name`, read anew: whoever makes something of it keeps that."""
    folder = files("retrieval.timex") / "languages"
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
