"""The start: what it says, what it imports, and what it leaves out."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve.cli import launcher
from serve.local import node, processes

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


def test_long_steps_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher, "TOLD_S", 0.01)
    with launcher.told("a long step"):
        late = time.monotonic() + 10
        said = ""
        while "..." not in said and time.monotonic() < late:
            said += capsys.readouterr().out
    assert said == "a long step ...\n"
    assert capsys.readouterr().out.startswith("a long step: ")
    monkeypatch.setattr(launcher, "TOLD_S", 60.0)
    with launcher.told("a short step"):
        pass
    assert capsys.readouterr().out == ""


def test_a_run_is_loading_until_its_start_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not processes.is_loading()  # no run
    monkeypatch.setenv(processes.RUN, str(tmp_path))
    assert not processes.is_loading()
    with processes.loading(tmp_path):
        assert processes.is_loading()
    assert not processes.is_loading()
