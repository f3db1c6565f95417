"""The part of a list that is asked for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

PAGE_MAX, OFFSET_MAX = 1_000, 10_000_000
"""Entries of a page; entries before it."""

PageSize = Annotated[int, Query(ge=0, le=PAGE_MAX)]
Offset = Annotated[int, Query(ge=0, le=OFFSET_MAX)]
