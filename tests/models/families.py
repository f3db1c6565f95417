"""Tiny random models of many families, each with the kind of tokenizer that its family has."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.models.weights import packaged

DIMENSIONS: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "initializer_range": 0.3,
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "distilbert": {
        "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "initializer_range": 0.3,
        "max_position_embeddings": 66,
    },
    "albert": {**DIMENSIONS, "embedding_size": 16},
    "electra": {**DIMENSIONS, "embedding_size": 16},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "fnet": {**DIMENSIONS, "tpu_short_seq_length": 66},
    "qwen3": {**DIMENSIONS, "num_key_value_heads": 2, "head_dim": 8},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "initializer_range": 0.3},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 66, "initializer_range": 0.3},
}  # fmt: skip
"""Families whose configurations use other names, or more of them."""

WORDPIECE = ("bert", "distilbert", "electra", "mpnet", "modernbert", "convbert", "mobilebert")
BYTES = ("roberta", "qwen3", "gpt2", "longformer")
UNIGRAM = ("xlm-roberta", "camembert", "albert", "deberta-v2", "t5", "fnet", "xlnet")


@cache
def _words() -> list[str]:
    return (packaged() / "vocab.txt").read_text(encoding="utf-8").splitlines()


def _pieces(specials: Sequence[str]) -> list[tuple[str, float]]:
    words = [f"▁{w}" for w in _words() if w.isalpha() and w.isascii()][:800]
    letters = [*string.printable[:95], *"äéèüïß▁"]
    found = dict.fromkeys([*words, *letters])
    return [
        *((special, 0.0) for special in specials),
        *((piece, -3.0 - 0.001 * at) for at, piece in enumerate(found)),
    ]


def tokenizer(family: str) -> Any:
    """Of the family's own class."""
    import transformers as t

    if family in WORDPIECE:
        vocabulary = {word: at for at, word in enumerate(_words())}
        if family == "mpnet":
            renamed = {"[CLS]": "<s>", "[SEP]": "</s>", "[PAD]": "<pad>", "[MASK]": "<mask>"}
            return t.MPNetTokenizer({renamed.get(w, w): at for w, at in vocabulary.items()})
        if family == "distilbert":
            return t.DistilBertTokenizer(vocabulary)
        return t.BertTokenizer(vocabulary)
    if family in BYTES:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"]
        trainer = trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train_from_iterator([w for w in _words() if w.isalpha()][:3000], trainer)
        model = json.loads(made.to_str())["model"]
        merges: Any = [tuple(pair) for pair in model["merges"]]
        if family in ("qwen3", "gpt2"):
            return t.GPT2Tokenizer(vocab=model["vocab"], merges=merges, pad_token="<|endoftext|>")
        return t.RobertaTokenizer(vocab=model["vocab"], merges=merges)
    special = {
        "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>"],
        "camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"],
        "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        "fnet": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        "deberta-v2": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        "t5": ["<pad>", "</s>", "<unk>"],
        "xlnet": ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
    }[family]
    kinds: Mapping[str, Any] = {
        "xlm-roberta": t.XLMRobertaTokenizer,
        "camembert": t.CamembertTokenizer,
        "albert": t.AlbertTokenizer,
        "fnet": t.AlbertTokenizer,
        "deberta-v2": t.DebertaV2Tokenizer,
        "t5": t.T5Tokenizer,
        "xlnet": t.XLNetTokenizer,
    }
    return kinds[family](vocab=_pieces(special))


def make(to: Path, family: str, *, labels: int = 0, **config: Any) -> Path:
    """A folder as transformers saves it (seed 0); with `labels` a sequence classifier."""
    import transformers as t

    torch.manual_seed(0)
    words = tokenizer(family)
    if labels:
        config["num_labels"] = labels
    settings = t.AutoConfig.for_model(
        family,
        vocab_size=len(words),
        pad_token_id=words.pad_token_id,
        **{**OTHERS.get(family, DIMENSIONS), **config},
    )
    kind: Any = t.AutoModelForSequenceClassification if labels else t.AutoModel
    encoder: Any = t.T5EncoderModel
    model = encoder(settings) if family == "t5" else kind.from_config(settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
            if name.startswith("classifier") and name.endswith("weight"):
                parameter.normal_(0, 0.5)
    model.save_pretrained(to)
    words.save_pretrained(to)
    return to


def arrange(
    folder: Path,
    *modules: tuple[str, Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    below: str = "",
) -> Path:
    """Makes it a sentence-transformers folder of these (kind, configuration) behind its encoder;
    `below`: the sub-folder into which the encoder's files go."""
    if below:
        files = [file for file in folder.iterdir() if file.is_file()]
        (folder / below).mkdir()
        for file in files:
            file.rename(folder / below / file.name)
    listed = [("Transformer", below)]
    for at, (kind, own) in enumerate(modules, 1):
        path = f"{at}_{kind}"
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(own))
        listed.append((kind, path))
    written = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(listed)
    ]
    (folder / "modules.json").write_text(json.dumps(written))
    (folder / below / "sentence_bert_config.json").write_text(json.dumps(options or {}))
    if config is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder
