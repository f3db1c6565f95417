"""`fourfold keys`: API keys, what they may do and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool

if TYPE_CHECKING:
    from retrieval.store.tenants import ApiKey


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""
    commands = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys.")
    app.add_typer(commands, name="keys")

    @commands.command("create")
    def create_key(
        tenant: Annotated[str, typer.Option(help="Tenant of the key; created if new.")] = "default",
        label: Annotated[str, typer.Option(help="A note to recognise the key by.")] = "",
        scope: Annotated[
            list[str] | None,
            typer.Option(
                help="read, write, admin or operator; repeatable. Default: the first three."
            ),
        ] = None,
        days: Annotated[
            float | None, typer.Option(min=0.0001, help="How long it is valid; default: for ever.")
        ] = None,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Create a key and print it, once.

        To rotate a key, create a second, give it out, and revoke the first once `keys list` shows
        that it is not used any more.
        """
        from retrieval.store import tenants as stored

        ends = None if days is None else datetime.now(UTC) + timedelta(days=days)
        scopes = tuple(scope or stored.TENANTS_SCOPES)
        key = with_pool(
            config,
            data,
            lambda pool: stored.create_key(pool, tenant, label, scopes=scopes, expires_at=ends),
        )
        typer.echo(key)

    @commands.command("list")
    def list_keys(
        tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """List keys by id. The keys themselves are not stored."""
        from retrieval.store import tenants as stored

        for key in with_pool(config, data, lambda pool: stored.list_keys(pool, tenant)):
            typer.echo(
                f"{key.key_id}  {key.tenant_id}  {key.created_at}  {_state(key)}"
                f"  {','.join(key.scopes)}  last used {key.last_used_at or 'never'}  {key.label}"
            )

    @commands.command("revoke")
    def revoke_key(
        key: Annotated[str, typer.Argument(help="The key, or its id.")],
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Revoke a key, given in full or by its id."""
        from retrieval.store import tenants as stored

        with_pool(config, data, lambda pool: stored.revoke_key(pool, key))
        typer.echo("revoked: it stops working within seconds")


def _state(key: ApiKey) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at}"
    return f"valid until {key.expires_at}" if key.expires_at else "valid"
