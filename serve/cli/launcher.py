"""What `fourfold serve` runs: everything on this machine, started in order, stopped in reverse.

Postgres (unless there is a DSN), Ray, the Serve application, the sample bank. A first signal stops
it all; nothing that it started stays.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import httpx
from pydantic import SecretStr

from retrieval.store.database.embedded import EmbeddedPostgres
from serve import metrics
from serve.inspector.routes import PATH
from serve.local import haproxy, logs, loopback, node, processes, sample
from serve.local.environment import ONE_MACHINE, SHARED
from serve.local.processes import InUse
from serve.settings import Settings
from serve.settings import secrets as secret_settings
from serve.settings.llm import OPERATIONS

SERVE_STOP_S, RAY_STOP_S, REST_STOP_S = 4.5, 2.0, 0.5
"""Seconds for an orderly stop of each; what is left then is ended."""

TOLD_S = 1.0
"""Steps of the start that take longer are told of."""

OBJECT_STORE_BYTES = 80 * 2**20
"""Ray's shared memory: our calls are small and travel past it."""


def run(settings: Settings, tree: Mapping[str, Any], data: Path) -> None:
    """Serves until a signal comes. Raises InUse, and what parts raise that cannot start.

    `tree`: the sections of the configuration file that `settings` were read from.
    """
    data = data.resolve()
    with Signals() as signals, ExitStack() as stack:
        stack.enter_context(processes.owned(data))
        folder = stack.enter_context(processes.run_folder(data))
        _require_free(settings.server.host, settings.server.port)
        processes.adopt_orphans()
        stack.callback(processes.end_descendants, REST_STOP_S)
        own_database = settings.database.database_url is None
        first_start = not (data / "postgres").exists()
        os.environ.update(
            environment_of(settings, data, folder)
        )  # Ray reads it when it is imported
        with processes.loading(folder):
            importing = threading.Thread(target=node.import_serve, daemon=True)
            importing.start()  # a second of one core, while the database starts on another
            with told("starting PostgreSQL"):
                settings = stack.enter_context(database(settings, data))
            processes.note(data, dsn=_dsn(settings))
            with told("bringing the database's schema up to date"):
                _migrate(settings)
            with told("importing Ray"):
                importing.join()
            os.environ[processes.RUN] = str(folder)  # not PostgreSQL's: that is never just killed
            os.environ["FOURFOLD_PORT"] = str(settings.server.port)
            if own_database:  # each process reads its settings for itself
                os.environ["FOURFOLD_DATABASE_URL"] = _dsn(settings)
            portable = secret_settings.moved_to_files(tree, folder / "secrets")
            signals.beside(lambda: _start_ray(settings, portable, folder, stack, signals))
            health = _ready(settings, first_start)
        _say(settings, data, health)
        processes.return_freed_memory()
        while not signals.stopped.wait(1.0):
            _require_alive()
    print("stopped", flush=True)
    if signals.left_behind:
        os._exit(0)  # a thread inside Ray would abort the process when it finds Python gone


class Signals:
    """SIGINT, SIGTERM and SIGHUP set `stopped`; the first also interrupts what runs, and the
    block ends as if it were done. Made and used by the main thread."""

    NAMES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._before: dict[signal.Signals, Any] = {}
        self._done = threading.Event()
        self.left_behind = False
        """Whether work of `beside` still runs, though nobody waits for it."""

    def __enter__(self) -> Signals:
        self._before = {name: signal.signal(name, self._stop) for name in self.NAMES}
        return self

    def beside(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread and waits for it; a signal ends the wait at once, and leaves the
        thread behind. For code that waits where no Python handler can run, as Ray's does. Raises
        what `work` raises.

        The thread stays when the work is done: Linux ends the processes that were started to die
        with their parent when the thread that started them ends.
        """
        failed: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)
            self._done.set()
            threading.Event().wait()

        threading.Thread(target=run, daemon=True).start()
        self.left_behind = True
        while not self._done.wait(0.1):
            self._interrupt_if_stopped()
        self.left_behind = False
        self._interrupt_if_stopped()
        if failed:
            raise failed[0]

    def orderly(self, stop: Callable[[], object], seconds: float) -> None:
        """Stops a part, waiting no longer than this for it; not while `beside` still starts it: Ray
        ends a process whose thread finds it shut down. It is then left to whoever ends
        processes."""
        if not self.left_behind:
            _bounded(stop, seconds)

    def _interrupt_if_stopped(self) -> None:
        """For a signal whose exception was raised in some finaliser, and forgotten there."""
        if self.stopped.is_set():
            raise KeyboardInterrupt

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.stopped.is_set():
            self.stopped.set()
            print("stopping", flush=True)
            raise KeyboardInterrupt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for name, handler in self._before.items():
            signal.signal(name, handler)
        return self.stopped.is_set() and isinstance(error, KeyboardInterrupt)


@contextmanager
def told(step: str) -> Iterator[None]:
    """Says that a step of the start runs, if it takes over a second, and how long it took."""
    begin = time.monotonic()
    late = threading.Timer(TOLD_S, lambda: print(f"{step} ...", flush=True))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
    if (spent := time.monotonic() - begin) > TOLD_S:
        print(f"{step}: {spent:.1f} s", flush=True)


def _require_free(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InUse(
                f"cannot listen on {host}:{port} ({error.strerror}): choose another with PORT="
            ) from None


@contextmanager
def database(settings: Settings, data: Path) -> Iterator[Settings]:
    """The settings with a DSN: the given one, that of the server that runs on `data`, or that of
    an embedded PostgreSQL started for as long as the block lasts."""
    if settings.database.database_url is not None:
        yield settings
    elif dsn := processes.noted(data, "dsn"):
        yield with_dsn(settings, dsn)
    else:
        with EmbeddedPostgres(data / "postgres") as postgres:
            yield with_dsn(settings, postgres.dsn)


def with_dsn(settings: Settings, dsn: str) -> Settings:
    url = {"database_url": SecretStr(dsn)}
    return settings.model_copy(update={"database": settings.database.model_copy(update=url)})


def _dsn(settings: Settings) -> str:
    url = settings.database.database_url
    return "" if url is None else url.get_secret_value()


def _migrate(settings: Settings) -> None:
    import asyncio

    from serve.opening.database import bring_up_to_date

    if settings.database.run_migrations_on_startup:
        asyncio.run(bring_up_to_date(settings))


def environment_of(settings: Settings, data: Path, folder: Path) -> Mapping[str, str]:
    shared = folder / "metrics"
    shared.mkdir()
    own = {
        **SHARED,
        **ONE_MACHINE,
        **loopback.ENVIRONMENT,
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        metrics.MULTIPROCESS: str(shared),
        logs.LOG_FILE: str(data / "server.log"),
        "PYTHONPATH": os.pathsep.join(filter(None, (_checkout(), os.environ.get("PYTHONPATH")))),
    }
    binary = haproxy.available() if settings.server.haproxy else None
    if binary is None:
        return own
    per_address = settings.server.max_connections_per_address
    return own | dict(haproxy.environment(binary, folder / "h", per_address))


def _checkout() -> str:
    return str(Path(__file__).resolve().parents[2])


def _start_ray(
    settings: Settings,
    tree: Mapping[str, Any],
    folder: Path,
    stack: ExitStack,
    signals: Signals,
) -> None:
    import ray
    from ray import serve

    from serve.cluster.deployments import APP, application

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
    stack.callback(signals.orderly, ray.shutdown, RAY_STOP_S)
    with told("starting Ray"), node.bare():
        ray.init(
            address="local",
            num_cpus=os.cpu_count(),
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=str(folder / "ray"),
            _node_ip_address="127.0.0.1",
        )
    if signals.stopped.is_set():
        return
    stack.callback(signals.orderly, serve.shutdown, SERVE_STOP_S)
    with told("starting Serve's controller"):
        serve.start(
            http_options={"host": settings.server.host, "port": settings.server.port},
            proxy_location="HeadOnly",
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
    if signals.stopped.is_set():
        return
    with told("opening models and banks"):
        serve.run(
            application(tree),
            name=APP,
            route_prefix="/",
            logging_config={
                "log_level": "WARNING",
                "enable_access_log": settings.server.access_log,
            },
        )


def _bounded(stop: Any, seconds: float) -> None:
    """Runs `stop`, but does not wait for it longer than this."""
    thread = threading.Thread(target=_quietly, args=(stop,), daemon=True)
    thread.start()
    thread.join(seconds)


def _quietly(stop: Any) -> None:
    """Ray speaks of actors that end, which is what was asked for."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        contextlib.suppress(Exception),
    ):
        stop()


def _require_alive() -> None:
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    if not any(node["Alive"] for node in nodes):
        raise RuntimeError("Ray went away: see the log")


def _ready(settings: Settings, first_start: bool) -> dict[str, Any]:
    """The server's health once it answers, and the sample bank is there."""
    server = settings.server
    with httpx.Client(base_url=_address(settings), timeout=60, trust_env=False) as client:
        health = _wait_healthy(client)
        if first_start and server.sample_bank and not settings.limits.require_api_key:
            with told("loading the sample bank"):
                sample.load(client)
    return health


def _address(settings: Settings) -> str:
    server = settings.server
    shown = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host
    return f"http://{shown}:{server.port}{server.base_path.rstrip('/')}"


def _say(settings: Settings, data: Path, health: Mapping[str, Any]) -> None:
    server, url = settings.server, _address(settings)
    for warning in settings.warnings:
        print(f"note: {warning}")
    ruled = [operation for operation in OPERATIONS if settings.llm.chain(operation).by_rules]
    if ruled:
        print(
            f"note: rules stand in for a language model in {', '.join(ruled)} (llm_provider"
            " extractive): good for trying out, not for use"
        )
    if health.get("reranker") == "fused":
        print(
            "note: no cross-encoder is available (its weights are not on this machine and the hub"
            " cannot be reached): results keep the fused order"
        )
    body = json.dumps({"query": sample.QUESTION, "max_tokens": 300})
    print(
        f"\nready: {url}\n"
        f"  embedder {health.get('embedder')} · reranker {health.get('reranker')}"
        f" · data {data} · log {data / 'server.log'}\n"
        f"{f'  inspector {url}{PATH}/' if server.inspector else ''}\n\n"
        f"  curl -s {url}/v1/default/banks/{sample.BANK}/memories/recall"
        f" -H 'content-type: application/json' -d '{body}'\n"
        f'  {_command()} recall {sample.BANK} "{sample.QUESTION}" --explain'
        f"{'' if server.port == 8888 else f' --url {url}'}\n\n"
        "Press Ctrl-C to stop.",
        flush=True,
    )


def _command() -> str:
    """How this program was called, for the next line that the reader types."""
    path = Path(sys.argv[0])
    return f"{sys.executable} -m serve.cli.main" if path.suffix == ".py" else os.path.relpath(path)


def _wait_healthy(client: httpx.Client) -> dict[str, Any]:
    """What /health says as soon as all that is left to do is our own."""
    stop_at = time.monotonic() + 30
    while True:
        with contextlib.suppress(httpx.TransportError):
            answer = client.get("/health")
            if answer.headers.get("content-type") == "application/json":
                health: dict[str, Any] = answer.json()
                if health.get("status") in ("healthy", "degraded", processes.LOADING):
                    return health
        if time.monotonic() > stop_at:
            raise RuntimeError("the server does not answer its health check")
        time.sleep(0.1)
