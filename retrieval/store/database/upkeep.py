"""What is done for whole tables: dead rows taken out, statistics made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from retrieval.errors import FourfoldError
from retrieval.store.database.pool import Pool, read

log = logging.getLogger(__name__)


async def keep_up(pool: Pool, command: Literal["vacuum", "analyze"], tables: Sequence[str]) -> bool:
    """Does it table by table, but for those that somebody else has locked; whether that was
    possible. Never raises FourfoldError: it is nobody's work that fails."""
    for table in tables:
        try:
            await read(pool, lambda c, t=table: c.execute(f"{command} (skip_locked) {t}"))  # type: ignore[misc]
        except FourfoldError as error:
            log.warning("%s of %s failed: %s", command, table, error)
            return False
    return True
