"""`fourfold mcp`: the bridge for clients that start a program, and what to paste into others."""

from __future__ import annotations

from typing import Annotated

import typer


def add_to(app: typer.Typer, url: str) -> None:
    """Adds the command; `url` is where a server answers if nothing else is said."""

    @app.command()
    def mcp(
        bank: Annotated[
            str | None, typer.Option(help="The only bank that tools reach; absent: all.")
        ] = None,
        url: Annotated[
            str, typer.Option(envvar="FOURFOLD_URL", help="Where the server answers.")
        ] = url,
        api_key: Annotated[
            str | None, typer.Option(envvar="FOURFOLD_API_KEY", help="API key, if needed.")
        ] = None,
        print_for: Annotated[
            str | None,
            typer.Option("--print", metavar="CLIENT", help="What to paste into a client's files."),
        ] = None,
    ) -> None:
        """Bridge an MCP client to a running server.

        For clients that start a program and speak MCP over its stdin and stdout.
        """
        import anyio

        from serve.mcp import bridge
        from serve.mcp.snippets import SNIPPETS, ClientTarget

        to = ClientTarget(url, bank, api_key)
        if print_for is None:
            anyio.run(bridge.run, to)
            return
        snippet = SNIPPETS.get(print_for)
        if snippet is None:
            known = ", ".join(sorted(SNIPPETS))
            typer.secho(f"error: no client {print_for!r}; there are: {known}", err=True, fg="red")
            raise typer.Exit(1)
        typer.echo(snippet(to))
