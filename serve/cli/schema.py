"""`fourfold migrate` and `fourfold epoch`: what is done to a database as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool
from serve.settings import Settings


def add_to(
    app: typer.Typer,
    settings_of: Callable[[Path | None], Settings],
    fail: Callable[[object], typer.Exit],
    with_pool: WithPool,
) -> None:
    """Adds the commands."""

    @app.command()
    def migrate(
        plan: Annotated[
            bool, typer.Option("--plan", help="Say what would be done, and do nothing.")
        ] = False,
        to: Annotated[
            int | None, typer.Option(help="Number of the last migration to apply; default: all.")
        ] = None,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Bring the database's schema up to date.

        Run it before starting the new version; servers of the old version keep working.
        """
        from retrieval.errors import FourfoldError
        from serve.cli import launcher
        from serve.opening.database import bring_up_to_date

        try:
            with launcher.database(settings_of(config), data) as settings:
                lacking = asyncio.run(_missing(settings, to))
                for line in lacking or ["nothing to do"]:
                    typer.echo(line)
                if not plan:
                    number = asyncio.run(bring_up_to_date(settings, to))
                    typer.echo(f"the schema is at {number:04d}")
        except FourfoldError as error:
            raise fail(error) from None

    @app.command()
    def epoch(config: Config = None, data: Data = DEFAULT_DATA) -> None:
        """Make replicas forget what they hold of banks.

        For a database that was restored, or that lost commits in a failover. Run it before
        anything is served from that database.
        """
        from retrieval.store import epoch as stored

        name = with_pool(config, data, stored.renew)
        typer.echo(f"epoch {name}: replicas reload each bank when it is next used")


async def _missing(settings: Settings, to: int | None) -> list[str]:
    from retrieval.store.database import migrate
    from retrieval.store.database.pool import open_pool
    from serve.opening.database import pool_settings

    texts = {number: sql for number, _, sql in migrate.known()}
    pool = await open_pool(pool_settings(settings))
    try:
        return [
            f"{number:04d}_{name}  {_bears(migrate.oldest_program(texts[number]))}"
            for number, name in await migrate.missing(pool, to)
        ]
    finally:
        await pool.finish()


def _bears(oldest: int | None) -> str:
    if oldest is None:
        return "older programs stop: no way back but a restore"
    return f"programs from {oldest:04d} on keep working"
