"""`fourfold reembed` and `fourfold reindex`: another model or another keyword index for banks.

They work on the server's database, with or without a server running on it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retrieval.errors import InvalidInput
from serve.cli.options import DEFAULT_DATA, Config, Data, WithPool
from serve.settings import Settings, load
from serve.settings.model import RESIDENT

if TYPE_CHECKING:
    from rich.progress import Progress as Display

    from retrieval.keyword.backends.backend import BackendFinding, BuildProgress
    from retrieval.store.database.pool import Pool

Bank = Annotated[str | None, typer.Argument(help="A bank's id.")]
Every = Annotated[
    bool, typer.Option("--all", help="Every bank of every tenant, one after another.")
]
Tenant = Annotated[str, typer.Option(help="Tenant that owns the bank.")]


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""

    @app.command()
    def reembed(
        bank: Bank = None,
        every: Every = False,
        tenant: Tenant = "default",
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Rebuild a bank's vectors with the configured embedding model."""
        with_pool(config, data, lambda pool: _reembed(pool, load(config), bank, every, tenant))

    @app.command()
    def reindex(
        bank: Bank = None,
        every: Every = False,
        language: Annotated[str | None, typer.Option(help="New language of the bank.")] = None,
        segmenter: Annotated[
            str | None, typer.Option(help="New segmenter of the bank: bigram or jieba.")
        ] = None,
        keyword: Annotated[
            str | None,
            typer.Option(help="Build this keyword back-end for every bank; bm25 removes them all."),
        ] = None,
        tenant: Tenant = "default",
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Rebuild the keyword index of a bank or of all banks."""
        changes = {"text_search_language": language, "text_search_segmenter": segmenter}

        async def work(pool: Pool) -> None:
            settings = load(config)
            if keyword is None:
                await _reindex(pool, settings, bank, every, tenant, changes)
            elif bank is not None or every or language or segmenter:
                raise InvalidInput(
                    "--keyword applies to every bank and cannot be combined with other options"
                )
            else:
                await _reindex_keyword(pool, settings, keyword)

        with_pool(config, data, work)


def keyword_findings(settings: Settings, _data: Path) -> Iterator[tuple[str, str, str]]:
    """What `doctor` says of the keyword back-end: (ok | wrong, what, a sentence)."""
    import asyncio

    from retrieval.maintenance import keyword
    from retrieval.store.database.pool import open_pool
    from serve.opening.database import keyword_backend, pool_settings

    backend = keyword_backend(settings)
    if backend is None:
        yield "ok", "keyword", f"{RESIDENT}, from memory"
        return
    if settings.database.database_url is None:
        yield (
            "ok",
            "keyword",
            f"{backend.name}, in the embedded database: built or checked at start",
        )
        return

    async def ask() -> list[BackendFinding]:
        pool = await open_pool(pool_settings(settings))
        try:
            return await keyword.examine(pool, backend)
        finally:
            await pool.finish()

    for finding in asyncio.run(ask()):
        if finding.ok:
            yield "ok", "keyword", finding.what
        else:
            yield "wrong", "keyword", f"not satisfied: {finding.what}; {finding.remedy}"


async def _reembed(
    pool: Pool, settings: Settings, bank: str | None, every: bool, tenant: str
) -> None:
    from retrieval.maintenance.reembed import reembed
    from serve.opening.inference import open_embedder

    banks = await _chosen(pool, bank, every, tenant)
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings, stack)
        for owner, bank_id in banks:
            steps = reembed(pool, embedder, owner, bank_id, settings=settings.retain)
            await _show(bank_id, steps)


async def _reindex(
    pool: Pool,
    settings: Settings,
    bank: str | None,
    every: bool,
    tenant: str,
    changes: dict[str, str | None],
) -> None:
    from retrieval.maintenance.reindex import reindex

    for owner, bank_id in await _chosen(pool, bank, every, tenant):
        await _show(bank_id, reindex(pool, settings.retain, owner, bank_id, changes=changes))


async def _reindex_keyword(pool: Pool, settings: Settings, name: str) -> None:
    from retrieval.maintenance import keyword
    from serve.opening.database import keyword_backend

    wanted = settings.banks.model_copy(update={"text_search_extension": name})
    backend = keyword_backend(settings.model_copy(update={"banks": wanted}))
    if backend is None:
        await keyword.leave(pool)
        typer.echo(f"{RESIDENT} needs no table; the tables of other back-ends were removed")
        return
    with _display() as display:
        tasks: dict[str, Any] = {}
        async with aclosing(keyword.reindex(pool, backend)) as steps:
            async for bank_id, progress in steps:
                if bank_id not in tasks:
                    tasks[bank_id] = display.add_task(bank_id)
                display.update(tasks[bank_id], completed=progress.done, total=progress.total)
    typer.echo(f"{name} is ready: set HINDSIGHT_API_TEXT_SEARCH_EXTENSION={name}")


async def _chosen(
    pool: Pool, bank: str | None, every: bool, tenant: str
) -> Sequence[tuple[str, str]]:
    """(tenant, bank id) of the banks that the command is about."""
    from retrieval.store.database.pool import read

    if (bank is not None) == every:
        raise InvalidInput("name a bank, or give --all")
    if bank is not None:
        return [(tenant, bank)]
    rows = await read(
        pool,
        lambda connection: connection.fetch(
            "select tenant_id, bank_id from banks where next_ordinal > 0 and state = 'open'"
            " order by bank"
        ),
    )
    return [(row["tenant_id"], row["bank_id"]) for row in rows]


async def _show(bank_id: str, steps: AsyncGenerator[BuildProgress, None]) -> None:
    worked = False
    with _display() as display:
        task = display.add_task(bank_id, total=None)
        async with aclosing(steps):
            async for progress in steps:
                worked = True
                display.update(task, completed=progress.done, total=progress.total)
    typer.echo(f"{bank_id}: {'done' if worked else 'nothing to do'}")


def _display() -> Display:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    return Display(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )
