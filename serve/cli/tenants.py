"""`fourfold tenants`: who uses the server, and what each of them may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""
    commands = typer.Typer(no_args_is_help=True, help="List tenants and set their limits.")
    app.add_typer(commands, name="tenants")

    @commands.command("list")
    def list_tenants(config: Config = None, data: Data = DEFAULT_DATA) -> None:
        """List tenants, their valid keys and limits."""
        from retrieval.store import limits

        for tenant, keys, own in with_pool(config, data, limits.listed):
            typer.echo(f"{tenant}  {keys} keys  {_said(own)}")

    _delete(commands, with_pool)

    @commands.command("limit")
    def limit(
        tenant: Annotated[str, typer.Argument(help="A tenant's id.")],
        recalls_at_once: Annotated[
            int | None, typer.Option(help="Recalls running or waiting at once.")
        ] = None,
        recalls_per_s: Annotated[float | None, typer.Option(help="Sustained rate.")] = None,
        recall_burst: Annotated[int | None, typer.Option(help="Burst after a pause.")] = None,
        writes_at_once: Annotated[
            int | None, typer.Option(help="Writes running or waiting at once.")
        ] = None,
        writes_per_s: Annotated[float | None, typer.Option(help="Sustained rate.")] = None,
        write_burst: Annotated[int | None, typer.Option(help="Burst after a pause.")] = None,
        reads_at_once: Annotated[
            int | None, typer.Option(help="Lists and single reads running or waiting at once.")
        ] = None,
        reads_per_s: Annotated[float | None, typer.Option(help="Sustained rate.")] = None,
        read_burst: Annotated[int | None, typer.Option(help="Burst after a pause.")] = None,
        max_body_bytes: Annotated[
            int | None, typer.Option(help="Body size of one request.")
        ] = None,
        max_items: Annotated[
            int | None, typer.Option(help="Items of one retain or import.")
        ] = None,
        max_stored_bytes: Annotated[
            int | None,
            typer.Option(help="Stored bytes of all its banks; writes beyond are refused."),
        ] = None,
        unset: Annotated[
            list[str] | None,
            typer.Option(help="Return this limit to the server's default; repeatable."),
        ] = None,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Set a tenant's own limits; 0 means no limit. Servers apply them within seconds.

        Rates and requests at once count across all server processes.
        """
        from retrieval.store import limits

        given = {
            "recalls_at_once": recalls_at_once,
            "recalls_per_s": recalls_per_s,
            "recall_burst": recall_burst,
            "writes_at_once": writes_at_once,
            "writes_per_s": writes_per_s,
            "write_burst": write_burst,
            "reads_at_once": reads_at_once,
            "reads_per_s": reads_per_s,
            "read_burst": read_burst,
            "max_body_bytes": max_body_bytes,
            "max_items": max_items,
            "max_stored_bytes": max_stored_bytes,
        }
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        changes |= {name.replace("-", "_"): None for name in unset or ()}
        own = with_pool(config, data, lambda pool: limits.change(pool, tenant, changes))
        typer.echo(f"{tenant}  {_said(own)}")


def _delete(commands: typer.Typer, with_pool: WithPool) -> None:
    @commands.command("delete")
    def delete(
        tenant: Annotated[str, typer.Argument(help="A tenant's id.")],
        erase: Annotated[
            bool, typer.Option("--erase", help="Really: keys, banks and all that is in them.")
        ] = False,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Delete a tenant and everything that it owns. Its keys stop working within 5 seconds."""
        from retrieval.lifecycle.erasure.running import erase_tenant
        from retrieval.store.tenants import DEFAULT_TENANT
        from serve.opening.erasure import open_ledger
        from serve.settings import load

        if tenant == DEFAULT_TENANT or not erase:
            why = "cannot be deleted" if erase else "stays: add --erase to end him for good"
            typer.secho(f"error: tenant {tenant} {why}", err=True, fg="red")
            raise typer.Exit(1)
        note = open_ledger(load(config))
        done = with_pool(config, data, lambda pool: erase_tenant(pool, tenant, note))
        typer.echo(f"{tenant}: {done['banks']} banks and {done['keys']} keys are gone")


def _said(own: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in own.items()) or "server defaults"
