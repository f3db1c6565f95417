"""Where log lines go, and how they look."""

from __future__ import annotations

import fcntl
import logging
import os
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import orjson

from serve import trace
from serve.settings import Settings

ExceptionInfo: TypeAlias = (
    "tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]"
)
LOG_FILE = "FOURFOLD_LOG_FILE"
"""Environment variable: the file that all processes of one server append to."""


class TextLines(logging.Formatter):
    """One line an event, and its traceback below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = super().formatMessage(record)
        request_id = trace.current.get().request_id
        return f"{line} [{request_id}]" if request_id else line

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802
        # Ray replaces the printing of tracebacks inside `logging` in its workers.
        return "".join(traceback.format_exception(*ei)).rstrip()


class JsonLines(TextLines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if request_id := trace.current.get().request_id:
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


class SharedFile(WatchedFileHandler):
    """A file that several processes append to, readable by its owner only. The first that finds it
    full puts it away as `.1` (what was there becomes `.2`, and so on; the last is dropped); the
    others follow with their next line."""

    def __init__(self, path: Path, most_bytes: int, kept: int) -> None:
        self._most, self._kept = most_bytes, kept
        super().__init__(path, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            handle = os.open(path, flags, 0o600)
            with suppress(PermissionError):  # another account's: its owner sees to it
                os.fchmod(handle, 0o600)
            return handle

        # Lines go out whole: several processes write.
        return open(self.baseFilename, "a", encoding="utf-8", opener=private)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the line itself is still written, or its failure reported
            self._put_away()
        super().emit(record)

    def _put_away(self) -> None:
        self.reopenIfNeeded()
        if self.stream is None or os.fstat(self.stream.fileno()).st_size < self._most:
            return
        fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if not os.path.samestat(os.fstat(self.stream.fileno()), os.stat(self.baseFilename)):
                return  # another process was quicker
            for number in range(self._kept, 0, -1):
                source = f"{self.baseFilename}.{number - 1}" if number > 1 else self.baseFilename
                with suppress(FileNotFoundError):
                    os.replace(source, f"{self.baseFilename}.{number}")
            if not self._kept:
                os.unlink(self.baseFilename)
        finally:
            fcntl.flock(self.stream, fcntl.LOCK_UN)


def setup(settings: Settings) -> None:
    """Routes this process's log of our own packages. Calling it again changes nothing."""
    path = os.environ.get(LOG_FILE)
    server = settings.server
    handler = (
        SharedFile(Path(path), server.log_max_bytes, server.log_files_kept)
        if path
        else logging.StreamHandler()
    )
    handler.setFormatter(JsonLines() if settings.server.log_format == "json" else TextLines())
    trace.setup(server.traces_endpoint, server.traces_sampled)
    for name in ("serve", "retrieval", "models"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.propagate = False
        logger.setLevel(settings.server.log_level.upper())
