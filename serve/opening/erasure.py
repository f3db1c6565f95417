"""Erasures as the settings want them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retrieval.ingest.operations.worker import Handler
from retrieval.lifecycle.erasure.ledger import Ledger
from retrieval.lifecycle.erasure.running import Eraser, handlers
from serve.settings import Settings


def open_ledger(settings: Settings) -> Ledger | None:
    """What keeps deletions outside of the database, if anything does."""
    path = settings.erasure.erasure_ledger
    return None if path is None else Ledger(Path(path))


def open_eraser(settings: Settings) -> Mapping[str, Handler]:
    """What does erasures."""
    key = settings.erasure.erase_signing_key
    return handlers(Eraser(None if key is None else key.get_secret_value()))
