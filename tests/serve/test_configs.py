"""The files in configs/: valid for Ray, valid for us, and telling both the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from typer.testing import CliRunner

from serve.cli import doctor, launcher
from serve.cli.main import app
from serve.cluster import deployments
from serve.local import environment
from serve.settings import load, load_file

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


CLUSTERS = [path for path in FILES if path.name.startswith("cluster")]


def _options(path: Path) -> dict[str, Any]:
    """What Serve is told of each deployment of the file."""
    found: dict[str, Any] = {}

    def look(application: Any) -> None:
        node = application._bound_deployment
        found[node.name] = node
        for one in node.init_args:
            if hasattr(one, "_bound_deployment"):
                look(one)

    look(deployments.build(load_file(path)))
    return found


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.name)
def test_every_stage_of_a_cluster_has_a_place(path: Path) -> None:
    """Two of each that everything needs, on different nodes, none on a node without a role."""
    assert len(CLUSTERS) == 3
    found = _options(path)
    for name, deployment in found.items():
        place = deployment.ray_actor_options
        assert place["label_selector"]["fourfold-role"], name
        assert place["memory"] >= 2**30
        assert place["num_cpus"] >= 1
        assert deployment._replica_config.max_replicas_per_node >= 1
        gpu = path.name == "cluster-gpu.yaml" and name in ("Embedder", "Reranker")
        assert (place["num_gpus"] > 0) == gpu
    for name in ("Retriever", "Ingest", "Recall"):
        assert found[name].num_replicas == 2
    assert ("Reranker" in found) == (path.name == "cluster-gpu.yaml")
    banks = load(path, {}).banks
    assert found["Retriever"].ray_actor_options["memory"] >= 1.3 * banks.bank_memory_bytes


def test_a_cluster_without_a_database_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(CLUSTERS[0], {})
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert doctor.is_cluster(CLUSTERS[0])
    assert not doctor.is_cluster(CLUSTERS[0].with_name("local.yaml"))
    ((state, what, sentence),) = doctor.cluster(settings)
    assert (state, what) == ("wrong", "database")
    assert "set DATABASE_URL" in sentence
    right = load(CLUSTERS[0], {"FOURFOLD_DATABASE_URL": "postgres://h/d"})
    assert not [*doctor.cluster(right)]
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert [what for _, what, _ in doctor.cluster(right)] == ["ray"]


def test_pods_and_the_launcher_read_one_table(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["environment", "--haproxy", str(tmp_path / "opt" / "h")])
    assert done.exit_code == 0, done.output
    pod = dict(line.split("=", 1) for line in done.output.splitlines())
    local = launcher.environment_of(load(FILES[0], {}), tmp_path, _made(tmp_path / "run"))
    assert pod["RAY_AUTH_MODE"] == local["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in pod, "each cluster's own"
    for name in environment.SHARED:
        assert pod[name] == local[name]
    start = Path(pod["RAY_SERVE_HAPROXY_BINARY_PATH"])
    assert start.stat().st_mode & 0o111 == 0o111
    assert "127.0.0.1" in (start.parent / "start.py").read_text()
    assert int(pod["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"]) == 30
    again = CliRunner().invoke(app, ["environment", "--yaml", "--haproxy", str(tmp_path / "h2")])
    assert {one["name"] for one in yaml.safe_load(again.output)} == set(pod)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
