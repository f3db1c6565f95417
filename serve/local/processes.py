"""The processes that one server starts: kept together, and all gone when it stops."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

NOTE = "run.json"
RUN = "FOURFOLD_RUN"
"""Environment variable of everything that a run starts: the run's folder."""

LOADING = "loading"
"""What /health says until the start is done."""

_PREFIX = "fourfold-"
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class InUse(RuntimeError):
    """The data folder or the port belongs to another server."""


def adopt_orphans() -> None:
    """From now on, descendants whose parent dies become our children, where the system can do
    that, so that none is lost from sight."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def return_freed_memory() -> None:
    """Gives the system back what this process has freed, where the C library can (glibc): opening
    models leaves a hundred megabytes that nobody needs again."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def end_descendants(patience_s: float) -> None:
    """Ends every process that we started and that still runs: asked first, then killed."""
    stop_at = time.monotonic() + patience_s
    while found := psutil.Process().children(recursive=True):
        late = time.monotonic() > stop_at
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill() if late else process.terminate()
        psutil.wait_procs(found, timeout=0.5)
        if late and time.monotonic() > stop_at + 2:
            return


@contextmanager
def owned(data: Path) -> Iterator[None]:
    """Holds the data folder for this process. InUse if another server has it."""
    _private(data)
    with (data / "server.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"another server runs on {data}: stop it, or choose DATA=") from None
        yield


def _private(data: Path) -> None:
    """Makes the data folder, or shuts one of ours to everybody else: it holds what tenants stored.

    A folder that holds other things is left as it is.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = {entry.name for entry in data.iterdir()}
    if (not inside or inside & {"server.lock", "postgres"}) and data.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):  # another account's: its owner sees to it
            data.chmod(0o700)


def note(data: Path, **facts: str) -> None:
    """Writes down what others may need to know of the server that runs on `data`."""
    file = data / NOTE
    known = _read(file) | facts | {"pid": os.getpid()}
    file.touch(0o600)
    file.write_text(json.dumps(known))


def noted(data: Path, name: str) -> str | None:
    """What the server that runs on `data` wrote down; None if none runs."""
    facts = _read(data / NOTE)
    with contextlib.suppress(psutil.Error, KeyError):
        if facts["pid"] != os.getpid() and psutil.Process(facts["pid"]).is_running():
            return facts.get(name) or None
    return None


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        if isinstance(found, dict):
            return found
    return {}


@contextmanager
def run_folder(data: Path) -> Iterator[Path]:
    """A short-lived folder for sockets and logs of this run, removed at the end.

    Not inside `data`: the path of a Unix socket may have 107 characters at most. What a killed run
    left behind is removed first.
    """
    if left := _read(data / NOTE).get("folder"):
        _end_run(left)
        _remove(Path(left))
    (data / NOTE).unlink(missing_ok=True)
    short = "/tmp" if os.access("/tmp", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=short))
    try:
        note(data, folder=str(folder))
        yield folder
    finally:
        _remove(folder)
        (data / NOTE).unlink(missing_ok=True)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """While the block runs, processes of this run know that the server is not ready yet."""
    mark = folder / LOADING
    mark.touch()
    yield
    mark.unlink()


def is_loading() -> bool:
    """Whether the run that this process belongs to is not ready yet."""
    folder = os.environ.get(RUN)
    return folder is not None and (Path(folder) / LOADING).exists()


def _end_run(folder: str) -> None:
    """Ends what a killed run left behind: the processes that carry its folder's name."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(RUN) == folder:
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=5)


def _remove(folder: Path) -> None:
    if not folder.name.startswith(_PREFIX):
        return
    for _ in range(3):  # a process on its way out may still write
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.2)
