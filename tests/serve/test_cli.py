"""What the command line says before it starts anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from serve.cli import table
from serve.cli.main import app

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ({"HINDSIGHT_API_PORT": "abc"}, [], "HINDSIGHT_API_PORT='abc': expected a whole number"),
        ({}, ["--config", "none.yaml"], "cannot read none.yaml"),
    ],
)
def test_wrong_settings_are_one_sentence(
    env: dict[str, str], options: list[str], said: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["serve", "--data", str(tmp_path / "data"), *options], env=env)
    assert done.exit_code == 1
    assert said in done.output
    assert done.output.count("error:") == 1
    assert not (tmp_path / "data").exists()


def test_it_says_its_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"fourfold {version('fourfold')}\n")
    assert "A recall server" in CliRunner().invoke(app, ["--help"]).output


LONG = "x" * 180


def test_long_paths_stay_on_one_line_where_nobody_looks(tmp_path: Path) -> None:
    data = tmp_path / LONG
    said = CliRunner().invoke(app, ["doctor", "--data", str(data)]).output
    assert any(str(data.resolve()) in line for line in said.splitlines())
    missing = tmp_path / LONG / "config.yaml"
    said = CliRunner().invoke(app, ["doctor", "--config", str(missing)]).output
    assert any(f"cannot read {missing}" in line for line in said.splitlines())
    said = CliRunner().invoke(app, ["serve", "--config", str(missing)]).output
    assert any(f"cannot read {missing}" in line for line in said.splitlines())
    said = CliRunner().invoke(app, ["import", "bank", str(missing)]).output
    assert any(str(missing) in line for line in said.splitlines())


def test_a_table_in_a_file_has_a_line_for_each_memory(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        {"text": f"memory {i} " + "word " * 60, "scores": {"final": 0.5}, "type": "world"}
        for i in range(3)
    ]
    table.show({"results": results}, explain=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 1_000


def commands() -> Iterator[tuple[str, Any]]:
    """(name, command) of all that can be called."""
    waiting: list[tuple[str, Any]] = [("fourfold", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", {})
        waiting += [(f"{name} {part}", below) for part, below in inner.items()]
        if not inner:
            yield name, command


def test_lists_of_commands_show_whole_sentences() -> None:
    shown = {name: command.get_short_help_str(limit=62) for name, command in commands()}
    assert len(shown) > 25
    assert {name: said for name, said in shown.items() if said.endswith("...")} == {}


def test_every_argument_and_option_says_what_it_is() -> None:
    assert [
        f"{name}: {parameter.name}"
        for name, command in commands()
        for parameter in command.params
        if not parameter.help
    ] == []


def test_a_benchmark_runs_from_any_folder(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("fourfold")
    if not command.exists():
        pytest.skip("the command is not installed")
    done = subprocess.run(
        [command, "bench", "retain", "--unknown"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "unrecognized arguments: --unknown" in done.stderr
