"""What new banks begin with, as the settings want it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from retrieval.errors import InvalidInput
from retrieval.lifecycle.transfer.templates import for_new_banks
from retrieval.store import bank_templates
from retrieval.store.database.pool import Pool
from serve.settings import Settings

NAME = "default_bank_template"


async def keep_default_template(settings: Settings, pool: Pool) -> None:
    """Brings what the database knows in line with the settings. InvalidInput for a template that
    cannot be read or applied: then nothing changes."""
    given = settings.transfer.default_bank_template
    content = None
    if given is not None and given.strip():
        try:
            content = for_new_banks(_manifest(given.strip()))
        except InvalidInput as error:
            raise InvalidInput(f"{NAME}: {error}", NAME) from None
    await bank_templates.keep(pool, content)


def _manifest(given: str) -> Mapping[str, Any]:
    try:
        found = orjson.loads(given if given.startswith("{") else Path(given).read_bytes())
    except OSError as error:
        raise InvalidInput(f"{given[:200]} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError:
        raise InvalidInput("it is no JSON") from None
    if not isinstance(found, dict):
        raise InvalidInput("it is no JSON object")
    return found
