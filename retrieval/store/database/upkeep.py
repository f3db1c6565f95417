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
    possible. Never raises FourfoldError: it is nobody's work that fails.

    Where the pool's role may not, autovacuum does it in its own time.
    """
    for table in tables:
        try:
            if not await read(pool, lambda c, t=table: c.fetchval(_MAY, t)):  # type: ignore[misc]
                log.info("%s of %s is left to autovacuum: this role may not", command, table)
                return False
            await read(pool, lambda c, t=table: c.execute(f"{command} (skip_locked) {t}"))  # type: ignore[misc]
        except FourfoldError as error:
            log.warning("%s of %s failed: %s", command, table, error)
            return False
    return True


# Without the right PostgreSQL only warns, and does nothing. Until version 17 it had no name.
_MAY = """
select case when current_setting('server_version_num')::int >= 170000
        then has_table_privilege(c.oid, 'MAINTAIN') else false end
    or pg_has_role(c.relowner, 'USAGE') or pg_has_role(d.datdba, 'USAGE')
from pg_class c, pg_database d
where c.oid = $1::text::regclass and d.datname = current_database()"""
