"""What a folder says that sentence-transformers would do with it: modules, options, prompts.

Read strictly: what is not understood wholly is left to sentence-transformers itself
(`Layout.packed` is false, models/local/sentence.py), and what even that cannot compute the same for
every batch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.local.weights import ModelFolder, inside, kind_of, read_list, read_object
from models.types import WrongModel

OPTION_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the options of a Transformer module stand; the first that is there counts."""

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""In the order in which several of them are laid side by side."""

FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""How older folders name the poolings."""

MODULES = ("Transformer", "WeightedLayerPooling", "Pooling", "Dense", "LayerNorm", "Normalize")
"""Modules whose result for a text does not depend on the padding beside it."""

TEXT_ONLY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}


@dataclass(frozen=True, slots=True)
class TransformerOptions:
    """Of a Transformer module. `max_tokens`: takes the place of the tokenizer's own limit.
    `others`: whether something else is set that changes what it computes."""

    max_tokens: int | None = None
    lower_case: bool = False
    others: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """`poolings`: of `POOLINGS`, side by side. `truncate_dim`: that many numbers of a vector are
    kept. `packed`: it is an encoder and poolings, and nothing else."""

    options: TransformerOptions
    poolings: tuple[str, ...]
    query_prompt: str
    passage_prompt: str
    truncate_dim: int | None
    similarity: str
    packed: bool


def options(folder: ModelFolder) -> TransformerOptions:
    """Those of the Transformer module. Without a modules.json, nobody reads them."""
    if not (folder.root / "modules.json").is_file():
        return TransformerOptions()
    found = next((o for file in OPTION_FILES if (o := read_object(folder.path / file))), {})
    most = found.get("max_seq_length")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise WrongModel(f"{folder.name}: max_seq_length is {most!r}, not a number of tokens")
    usual = {
        "transformer_task": ("feature-extraction", "sequence-classification"),
        "modality_config": (
            TEXT_ONLY,
            {"text": {**TEXT_ONLY["text"], "method_output_name": "logits"}},
        ),
        "module_output_name": ("token_embeddings", "scores"),
    }
    free = ("max_seq_length", "do_lower_case", "unpad_inputs")
    others = any(
        value not in usual[name] if name in usual else name not in free
        for name, value in found.items()
        if value not in (None, {})
    )
    return TransformerOptions(most, bool(found.get("do_lower_case")), others)


def read(folder: ModelFolder) -> Layout:
    """Of an embedder. Raises WrongModel, with the reason, where its vectors would be others."""
    modules = read_list(folder.root / "modules.json")
    config = read_object(folder.root / "config_sentence_transformers.json") if modules else {}
    kind = config.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise WrongModel(f"{folder.name} is a {kind}, and no embedder of one vector per text")
    query, passage = _prompts(folder, config)
    truncate_dim = config.get("truncate_dim")
    if truncate_dim is not None and (not isinstance(truncate_dim, int) or truncate_dim < 1):
        raise WrongModel(f"{folder.name}: truncate_dim is {truncate_dim!r}, not a number")
    poolings, plain = _pooling(folder, modules, bool(query or passage))
    own = options(folder)
    return Layout(
        options=own,
        poolings=poolings,
        query_prompt=query,
        passage_prompt=passage,
        truncate_dim=truncate_dim,
        similarity=config.get("similarity_fn_name") or "cosine",
        packed=plain and not own.others and not _adapted(folder),
    )


def of_classifier(folder: ModelFolder) -> Mapping[str, Any]:
    """What config_sentence_transformers.json says of a cross-encoder. Raises WrongModel where it
    is more than a sequence classifier."""
    modules = read_list(folder.root / "modules.json")
    _require_known(folder, modules)
    if others := [kind_of(module) for module in modules if kind_of(module) != "Transformer"]:
        raise WrongModel(f"{folder.name} has a {others[0]} module, which rerankers do not support")
    if options(folder).others or _adapted(folder):
        raise WrongModel(f"{folder.name} has options that rerankers do not support")
    config = read_object(folder.root / "config_sentence_transformers.json") if modules else {}
    prompts = config.get("prompts") or {}
    if prompts.get(config.get("default_prompt_name")):
        raise WrongModel(f"{folder.name} has a default prompt, which rerankers do not support")
    return config if config.get("model_type") == "CrossEncoder" else {}


def _adapted(folder: ModelFolder) -> bool:
    """Whether the weights alone are not the model."""
    places = {folder.root, folder.path}
    adapter = any((place / "adapter_config.json").is_file() for place in places)
    return adapter or "quantization_config" in folder.config


def _require_known(folder: ModelFolder, modules: list[Mapping[str, Any]]) -> None:
    for module in modules:
        name, kind = str(module.get("type", "")), kind_of(module)
        if not name.startswith("sentence_transformers."):
            raise WrongModel(
                f"{folder.name} has a module {name}: code that comes with a model is never run"
            )
        if kind not in MODULES:
            raise WrongModel(f"{folder.name} has a {kind} module, which is not supported")


def _pooling(
    folder: ModelFolder, modules: list[Mapping[str, Any]], prompted: bool
) -> tuple[tuple[str, ...], bool]:
    """The poolings, and whether nothing but an encoder and vectors of length 1 is around them."""
    if not modules:
        names = folder.config.get("architectures") or [""]
        causal = str(names[0]).endswith("ForCausalLM")
        plain = not causal and not _has_chat_template(folder.path)
        return ("lasttoken",) if causal else ("mean",), plain
    _require_known(folder, modules)
    kinds = [kind_of(module) for module in modules]
    if kinds[0] != "Transformer" or kinds.count("Transformer") > 1 or kinds.count("Pooling") != 1:
        raise WrongModel(
            f"{folder.name} consists of {', '.join(kinds)}: it must be an encoder and one pooling"
        )
    config = read_object(
        inside(folder.root, str(modules[kinds.index("Pooling")].get("path", ""))) / "config.json"
    )
    if config.get("include_prompt") is False and prompted:
        raise WrongModel(
            f"{folder.name} leaves its prompt out when it pools, which is not supported"
        )
    poolings = _modes(folder, config)
    known = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"}
    plain = set(config) <= known | set(FLAGS) and kinds[1] == "Pooling"
    for module, kind in list(zip(modules, kinds, strict=True))[2:]:
        own = read_object(inside(folder.root, str(module.get("path", ""))) / "config.json")
        plain = plain and kind == "Normalize" and set(own.values()) <= {None, "sentence_embedding"}
    return poolings, plain


def _modes(folder: ModelFolder, config: Mapping[str, Any]) -> tuple[str, ...]:
    named = config.get("pooling_mode")
    if named is None:
        return tuple(mode for flag, mode in FLAGS.items() if config.get(flag)) or ("mean",)
    modes = tuple(named) if isinstance(named, list) else (named,)
    if not modes or any(mode not in POOLINGS for mode in modes):
        raise WrongModel(
            f"{folder.name} pools by {named!r}, which is none of {', '.join(POOLINGS)}"
        )
    return modes


def _has_chat_template(path: Path) -> bool:
    beside = any((path / f"chat_template.{end}").is_file() for end in ("jinja", "json"))
    return beside or bool(read_object(path / "tokenizer_config.json").get("chat_template"))


def _prompts(folder: ModelFolder, config: Mapping[str, Any]) -> tuple[str, str]:
    """(query, passage): by the names that sentence-transformers uses, else the default one."""
    prompts: Mapping[str, str] = config.get("prompts") or {}
    name = config.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise WrongModel(f"{folder.name}: its default prompt {name!r} is not among its prompts")
    fallback = prompts[name] if name is not None else ""
    query = prompts.get("query", fallback)
    passage = next(
        (prompts[n] for n in ("document", "passage", "corpus") if n in prompts), fallback
    )
    return query or "", passage or ""
