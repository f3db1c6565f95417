"""Nothing that a benchmark starts outlives it, not even where the benchmark is killed.

`guarded()` marks this process's environment, which every descendant inherits, and starts a watcher
(this module as a program). When the benchmark is gone, however that came about, the watcher ends
all processes that carry the mark and removes the benchmark's folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MARK = "FOURFOLD_BENCH"
PATIENCE_S = 10.0


@contextmanager
def guarded() -> Iterator[Path]:
    """A temporary folder, and a watcher over everything started inside the block.

    SIGTERM ends the block in order, as Ctrl-C does.
    """
    with tempfile.TemporaryDirectory(prefix="fourfold-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres runs under another account
        watcher = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.guard", name],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is not for it
        )
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        os.environ[MARK] = name
        try:
            yield folder
        finally:
            del os.environ[MARK]
            signal.signal(signal.SIGTERM, before)
            assert watcher.stdin is not None
            watcher.stdin.close()
            watcher.wait(2 * PATIENCE_S)


def sweep(mark: str, patience_s: float = PATIENCE_S) -> None:
    """Ends every other process that carries the mark: asked first, then killed."""
    left = _marked(mark)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(left, timeout=patience_s)
    for process in _marked(mark):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


if __name__ == "__main__":
    sys.stdin.buffer.read()  # ends when the benchmark does: it holds the other side
    sweep(sys.argv[1])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
