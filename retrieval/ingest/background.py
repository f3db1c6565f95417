"""Processes that do long work beside a server."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICENESS = 10


def behind_others() -> None:
    """This process has the processor when others leave it: a server's answers do not wait for it.

    Linux weighs sessions against each other before it looks at niceness, so both are set.
    """
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError):
        if os.getsid(0) == os.getpid():
            Path("/proc/self/autogroup").write_text(str(NICENESS))
