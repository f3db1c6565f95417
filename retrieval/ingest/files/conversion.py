"""The text of a file, by a process of its own (retrieval.ingest.files.child)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import IO

from retrieval.errors import InvalidInput
from retrieval.ingest.files.child import LIMIT_S, MEMORY_BYTES
from retrieval.ingest.files.detection import Kind

START_S = 10.0
"""For the start of the process and its libraries, beside LIMIT_S of its work."""


class NotConverted(InvalidInput):
    """Final: the sentence goes on from the file's name."""


async def converted(file: IO[bytes], kind: Kind, limit_s: float = LIMIT_S + START_S) -> str:
    """The text of a file that has a descriptor. NotConverted. Cancelling ends the process."""
    call = f"from retrieval.ingest.files.child import main; main({kind!r})"
    file.seek(0)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        call,
        stdin=file,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            answer, _ = await process.communicate()
    except TimeoutError:
        raise NotConverted(f"takes longer than {LIMIT_S} s to be read") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    head, line_end, content = answer.partition(b"\n")
    if not line_end:
        raise NotConverted(
            f"cannot be read within {LIMIT_S} s and {MEMORY_BYTES >> 30} GB of memory"
        )
    if error := json.loads(head).get("error"):
        raise NotConverted(error)
    found = await asyncio.to_thread(content.decode)
    if not found.strip():
        raise NotConverted(
            "holds no text; what is only scanned needs text recognition, which is not built here"
        )
    return found


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
