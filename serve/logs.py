"""Where log lines go, and how they look."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime

import orjson

from serve.settings import Settings

LOG_FILE = "FOURFOLD_LOG_FILE"
"""Environment variable: the file that all processes of one server append to."""


class JsonLines(logging.Formatter):
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
    handler.setFormatter(
        JsonLines()
        if settings.server.log_format == "json"
        else logging.Formatter("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")
    )
    for name in ("serve", "retrieval", "models"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.propagate = False
        logger.setLevel(settings.server.log_level.upper())
