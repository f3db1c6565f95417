"""Where log lines go, and how they look."""

from __future__ import annotations

import logging
import os
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

import orjson

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


def setup(settings: Settings) -> None:
    """Routes this process's log of our own packages. Calling it again changes nothing."""
    path = os.environ.get(LOG_FILE)
    handler = logging.FileHandler(path, delay=True) if path else logging.StreamHandler()
    handler.setFormatter(JsonLines() if settings.server.log_format == "json" else TextLines())
    for name in ("serve", "retrieval", "models"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.propagate = False
        logger.setLevel(settings.server.log_level.upper())
