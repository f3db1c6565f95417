"""`fourfold hot`: settings that change while servers run."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool

Name = Annotated[str, typer.Argument(help="Of a setting that `fourfold hot list` shows.")]


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""
    commands = typer.Typer(
        no_args_is_help=True, help="Settings that running servers pick up within five seconds."
    )
    app.add_typer(commands, name="hot")

    @commands.command("list")
    def list_hot(config: Config = None, data: Data = DEFAULT_DATA) -> None:
        """List what is set, and what can be."""
        from retrieval.store import hot_settings
        from serve.opening.hot import NAMES

        there = with_pool(config, data, hot_settings.everything)
        for name in NAMES:
            said = json.dumps(there[name]) if name in there else "as started"
            typer.echo(f"{name:24} {said}")

    @commands.command("set")
    def set_hot(
        name: Name,
        value: Annotated[str, typer.Argument(help="Its value: a number.")],
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Set NAME to VALUE for all servers of this database.

        Whatever each of them was started with.
        """
        from retrieval.errors import InvalidInput
        from retrieval.store import hot_settings
        from serve.opening.hot import checked

        try:
            given = checked(name, _read(value))
        except InvalidInput as error:
            typer.secho(f"error: {error}", err=True, fg="red")
            raise typer.Exit(1) from None
        with_pool(config, data, lambda pool: hot_settings.put(pool, name, given))
        typer.echo(f"{name} {json.dumps(given)}, in force within 5 s")

    @commands.command("unset")
    def unset_hot(name: Name, config: Config = None, data: Data = DEFAULT_DATA) -> None:
        """Return NAME to what each server was started with."""
        from retrieval.store import hot_settings

        if not with_pool(config, data, lambda pool: hot_settings.remove(pool, name)):
            typer.secho(f"error: {name} is not set", err=True, fg="red")
            raise typer.Exit(1)
        typer.echo(f"{name} as started, within 5 s")


def _read(value: str) -> Any:
    """A number where it is one."""
    try:
        return json.loads(value)
    except ValueError:
        return value
