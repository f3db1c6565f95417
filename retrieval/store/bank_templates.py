"""What a new bank begins with, where the server's settings name a template for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retrieval.store.database.pool import Connection, Pool, write


async def keep(pool: Pool, content: Mapping[str, Any] | None) -> None:
    """Stores what new banks begin with, from now on: {settings, mental_models, directives}, all
    checked; None: nothing."""

    async def work(connection: Connection) -> None:
        if content is None:
            await connection.execute("delete from default_bank_template")
            return
        await connection.execute(
            "insert into default_bank_template (content) values ($1)"
            " on conflict (one) do update set content = excluded.content",
            dict(content),
        )

    await write(pool, work)


async def kept(connection: Connection) -> Mapping[str, Any]:
    """What new banks begin with; nothing where there is no template."""
    found: Mapping[str, Any] | None = await connection.fetchval(
        "select content from default_bank_template"
    )
    return found or {}


async def furnish(connection: Connection, bank: int, content: Mapping[str, Any]) -> None:
    """Gives a bank that was just made the template's directives, and its mental models, which are
    written as soon as somebody can."""
    await connection.execute(
        "insert into directives (bank, id, name, content, priority, is_active, tags)"
        " select $1, gen_random_uuid(), name, content, priority, is_active, tags"
        " from jsonb_populate_recordset(null::directives, $2)",
        bank,
        list(content.get("directives", ())),
    )
    await connection.execute(
        "insert into mental_models (bank, id, name, source_query, tags, max_tokens, trigger,"
        " pending_refresh, next_refresh_at, next_full_refresh_at)"
        " select $1, id, name, source_query, tags, max_tokens, trigger, true,"
        " case when trigger->>'refresh_cron' is not null then now() end,"
        " case when trigger->>'full_refresh_cron' is not null then now() end"
        " from jsonb_populate_recordset(null::mental_models, $2)",
        bank,
        list(content.get("mental_models", ())),
    )
