"""`fourfold metrics` and `fourfold top`: what a node says of itself."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from retrieval.store.usage import TenantUsage
from serve.cli.options import DEFAULT_DATA, DEFAULT_URL, Config, Data, Key, Url, WithPool

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def add_to(app: typer.Typer, with_pool: WithPool) -> None:
    """Adds the commands."""

    @app.command("metrics")
    def metrics(
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port.")] = 9400,
    ) -> None:
        """Serve the metrics of all processes of this node.

        They share the folder PROMETHEUS_MULTIPROC_DIR.
        """
        import os

        from serve import exporter
        from serve.metrics import MULTIPROCESS

        if not os.environ.get(MULTIPROCESS):
            typer.secho(f"error: {MULTIPROCESS} is not set: no folder to read", err=True, fg="red")
            raise typer.Exit(1)
        with exporter.server(host, port) as server:
            server.serve_forever()

    @app.command("top")
    def top(
        url: Url = DEFAULT_URL,
        api_key: Key = None,
        every: Annotated[float, typer.Option(min=0.5, help="Seconds between two updates.")] = 2.0,
        once: Annotated[bool, typer.Option(help="Print once and exit.")] = False,
        tenants: Annotated[
            bool, typer.Option(help="The loudest tenants as well, from the database.")
        ] = False,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Show what a node is doing, until Ctrl-C.

        --api-key is what the server knows as METRICS_API_KEY.
        """
        import httpx

        from retrieval.store import usage

        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        with httpx.Client(base_url=url, headers=headers, timeout=10) as http:
            try:
                before = parsed(http.get("/metrics").raise_for_status().text)
                while True:
                    time.sleep(every)
                    now = parsed(http.get("/metrics").raise_for_status().text)
                    if not once:
                        typer.echo("\x1b[2J\x1b[H", nl=False)
                    lines = shown(before, now, every)
                    if tenants:
                        lines += loudest(with_pool(config, data, usage.loudest))
                    typer.echo("\n".join(lines))
                    if once:
                        return
                    before = now
            except httpx.HTTPError as error:
                typer.secho(f"error: {error}", err=True, fg="red")
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                return


def parsed(text: str) -> Series:
    """The series of a scrape."""
    found = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            labels = frozenset(_LABEL.findall(match[2] or ""))
            found[match[1], labels] = float(match[3])
    return found


@dataclass(frozen=True, slots=True)
class _Look:
    """Two scrapes, and the seconds between them."""

    before: Series
    now: Series
    seconds: float

    def total(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(v for (n, of), v in self.now.items() if n == name and wanted <= of)

    def rate(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(
            max(0.0, v - self.before.get((n, of), 0.0)) / self.seconds
            for (n, of), v in self.now.items()
            if n == name and wanted <= of
        )

    def values(self, name: str, label: str) -> list[str]:
        return sorted({dict(of)[label] for (n, of) in self.now if n == name and label in dict(of)})


def shown(before: Series, now: Series, seconds: float) -> list[str]:
    """The lines of one look."""
    look = _Look(before, now, seconds)
    lines = [f"{'operation':12} {'per s':>8} {'ms':>8} {'refused':>8} {'late':>6} {'failed':>6}"]
    for operation in look.values("fourfold_requests_total", "operation"):
        rate = look.rate("fourfold_requests_total", operation=operation)
        spent = look.rate("fourfold_request_seconds_sum", operation=operation)
        ended = [
            look.rate("fourfold_requests_total", operation=operation, outcome=outcome)
            for outcome in ("refused", "late", "failed")
        ]
        lines.append(
            f"{operation:12} {rate:8.1f} {1000 * spent / rate if rate else 0.0:8.1f}"
            f" {ended[0]:8.1f} {ended[1]:6.1f} {ended[2]:6.1f}"
        )
    lines.append("")
    for name in look.values("fourfold_admission_running", "controller"):
        running = look.total("fourfold_admission_running", controller=name)
        waiting = look.total("fourfold_admission_waiting", controller=name)
        lines.append(f"{name + ' admission':16} {running:.0f} running, {waiting:.0f} in line")
    hits = look.rate("fourfold_banks_events_total", event="hit")
    misses = look.rate("fourfold_banks_events_total", event="miss")
    opened = hits + misses
    lines.append(
        f"{'banks':12} {look.total('fourfold_banks_resident'):.0f} held,"
        f" {look.total('fourfold_banks_bytes', memory='host') / 1e6:.0f} of"
        f" {look.total('fourfold_banks_budget_bytes') / 1e6:.0f} MB,"
        f" {100 * hits / opened if opened else 100.0:.0f} % hits"
    )
    first = look.rate("fourfold_router_rank_total", rank="first")
    routed = look.rate("fourfold_router_rank_total")
    if routed:
        lines.append(f"{'router':12} {100 * first / routed:.0f} % to the first replica")
    for model in look.values("fourfold_model_batch_seconds_count", "model"):
        tokens = look.rate("fourfold_model_batch_tokens_sum", model=model)
        busy = look.rate("fourfold_model_batch_seconds_sum", model=model)
        lines.append(f"{model:12} {tokens:.0f} tokens/s, busy {busy:.2f}")
    lines.append(
        f"{'processes':12} {len(look.values('fourfold_process_memory_bytes', 'pid'))} with"
        f" {look.total('fourfold_process_memory_bytes') / 1e6:.0f} MB; oldest operation"
        f" {look.total('fourfold_operations_oldest_seconds'):.0f} s"
    )
    return lines


def loudest(found: Sequence[tuple[str, TenantUsage]]) -> list[str]:
    """The lines of the loudest tenants of the last ten minutes."""
    if not found:
        return ["", "no tenant did anything in the last ten minutes"]
    lines = ["", f"{'loudest of 10 min':32} {'busy s':>8} {'recalls':>8} {'writes':>8} {'reads':>8}"
             f" {'refused':>8} {'degraded':>8}"]  # fmt: skip
    for tenant, own in found:
        lines.append(
            f"{tenant[:32]:32} {own.busy_ms / 1000:8.1f} {own.recalls:8} {own.writes:8}"
            f" {own.reads:8} {own.refused:8} {own.degraded:8}"
        )
    return lines
