"""Headers that requests to model servers carry for the request that they are made for."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

headers: ContextVar[Mapping[str, str]] = ContextVar("outward_headers", default=MappingProxyType({}))
"""Set by whoever follows requests (W3C Trace Context); empty where nobody does."""
