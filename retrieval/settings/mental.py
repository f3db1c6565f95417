"""What can be tuned in mental models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

RefreshInterval = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Seconds."""


@dataclass(frozen=True, slots=True)
class MentalSettings:
    """Everything a refresh reads."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    mental_model_refresh_concurrency: Annotated[int, Field(ge=1, le=1000)] = 8
    """Refreshes at once per process that works on operations."""
    mental_model_refresh_tick_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """How often the schedules of mental models are looked at, in seconds."""
    mental_model_min_refresh_interval_seconds: RefreshInterval = 0
    """Least seconds between two refreshes of one model that nobody asked for; a bank or a trigger
    may say otherwise."""
    mental_model_refresh_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """Most seconds of one refresh."""
    enable_mental_model_history: bool = True
    """Keep what a document was before."""
    mental_model_history_max_entries: Annotated[int, Field(ge=0, le=50)] = 50
    """How many earlier contents of a document are kept."""
