"""The `fourfold` command: serve, import, recall, reflect, bank, erase, backup, restore,
after-restore, mcp, bench, doctor, migrate, epoch, reembed, reindex, keys, tenants, hot, openapi,
metrics, top."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer

from serve.cli import backups, banks, erase, hot, keys, maintain, monitor, schema, tenants
from serve.cli.options import DEFAULT_DATA, DEFAULT_URL, Config, Data, Key, Url
from serve.mcp import command as mcp_command
from serve.settings import Settings, SettingsError, load, load_file
from serve.version import program

T = TypeVar("T")
TABLES = ("langgraph", "langmem")
"""Kinds of imports that also read a database."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes break long paths into lines
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fourfold {program()}")
        raise typer.Exit


@app.callback()
def fourfold(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show it and end."),
    ] = False,
) -> None:
    """A recall server for the memory of AI agents."""


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
    port: Annotated[int | None, typer.Option(help="TCP port; overrides the configuration.")] = None,
    data: Data = DEFAULT_DATA,
    config: Config = None,
) -> None:
    """Run the server on this machine until Ctrl-C."""
    from retrieval.errors import FourfoldError
    from serve.cli import launcher
    from serve.local.processes import InUse

    settings = _settings(config, port)
    try:
        launcher.run(settings, load_file(config) if config else {}, data)
    except (InUse, FourfoldError, RuntimeError, OSError) as error:
        raise _fail(error) from None


@app.command("import")
def import_file(
    bank: Annotated[str, typer.Argument(help="A bank's id; with --bank the file.")],
    file: Annotated[
        str | None,
        typer.Argument(help="A file, for some kinds a folder; for langgraph also a DSN."),
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    kind: Annotated[
        str,
        typer.Option(
            "--from", help="jsonl, mem0, zep, graphiti, chatgpt, claude, langgraph or markdown."
        ),
    ] = "jsonl",
    into: Annotated[str | None, typer.Option("--bank", help="The bank's id.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Memories per request.")] = 200,
    again: Annotated[
        bool, typer.Option(help="Also send memories that were imported before.")
    ] = False,
    bank_per: Annotated[
        str | None, typer.Option(help="A bank for each user, agent or namespace.")
    ] = None,
    text_path: Annotated[
        str | None, typer.Option(help="Where the text lies in a value, such as a.b (langgraph).")
    ] = None,
    summaries: Annotated[bool, typer.Option(help="Summaries of entities, too (zep).")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only show what would be sent.")] = False,
) -> None:
    """Import memories from JSONL or another system.

    JSONL holds one memory per line. An interrupted import resumes.
    """
    from serve.cli.client import Api, ApiError
    from serve.cli.importer import BadLine, import_jsonl

    if (into is None) == (file is None):
        raise _fail("give a bank and a file, or a file and --bank")
    name = into if into is not None else bank
    given = file if file is not None else bank
    dsn = given if kind in TABLES and given.startswith(("postgres://", "postgresql://")) else None
    source = Path(f"{kind}-store") if dsn is not None else Path(given)
    if dsn is None and not source.exists():
        raise _fail(f"there is no {source}")
    if kind != "jsonl":
        options = {"text_path": text_path, "summaries": summaries, "dsn": dsn}
        how = {"batch": batch, "per": bank_per, "again": again}
        _fill(kind, url, api_key, name, source, options, how, dry_run=dry_run)
        return
    try:
        with Api(url, api_key) as api:
            done = import_jsonl(api, name, source, batch=batch, again=again)
    except (ApiError, BadLine) as error:
        raise _fail(error) from None
    typer.echo(f"{done.imported} imported, {done.skipped} already there")


def _fill(
    kind: str,
    url: str,
    key: str | None,
    bank: str,
    source: Path,
    options: Mapping[str, Any],
    how: Mapping[str, Any],
    *,
    dry_run: bool,
) -> None:
    """Fills a bank from another system's export; exit 2 where something was rejected."""
    from serve.cli.client import Api, ApiError
    from serve.cli.filling import Filling
    from serve.cli.sources import READERS
    from serve.cli.sources.records import ReadOptions

    if kind == "hindsight":
        raise _fail("an archive of a whole bank: `fourfold bank import FILE --bank B` reads it")
    if kind not in READERS:
        raise _fail(f"--from must be jsonl, {', '.join(READERS)}")
    try:
        with Api(url, key) as api:
            filling = Filling(api, bank, source, READERS[kind], ReadOptions(**options), **how)
            if dry_run:
                done, shown = filling.preview()
                for one in shown:
                    typer.echo(orjson.dumps(dict(one.fields)).decode())
            else:
                done = filling.run()
    except (ApiError, ValueError, OSError) as error:
        raise _fail(error) from None
    typer.echo(
        f"{done.memories} memories, {done.documents} documents,"
        f" {done.unchanged} unchanged, {done.rejected} rejected"
    )
    for why, count in done.left_out.most_common():
        typer.echo(f"left out: {count} ({why})")
    if done.rejected:
        raise typer.Exit(2)


@app.command()
def recall(
    bank: Annotated[str, typer.Argument(help="A bank's id.")],
    question: Annotated[str, typer.Argument(help="What is asked.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show arms, ranks, boosts and paths.")
    ] = False,
    budget: Annotated[str, typer.Option(help="low, mid or high.")] = "mid",
    max_tokens: Annotated[int, typer.Option(help="Token budget of the answer.")] = 1024,
    limit: Annotated[int | None, typer.Option(help="Maximum number of results.")] = None,
    now: Annotated[
        str | None, typer.Option(help="Reference time for 'yesterday' and the like, ISO 8601.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the raw JSON answer.")] = False,
) -> None:
    """Search a bank and show what it finds."""
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


@app.command()
def reflect(
    bank: Annotated[str, typer.Argument(help="A bank's id.")],
    question: Annotated[str, typer.Argument(help="What is asked.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    budget: Annotated[str, typer.Option(help="low, mid or high.")] = "low",
    max_tokens: Annotated[int, typer.Option(help="Token budget of the answer.")] = 1024,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only memories with this tag; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the raw JSON answer.")] = False,
) -> None:
    """Answer a question from a bank, with sources."""
    from serve.cli import reflection
    from serve.cli.client import Api, ApiError

    body = {
        "query": question,
        "budget": budget,
        "max_tokens": max_tokens,
        "tags": tag or None,
        "include": {"facts": {}},
    }
    try:
        with Api(url, api_key) as api:
            answer = api.reflect(bank, body)
    except ApiError as error:
        raise _fail(error) from None
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        reflection.show(answer)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A benchmark in tests/bench.")],
) -> None:
    """Run a benchmark. Arguments after its name are passed on to it."""
    from serve.cli.doctor import ROOT, benchmarks

    known = benchmarks()
    if name not in known:
        raise _fail(f"no benchmark {name!r}; available: {', '.join(known) or 'none'}")
    sys.path.insert(0, str(ROOT))  # a checkout's tests are not installed
    module = importlib.import_module(f"tests.bench.{name}")
    raise typer.Exit(module.main(context.args) or 0)


@app.command()
def doctor(config: Config = None, data: Data = DEFAULT_DATA) -> None:
    """Check what is installed and reachable.

    Names the devices that models run on, and what would fail.
    """
    from serve.cli import doctor as examination

    raise typer.Exit(examination.run(config, data))


@app.command()
def openapi() -> None:
    """Print the OpenAPI description of the API."""
    from serve import app as http

    schema = http.create(Settings()).openapi()
    typer.echo(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())


@app.command()
def environment(
    haproxy: Annotated[
        Path, typer.Option(help="Folder for the program that starts HAProxy; it is made.")
    ] = Path("/opt/fourfold/haproxy"),
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="As entries of a container's `env`.")
    ] = False,
    config: Config = None,
) -> None:
    """Prepare the image of a cluster's pods.

    Prints the variables that pods need, and installs the program that starts HAProxy. Run it while
    the image is built. The token (RAY_AUTH_TOKEN or a file) is each cluster's own.
    """
    import yaml

    from serve.local import haproxy as proxy
    from serve.local.environment import POD, SHARED

    own = dict(SHARED) | dict(POD)
    if (binary := proxy.available()) is None:
        raise _fail("Ray ships no HAProxy for this platform")
    most = _settings(config).server.max_connections_per_address
    own |= proxy.pod_environment(binary, haproxy, most)
    if as_yaml:
        entries = [{"name": name, "value": value} for name, value in own.items()]
        typer.echo(yaml.safe_dump(entries, sort_keys=False), nl=False)
    else:
        for name, value in own.items():
            typer.echo(f"{name}={value}")


def _with_pool(config: Path | None, data: Path, work: Callable[[Any], Awaitable[T]]) -> T:
    own = _settings(config).database.database_url is None

    async def migrated(pool: Any, _settings: Settings) -> T:
        from retrieval.store.database import migrate

        if own:
            await migrate.migrate(pool)
        else:  # others run on it, perhaps of another version: its schema is not ours to change
            await migrate.check(pool)
        return await work(pool)

    return _with_database(config, data, migrated)


def _with_database(
    config: Path | None,
    data: Path,
    work: Callable[[Any, Settings], Awaitable[T]],
    dsn: str | None = None,
) -> T:
    """The database as it is: that of the settings, or of `dsn`."""
    from retrieval.errors import FourfoldError
    from serve.cli import launcher

    async def run(settings: Settings) -> T:
        from retrieval.store.database.pool import open_pool
        from serve.opening.database import pool_settings

        pool = await open_pool(pool_settings(settings))
        try:
            return await work(pool, settings)
        finally:
            await pool.finish()

    try:
        settings = _settings(config)
        if dsn is not None:
            settings = launcher.with_dsn(settings, dsn)
        with launcher.database(settings, data) as found:
            return asyncio.run(run(found))
    except FourfoldError as error:
        raise _fail(error) from None


maintain.add_to(app, _with_pool)
erase.add_to(app)
banks.add_to(app, _with_pool, _fail)
backups.add_to(app, _with_pool, _with_database, _fail)
keys.add_to(app, _with_pool)
tenants.add_to(app, _with_pool)
hot.add_to(app, _with_pool)
schema.add_to(app, _settings, _fail, _with_pool)
mcp_command.add_to(app, DEFAULT_URL)
monitor.add_to(app, _with_pool)


def main() -> None:
    """Entry point of the `fourfold` command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
