"""Where the command line prints: as wide as the terminal, and without line ends of its own in a
pipe or a file, where a path that is cut in two finds nothing."""

from __future__ import annotations

from rich.console import Console

_UNBOUNDED = 100_000


def console(stderr: bool = False) -> Console:
    """The console of a command's output."""
    out = Console(stderr=stderr)
    return out if out.is_terminal else Console(stderr=stderr, width=_UNBOUNDED)
