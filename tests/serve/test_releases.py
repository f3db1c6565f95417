"""What restarts replicas of a stage, and what leaves them alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ray.serve._private.config import DeploymentConfig

from serve.cluster import deployments, releases
from serve.settings import parse

pytestmark = pytest.mark.unit

TREE: dict[str, Any] = {
    "rerankers": {"members": [{"provider": "rrf"}]},
    "stages": {
        name: {"placement": "deployment", "replicas": 2}
        for name in ("retriever", "embedder", "ingest", "ranges")
    },
}


def _versions(tree: dict[str, Any]) -> dict[str, str]:
    """Of each stage, as the controller gets it: Serve sets the version of the whole file before."""
    found: dict[str, str] = {}

    def look(application: Any) -> None:
        deployment = application._bound_deployment
        config = copy.deepcopy(deployment._deployment_config)
        config.version = "of the whole file"
        sent = DeploymentConfig.from_proto_bytes(config.to_proto_bytes())
        assert sent.max_ongoing_requests == deployment._deployment_config.max_ongoing_requests
        assert sent.version == deployment.version
        found[deployment.name] = sent.version
        for one in deployment.init_args:
            if hasattr(one, "_bound_deployment"):
                look(one)

    look(deployments.build(tree))
    return found


def _changed(**sections: Any) -> set[str]:
    """Stages that another file with these sections restarts."""
    before, after = _versions(TREE), _versions({**TREE, **sections})
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_the_same_file_restarts_nothing() -> None:
    assert not _changed()


def test_a_limit_at_the_door_restarts_the_door() -> None:
    assert _changed(limits={"read_max_concurrent": 9}) == {"Recall"}


def test_what_a_model_is_restarts_who_reads_it() -> None:
    assert _changed(banks={"bank_memory_bytes": 2**30}) == {
        "Recall",
        "Retriever",
        "Ingest",
        "Ranges",
    }


def test_how_many_there_are_restarts_nothing() -> None:
    more = copy.deepcopy(TREE["stages"])
    more["retriever"]["replicas"] = 5
    more["embedder"]["autoscale"] = {"min_replicas": 1, "max_replicas": 3}
    assert not _changed(stages=more)


def test_a_release_restarts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _versions(TREE)
    monkeypatch.setenv(releases.RELEASE, "next")
    assert not parse({}, {releases.RELEASE: "next"}).warnings
    after = _versions(TREE)
    assert all(before[name] != after[name] for name in before)
