"""Which of two deployments of a stage are the same, so that Serve leaves its replicas alone.

Serve gives all stages of a configuration file one version, a hash of the file's arguments: a change
of a single limit would restart every replica of every stage, those that hold banks among them. A
stage of ours has a version of its own, made from what it is told and from the release. What its
replicas take of a node is compared by Serve itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ray import serve
from ray.serve._private.config import DeploymentConfig

RELEASE = "FOURFOLD_RELEASE"
"""A variable that tells the releases of a program apart whose versions are the same."""


def version(told: Mapping[str, Any]) -> str:
    """Of a stage that is told this, in this release."""
    release = [_installed(), os.environ.get(RELEASE, "")]
    return hashlib.sha256(json.dumps([release, told], sort_keys=True).encode()).hexdigest()[:32]


def pinned(deployment: serve.Deployment, told: Mapping[str, Any]) -> serve.Deployment:
    """`deployment` with the version of what it is told, whoever deploys it."""
    own = version(told)
    deployment._version = own
    usual = deployment._deployment_config
    kept = _Config.model_construct(_fields_set=usual.model_fields_set, **dict(usual))
    kept.__dict__["version"] = own
    deployment._deployment_config = kept
    return deployment


class _Config(DeploymentConfig):
    """Keeps its version, whatever Serve sets in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "version":
            super().__setattr__(name, value)


def _installed() -> str:
    try:
        return metadata.version("fourfold")
    except metadata.PackageNotFoundError:  # run from its sources
        return ""
