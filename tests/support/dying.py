"""A process that dies between any two statements to the database, as far as a test can have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import asyncpg
import pytest


class Killed(BaseException):
    """Nobody is to catch it."""


class Dying:
    """Dies before the n-th statement that the work inside `before` sends to the database.

    Tasks that the work starts count as its own; whatever else runs meanwhile does not.
    """

    METHODS = ("execute", "fetch", "fetchrow", "fetchval", "copy_records_to_table", "executemany")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = 0
        self._inside = ContextVar("inside", default=False)
        for name in self.METHODS:
            original = getattr(asyncpg.Connection, name)
            monkeypatch.setattr(asyncpg.Connection, name, self._wrapped(original))

    @property
    def survived(self) -> bool:
        """Whether the last work ended before its n-th statement."""
        return self._left > 0

    @contextmanager
    def before(self, statement: int) -> Iterator[None]:
        self._left = statement
        token = self._inside.set(True)
        try:
            yield
        except* Killed:
            pass
        finally:
            self._inside.reset(token)

    def _wrapped(self, original: Any) -> Any:
        async def method(connection: Any, *args: Any, **more: Any) -> Any:
            if self._inside.get() and self._left:
                self._left -= 1
                if not self._left:
                    raise Killed
            return await original(connection, *args, **more)

        return method
