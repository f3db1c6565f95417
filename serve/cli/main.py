"""The command line: serve, import, recall, bench, doctor, keys, tenants, openapi."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer

from serve.cli import maintain
from serve.http import tenancy
from serve.settings import Settings, SettingsError, load

T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes break long paths into lines
    help="A recall server for the memory of AI agents.",
)
keys = typer.Typer(no_args_is_help=True, help="API keys of tenants, in the server's database.")
app.add_typer(keys, name="keys")

DEFAULT_URL = "http://127.0.0.1:8888"
Url = Annotated[str, typer.Option(envvar="FOURFOLD_URL", help="Where the server answers.")]
Key = Annotated[str | None, typer.Option(envvar="FOURFOLD_API_KEY", help="API key, if needed.")]
Config = Annotated[
    Path | None, typer.Option(envvar="FOURFOLD_CONFIG", help="Serve application file.")
]
Data = Annotated[Path, typer.Option(envvar="FOURFOLD_DATA", help="Data folder.")]
DEFAULT_DATA = Path(".fourfold")


def _fail(message: object) -> typer.Exit:
    typer.secho(f"error: {message}", err=True, fg="red")
    return typer.Exit(1)


def _settings(config: Path | None, port: int | None = None) -> Settings:
    try:
        settings = load(config)
    except SettingsError as error:
        raise _fail(error) from None
    if port is not None:
        server = settings.server.model_copy(update={"port": port})
        settings = settings.model_copy(update={"server": server})
    return settings


@app.command()
def serve(
    port: Annotated[int | None, typer.Option(help="TCP port; wins over the configuration.")] = None,
    data: Data = DEFAULT_DATA,
    config: Config = None,
) -> None:
    """Run the server on this machine until Ctrl-C."""
    from retrieval.errors import FourfoldError
    from serve.cli import launcher
    from serve.local.processes import InUse

    settings = _settings(config, port)
    try:
        launcher.run(settings, data)
    except (InUse, FourfoldError, RuntimeError, OSError) as error:
        raise _fail(error) from None


@app.command("import")
def import_file(
    bank: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Memories per request.")] = 200,
    again: Annotated[bool, typer.Option(help="Send what was already imported, too.")] = False,
) -> None:
    """Import memories from a JSONL file, one a line; an interrupted import goes on where it was."""
    from serve.cli.client import Api, ApiError
    from serve.cli.importer import BadLine, import_jsonl

    try:
        with Api(url, api_key) as api:
            done = import_jsonl(api, bank, file, batch=batch, again=again)
    except (ApiError, BadLine) as error:
        raise _fail(error) from None
    typer.echo(f"{done.imported} imported, {done.skipped} were there already")


@app.command()
def recall(
    bank: str,
    question: str,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    explain: Annotated[bool, typer.Option("--explain", help="Arms, ranks, boosts, paths.")] = False,
    budget: Annotated[str, typer.Option(help="low, mid or high.")] = "mid",
    max_tokens: int = 1024,
    limit: Annotated[int | None, typer.Option(help="At most so many results.")] = None,
    now: Annotated[str | None, typer.Option(help="Anchor of relative time, ISO 8601.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as it comes.")] = False,
) -> None:
    """Ask a bank a question."""
    from serve.cli import table
    from serve.cli.client import Api, ApiError

    body = {
        "query": question,
        "budget": budget,
        "max_tokens": max_tokens,
        "limit": limit,
        "query_timestamp": now,
        "trace": explain,
    }
    try:
        with Api(url, api_key) as api:
            answer = api.recall(bank, body)
    except ApiError as error:
        raise _fail(error) from None
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        table.show(answer, explain=explain)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A benchmark in tests/bench.")],
) -> None:
    """Run a benchmark; what follows its name is for the benchmark."""
    from serve.cli.doctor import benchmarks

    known = benchmarks()
    if name not in known:
        raise _fail(f"no benchmark {name!r}; there are: {', '.join(known) or 'none'}")
    module = importlib.import_module(f"tests.bench.{name}")
    raise typer.Exit(module.main(context.args) or 0)


@app.command()
def doctor(config: Config = None, data: Data = DEFAULT_DATA) -> None:
    """Say what is installed and reachable, on which device, and what would be wrong."""
    from serve.cli import doctor as examination

    raise typer.Exit(examination.run(config, data))


@app.command()
def openapi() -> None:
    """Print the OpenAPI description of the API."""
    from serve.http import app as http

    schema = http.create(Settings()).openapi()
    typer.echo(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())


def _with_pool(config: Path | None, data: Path, work: Callable[[Any], Awaitable[T]]) -> T:
    from retrieval.errors import FourfoldError
    from serve.cli import launcher

    async def run(dsn: Settings) -> T:
        from retrieval.store.database.migrate import migrate
        from retrieval.store.database.pool import open_pool
        from serve.opening.database import pool_settings

        pool = await open_pool(pool_settings(dsn))
        try:
            await migrate(pool)
            return await work(pool)
        finally:
            await pool.finish()

    try:
        with launcher.database(_settings(config), data) as settings:
            return asyncio.run(run(settings))
    except FourfoldError as error:
        raise _fail(error) from None


@keys.command("create")
def create_key(
    tenant: Annotated[str, typer.Option(help="Made if it is new.")] = "default",
    label: str = "",
    config: Config = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a key and show it, once."""
    from retrieval.store import tenants

    typer.echo(_with_pool(config, data, lambda pool: tenants.create_key(pool, tenant, label)))


@keys.command("list")
def list_keys(tenant: str | None = None, config: Config = None, data: Data = DEFAULT_DATA) -> None:
    """List keys; they themselves are not stored."""
    from retrieval.store import tenants

    for key in _with_pool(config, data, lambda pool: tenants.list_keys(pool, tenant)):
        state = f"revoked {key.revoked_at}" if key.revoked_at else "valid"
        typer.echo(f"{key.key_id}  {key.tenant_id}  {key.created_at}  {state}  {key.label}")


@keys.command("revoke")
def revoke_key(key: str, config: Config = None, data: Data = DEFAULT_DATA) -> None:
    """End a key, named by itself or by its id."""
    from retrieval.store import tenants

    _with_pool(config, data, lambda pool: tenants.revoke_key(pool, key))
    typer.echo("revoked: it stops working within seconds")


maintain.add_to(app, _with_pool)
tenancy.add_to(app, _with_pool)


def main() -> None:
    """Entry point of the `fourfold` command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
