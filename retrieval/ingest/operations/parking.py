"""Operations that wait for something outside: they hold no slot and lose no attempt meanwhile."""

from __future__ import annotations


class Parked(Exception):
    """The operation cannot go on for `wait_s` seconds, through no fault of its own."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
