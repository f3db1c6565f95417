"""What the command line says before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve.cli import app

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
