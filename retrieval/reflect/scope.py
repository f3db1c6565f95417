"""What a reflect may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from retrieval.types import Filters


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run may see. No argument of a tool and no memory widens it.

    `filters`: fact types, tags, tag groups, as_of. `created_before`: only memories that were stored
    before this time. `models`: whether mental models are looked at; `without_models` are not.
    """

    filters: Filters = field(default_factory=Filters)
    created_before: datetime | None = None
    models: bool = True
    without_models: frozenset[str] = frozenset()
