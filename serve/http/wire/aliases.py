"""Bodies about aliases of banks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serve.http.wire.common import Body


class AliasBody(Body):
    """One more id of a bank."""

    alias: Annotated[str, Field(min_length=1, max_length=512)]
    primary: bool = False
    """Show the bank under it."""


class PrimaryBody(Body):
    """Is the bank shown under this alias?"""

    primary: bool
