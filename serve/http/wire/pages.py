"""The part of a list that is asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

PAGE_MAX, OFFSET_MAX = 1_000, 10_000_000
"""Entries of a page; entries before it."""

PageSize = Annotated[int, Query(ge=0, le=PAGE_MAX)]
Offset = Annotated[int, Query(ge=0, le=OFFSET_MAX)]
Cursor = Annotated[str | None, Query(max_length=4_000)]
"""`next` of a list that was counted `upto`: the page behind it."""
Count = Literal["exact", "upto"]
"""How far a list is counted: to the end (also where nothing is said), or to 10,000; then it says
`next`."""
