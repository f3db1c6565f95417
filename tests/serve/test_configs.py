"""The files in configs/: valid for Ray, valid for us, and telling both the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve.settings import load

pytestmark = pytest.mark.unit

FILES = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))


def test_there_are_files() -> None:
    assert {"local.yaml", "gpu.yaml", "cluster.yaml"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file(path: Path) -> None:
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    (application,) = deployed.applications
    assert application.import_path == "serve.cluster.deployments:build"
    settings = load(path, {})
    assert not settings.warnings
    assert (settings.server.host, settings.server.port) == (
        deployed.http_options.host,
        deployed.http_options.port,
    )
