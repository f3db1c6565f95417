"""The start: what it says, what it imports, and what it leaves out."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from serve.cli import launcher
from serve.local import agent, node, processes

pytestmark = pytest.mark.unit

HEAVY = {"torch", "faiss", "transformers", "sentence_transformers", "dateparser", "scipy"}


@pytest.mark.parametrize(
    "module", ["serve.cli.main", "serve.cli.launcher", "serve.cluster.deployments"]
)
def test_the_launcher_imports_no_models(module: str) -> None:
    code = f"import sys, {module}; print(*{HEAVY!r} & sys.modules.keys())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []


def test_serve_is_imported_without_pandas_which_stays_importable() -> None:
    code = (
        "import sys; from serve.local import node; node.import_serve();"
        "print('pandas' in sys.modules, 'ray.serve' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True"]


def test_a_bare_node_leaves_ray_as_it_was() -> None:
    from ray._private import utils
    from ray._private.node import Node

    names = ("start_monitor", "start_log_monitor", "start_api_server")
    before = [getattr(Node, name) for name in names]
    wanted = utils.get_dashboard_dependency_error
    with node.bare():
        for name, own in zip(names, before, strict=True):
            assert getattr(Node, name) is not own
        assert utils.get_dashboard_dependency_error() is not None
    assert [getattr(Node, name) for name in names] == before
    assert utils.get_dashboard_dependency_error is wanted


class Told(io.StringIO):
    """What is printed, in any thread; `begun` once it says that something takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def flush(self) -> None:
        if "..." in self.getvalue():
            self.begun.set()


def test_long_steps_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Told()
    monkeypatch.setattr(sys, "stdout", said)
    monkeypatch.setattr(launcher, "TOLD_S", 0.01)
    with launcher.told("a long step"):
        assert said.begun.wait(10)
    assert said.getvalue().startswith("a long step ...\na long step: ")
    monkeypatch.setattr(launcher, "TOLD_S", 60.0)
    said.truncate(0)
    with launcher.told("a short step"):
        pass
    assert said.getvalue() == ""


def test_a_run_is_loading_until_its_start_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not processes.is_loading()  # no run
    monkeypatch.setenv(processes.RUN, str(tmp_path))
    assert not processes.is_loading()
    with processes.loading(tmp_path):
        assert processes.is_loading()
    assert not processes.is_loading()


AGENT = ["--node-id=ab12", "--session-dir={folder}", "--minimal", "--head"]


def test_the_small_agent_takes_the_place_of_the_core_of_rays() -> None:
    command = "--dashboard_agent_command=/venv/bin/python -u /ray/dashboard/agent.py --node-id=ab"
    small = node.small_agent(f"{command} --minimal --head")
    assert "ray/dashboard" not in small
    assert small.startswith("--dashboard_agent_command=")
    assert small.endswith("serve/local/agent.py --node-id=ab --minimal --head")
    for other in (command, "--node_id=/dashboard/agent.py --minimal", "--head"):
        assert node.small_agent(other) == other


def test_the_small_agent_notes_its_ports_and_ends_with_its_parent(tmp_path: Path) -> None:
    started = [part.format(folder=tmp_path) for part in (sys.executable, agent.__file__, *AGENT)]
    # A parent that goes away as soon as the agent is there.
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({started!r}, stdout=subprocess.DEVNULL)\n"
        f"while len(os.listdir({str(tmp_path)!r})) < {len(agent.PORTS)}: time.sleep(0.05)\n"
        "print(child.pid)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in agent.PORTS:
        assert (tmp_path / f"{name}_ab12").read_text() == "-1"
    late = time.monotonic() + 60
    while psutil.pid_exists(int(said.stdout)) and time.monotonic() < late:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(said.stdout))


def test_rays_agent_notes_the_same_ports() -> None:
    """The names of Ray's own files, should a version change them."""
    from ray import _raylet

    names = (
        "METRICS_AGENT_PORT_NAME",
        "METRICS_EXPORT_PORT_NAME",
        "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    )
    assert {getattr(_raylet, name) for name in names} == set(agent.PORTS)
