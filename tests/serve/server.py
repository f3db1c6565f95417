"""A real server as a child process, as `make serve` starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[2]
MARK = "FOURFOLD_TEST_MARK"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(state: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for a state that other processes bring about; AssertionError when it does not come."""
    stop_at = time.monotonic() + seconds
    while not state():
        assert time.monotonic() < stop_at, f"not so after {seconds} s"
        time.sleep(0.1)


class Server:
    """Started by `start`, which returns when it says that it is ready."""

    def __init__(self, data: Path, config: Path | None = None, **env: str) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.mark = uuid.uuid4().hex
        self.config = config or ROOT / "configs" / "local.yaml"
        self.log = data.with_suffix(".out")
        self.process: subprocess.Popen[bytes] | None = None
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FOURFOLD_", "HINDSIGHT_", "RAY_", "PROMETHEUS_"))
        }
        self._env = {**inherited, **env, MARK: self.mark, "PYTHONWARNINGS": "ignore"}

    def start(self, timeout_s: float = 120) -> Server:
        command = [sys.executable, "-m", "serve.cli.main", "serve", "--port", str(self.port)]
        command += ["--data", str(self.data), "--config", str(self.config)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self._env, stdout=out, stderr=out, start_new_session=True
            )
        stop_at = time.monotonic() + timeout_s
        while "ready:" not in self.said():
            if self.process.poll() is not None or time.monotonic() > stop_at:
                self.kill()
                raise AssertionError(f"the server did not start:\n{self.said()}")
            time.sleep(0.1)
        return self

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def logged(self) -> str:
        """What its processes wrote into its log."""
        log = self.data / "server.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def interrupt(self, number: int = signal.SIGINT) -> float:
        """Ctrl-C in a terminal: the whole process group gets it. Returns the seconds to the end."""
        assert self.process is not None
        begin = time.monotonic()
        os.killpg(self.process.pid, number)
        self.process.wait(60)
        return time.monotonic() - begin

    def kill(self) -> None:
        """kill -9 of everything that is left."""
        for process in self.processes():
            process.kill()
        if self.process is not None:
            self.process.wait(10)
        note = self.data / "run.json"
        if note.exists():
            shutil.rmtree(json.loads(note.read_text())["folder"], ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """Every process that this server, or an earlier start of it, brought into the world."""

        def marked() -> Iterator[psutil.Process]:
            for process in psutil.process_iter():
                try:
                    ours = process.environ().get(MARK) == self.mark
                    if ours and process.status() != psutil.STATUS_ZOMBIE:
                        yield process
                except psutil.Error:
                    continue

        return list(marked())

    def named(self, *words: str) -> list[psutil.Process]:
        """Processes whose command line holds one of the words."""
        found = []
        for process in self.processes():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if any(word in line for word in words):
                found.append(process)
        return found

    def wait_answer(self, seconds: float) -> float:
        """Seconds until recall works again."""
        begin = time.monotonic()
        body = {"query": "flood"}
        while True:
            try:
                answer = httpx.post(
                    f"{self.url}/v1/default/banks/sample/memories/recall", json=body, timeout=5
                )
                if answer.status_code == 200 and answer.json()["results"]:
                    return time.monotonic() - begin
            except httpx.TransportError:
                pass
            assert time.monotonic() - begin < seconds, f"no answer within {seconds} s"
            time.sleep(0.1)
