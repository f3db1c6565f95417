"""Holding off the collection of cycles while a large write makes its values.

A full collection walks everything that is alive and stops all threads for as long: with the
hundred thousand facts, links and ids of one import, a quarter of a second again and again. None of
them is part of a cycle.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 500
"""Items from which on a write counts as large."""

_LONGEST_S: Final = 30.0
"""Where large writes never end, the young are collected so often."""

_lock = threading.Lock()
_holders = 0
_since = 0.0


@contextmanager
def held_off(items: int) -> Iterator[None]:
    """No full collection inside, if there are MANY items. May be nested and overlap."""
    if items < MANY:
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _holders, _since
    with _lock:
        if not _holders:
            if not gc.isenabled():  # somebody else's decision
                return
            gc.disable()
            _since = time.monotonic()
        _holders += 1


def _end() -> None:
    global _holders, _since
    with _lock:
        if not _holders:
            return
        _holders -= 1
        if not _holders:
            gc.enable()
        elif time.monotonic() - _since > _LONGEST_S:
            _since = time.monotonic()
            gc.collect(1)
