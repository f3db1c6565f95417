"""`fourfold tenants`: who uses the server, and what each of them may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

WithPool: TypeAlias = Callable[[Path | None, Path, Callable[[Any], Awaitable[Any]]], Any]
"""Runs a coroutine function with a pool on the database of (configuration, data folder)."""

Config = Annotated[
    Path | None, typer.Option(envvar="FOURFOLD_CONFIG", help="Serve application file.")
]
Data = Annotated[Path, typer.Option(envvar="FOURFOLD_DATA", help="Data folder.")]
_DATA = Path(".fourfold")


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""
    commands = typer.Typer(no_args_is_help=True, help="Tenants and what each of them may do.")
    app.add_typer(commands, name="tenants")

    @commands.command("list")
    def list_tenants(config: Config = None, data: Data = _DATA) -> None:
        """List tenants: their valid keys, their own limits."""
        from retrieval.store import limits

        for tenant, keys, own in with_pool(config, data, limits.listed):
            typer.echo(f"{tenant}  {keys} keys  {_said(own)}")

    @commands.command("limit")
    def limit(
        tenant: str,
        recalls_at_once: Annotated[int | None, typer.Option(help="Running and waiting.")] = None,
        recalls_per_s: Annotated[float | None, typer.Option(help="Sustained.")] = None,
        recall_burst: Annotated[int | None, typer.Option(help="At once, after a pause.")] = None,
        writes_at_once: Annotated[int | None, typer.Option(help="Running and waiting.")] = None,
        writes_per_s: Annotated[float | None, typer.Option(help="Sustained.")] = None,
        write_burst: Annotated[int | None, typer.Option(help="At once, after a pause.")] = None,
        max_body_bytes: Annotated[int | None, typer.Option(help="Of one request.")] = None,
        max_items: Annotated[int | None, typer.Option(help="Of one retain or import.")] = None,
        max_stored_bytes: Annotated[
            int | None, typer.Option(help="Of all its banks; above it writes are refused.")
        ] = None,
        unset: Annotated[
            list[str] | None, typer.Option(help="Take this limit away; may be repeated.")
        ] = None,
        config: Config = None,
        data: Data = _DATA,
    ) -> None:
        """Set limits of a tenant's own; 0 = no limit. Servers follow within seconds.

        Rates and requests at once hold for all server processes together.
        """
        from retrieval.store import limits

        given = {
            "recalls_at_once": recalls_at_once,
            "recalls_per_s": recalls_per_s,
            "recall_burst": recall_burst,
            "writes_at_once": writes_at_once,
            "writes_per_s": writes_per_s,
            "write_burst": write_burst,
            "max_body_bytes": max_body_bytes,
            "max_items": max_items,
            "max_stored_bytes": max_stored_bytes,
        }
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        changes |= {name.replace("-", "_"): None for name in unset or ()}
        own = with_pool(config, data, lambda pool: limits.change(pool, tenant, changes))
        typer.echo(f"{tenant}  {_said(own)}")


def _said(own: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in own.items()) or "no limits of its own"
