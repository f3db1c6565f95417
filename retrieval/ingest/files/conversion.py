"""The text of a file, by a process of its own (retrieval.ingest.files.child)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from retrieval.errors import InvalidInput
from retrieval.ingest.files.child import LIMIT_S, MEMORY_BYTES
from retrieval.ingest.files.detection import Kind

START_S = 10.0
"""For the start of the process and its libraries, beside LIMIT_S of its work."""

_threads = ThreadPoolExecutor(32, "conversion")
"""They wait for processes, of which operations start as many as they have slots."""


class NotConverted(InvalidInput):
    """Final: the sentence goes on from the file's name."""


async def converted(file: IO[bytes], kind: Kind, limit_s: float = LIMIT_S + START_S) -> str:
    """The text of a file that has a descriptor. NotConverted. Cancelling ends the process."""
    conversion = _Conversion(file, kind)
    running = asyncio.get_running_loop().run_in_executor(_threads, conversion.run)
    try:
        async with asyncio.timeout(limit_s):
            error, found = await asyncio.shield(running)
    except TimeoutError:
        raise NotConverted(f"takes longer than {LIMIT_S} s to be read") from None
    finally:
        conversion.end()
        await asyncio.wait([running])
    if error:
        raise NotConverted(error)
    return found


class _Conversion:
    """One process, started and heard out in a thread: a loop that starts one itself stands still
    for as long as it takes to copy the server's page tables, some 0.3 s for 1 GB."""

    def __init__(self, file: IO[bytes], kind: Kind) -> None:
        self._file = file
        self._kind = kind
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> tuple[str, str]:
        """(what is wrong, the text)."""
        self._file.seek(0)
        with self._lock:
            if self._ended:
                return "was not read", ""
            self._process = process = self._start()
        with process:
            assert process.stdout is not None
            head = process.stdout.readline()
            content = process.stdout.read()
        if not head.endswith(b"\n"):
            return f"cannot be read within {LIMIT_S} s and {MEMORY_BYTES >> 30} GB of memory", ""
        if error := json.loads(head).get("error"):
            return error, ""
        found = content.decode()
        if not found.strip():
            return (
                "holds no text; what is only scanned needs text recognition,"
                " which is not built here"
            ), ""
        return "", found

    def end(self) -> None:
        """Ends the process if it still runs; one that was not started never will be."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        call = f"from retrieval.ingest.files.child import main; main({self._kind!r})"
        return subprocess.Popen(
            [sys.executable, "-c", call],
            stdin=self._file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )


def environment() -> dict[str, str]:
    """Nothing of the server's own, keys above all."""
    return {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
