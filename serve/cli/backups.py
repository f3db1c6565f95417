"""`fourfold backup`, `restore`, `after-restore`: a whole server's database, out and in again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool
from serve.settings import Settings, load

if TYPE_CHECKING:
    from retrieval.lifecycle.transfer.afterwards import Replay
    from retrieval.lifecycle.transfer.backup import Backup
    from retrieval.store.database.pool import Pool

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A backup.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def add_to(app: typer.Typer, with_pool: WithPool, with_database: Any, fail: Any) -> None:
    """Adds the commands. `with_database`: as `with_pool`, for work that is told the settings, too,
    and finds the database as it is."""
    commands = typer.Typer(
        cls=_Backup, no_args_is_help=True, help="Back up the database, or verify a backup."
    )
    app.add_typer(commands, name="backup")

    @commands.command("make")
    def make(
        file: Annotated[Path, typer.Argument(help="The backup to write.")],
        as_json: AsJson = False,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Write the whole database to a file.

        The server keeps running.
        """
        from retrieval.lifecycle.transfer.backup import backup

        async def work(pool: Pool, settings: Settings) -> Backup:
            return await backup(pool, _dsn(settings), file)

        made: Backup = with_database(config, data, work)
        if settings_embedded(config):
            typer.echo(
                "what is written after this is lost with the database: the embedded one keeps no"
                " log to restore from; run this often, or use a PostgreSQL with WAL archiving",
                err=True,
            )
        _show({"file": str(file), **_told(made)}, as_json)

    @commands.command("verify")
    def verify(
        file: File,
        restore_to: Annotated[
            str | None,
            typer.Option(help="DSN of an empty database: restore there, count, hash, ask."),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Check a backup.

        Its hash and table of contents; with --restore-to all that it holds.
        """
        from retrieval.errors import FourfoldError
        from retrieval.lifecycle.transfer import backup

        try:
            found = backup.verify(file)
            told = _told(found)
            if restore_to is not None:
                told |= _restored(file, restore_to)
        except FourfoldError as error:
            raise fail(error) from None
        _show({"file": str(file), **told}, as_json)

    @app.command()
    def restore(
        file: File,
        into: Annotated[
            str | None, typer.Option(help="DSN of the database; else the configured one.")
        ] = None,
        replace: Annotated[
            bool, typer.Option("--replace", help="Replace the banks that are there.")
        ] = False,
        as_json: AsJson = False,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Restore a backup into a database.

        All of it, or nothing; no server may be running on that database.
        """
        from retrieval.lifecycle.transfer import afterwards, backup
        from retrieval.store.database.migrate import migrate

        async def work(pool: Pool, settings: Settings) -> dict[str, Any]:
            found = await backup.restore(file, pool, _dsn(settings), replace=replace)
            await migrate(pool)
            return {**_told(found), **(await afterwards.mend(pool, _replay(settings))).wire()}

        _show(with_database(config, data, work, into), as_json)

    @app.command("after-restore")
    def after_restore(
        as_json: AsJson = False, config: Config = None, data: Data = DEFAULT_DATA
    ) -> None:
        """Repair a database that other means restored."""
        from retrieval.lifecycle.transfer import afterwards

        replay = _replay(load(config))
        done = with_pool(config, data, lambda pool: afterwards.mend(pool, replay))
        _show(done.wire(), as_json)


class _Backup(typer.core.TyperGroup):
    """`backup FILE` is `backup make FILE`."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["make", *args]
        return super().parse_args(context, args)


def _replay(settings: Settings) -> Replay | None:
    """What erases again what was erased since, by the ledger of the settings; None without one."""
    from retrieval.lifecycle.erasure import ledger

    path = settings.erasure.erasure_ledger
    if path is None or not Path(path).exists():
        return None

    async def replay(pool: Pool) -> int:
        return (await ledger.replay(pool, Path(path))).entries

    return replay


def settings_embedded(config: Path | None) -> bool:
    return load(config).database.database_url is None


def _dsn(settings: Settings) -> str:
    assert settings.database.database_url is not None
    return settings.database.database_url.get_secret_value()


def _told(found: Backup) -> dict[str, Any]:
    content = found.content
    return {
        "made_at": content["made_at"],
        "versions": content["versions"],
        "models": content["models"],
        "banks": len(content["banks"]),
        "memories": sum(bank["memories"] for bank in content["banks"]),
        "digest": content["digest"],
    }


def _restored(file: Path, dsn: str) -> dict[str, Any]:
    """A restore into a scratch database, every table compared, every bank opened, one asked."""
    import asyncio

    from retrieval.errors import InvalidInput
    from retrieval.lifecycle.transfer import afterwards, backup, trial
    from retrieval.store.database.migrate import migrate
    from retrieval.store.database.pool import PoolSettings, open_pool

    async def work() -> dict[str, Any]:
        schema = backup.opened(file).schema
        pool = await open_pool(PoolSettings(dsn, schema=schema, min_size=1, max_size=4))
        try:
            made = await backup.restore(file, pool, dsn)
            if wrong := await backup.compare(pool, made):
                raise InvalidInput("; ".join(wrong[:10]))
            await migrate(pool)
            await afterwards.mend(pool)
            return {"restored": "the same", **await trial.ask(pool)}
        finally:
            await pool.finish()

    return asyncio.run(work())


def _show(told: Mapping[str, Any], as_json: bool) -> None:
    import orjson

    if as_json:
        typer.echo(orjson.dumps(dict(told)).decode())
        return
    for name, value in told.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        if isinstance(value, list):
            value = ", ".join(map(str, value)) or "-"
        typer.echo(f"{name}: {value}")
