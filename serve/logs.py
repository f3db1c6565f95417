"""Where log lines go, and how they look."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import traceback
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import orjson

from serve.settings import Settings

ExceptionInfo: TypeAlias = (
    "tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]"
)
LOG_FILE = "FOURFOLD_LOG_FILE"
"""Environment variable: the file that all processes of one server append to."""

MAX_BYTES, KEPT = 32 * 2**20, 3


class TextLines(logging.Formatter):
    """One line an event, and its traceback below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")

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
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


class PrivateFile(logging.handlers.WatchedFileHandler):
    """A file that only its owner reads, opened again when it was moved away (`rotate`)."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


def rotate(file: Path) -> None:
    """Moves the log away once it is MAX_BYTES long, and keeps KEPT of these. The processes that
    write to it open a new one with their next line."""
    with contextlib.suppress(FileNotFoundError):
        if file.stat().st_size < MAX_BYTES:
            return
        for number in range(KEPT - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                file.with_name(f"{file.name}.{number}").replace(
                    file.with_name(f"{file.name}.{number + 1}")
                )
        file.replace(file.with_name(f"{file.name}.1"))


def setup(settings: Settings) -> None:
    """Routes this process's log of our own packages. Calling it again changes nothing."""
    path = os.environ.get(LOG_FILE)
    handler = PrivateFile(path, delay=True) if path else logging.StreamHandler()
    handler.setFormatter(JsonLines() if settings.server.log_format == "json" else TextLines())
    for name in ("serve", "retrieval", "models"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.propagate = False
        logger.setLevel(settings.server.log_level.upper())
