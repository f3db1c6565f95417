"""Model folders of many families and options: the vectors and scores of sentence-transformers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from models.local.crossencoder import LocalCrossEncoder
from models.local.encoder import LocalEncoder
from models.settings import Compute, EmbedderSettings, RerankerSettings
from models.types import Floats, RerankRequest, WrongModel
from tests.models.families import arrange, make

pytestmark = pytest.mark.integration

EXACT = Compute(device="cpu", precision="fp32", threads=1, batch_tokens=256)
TEXTS = [
    "Where does Anna work NOW?",
    "naïve Über-Größe, 日本語",
    "",
    "a",
    "  spaced   out\n\nlines\t ",
    "the same words again and again " * 30,
    "x" * 300,
    "Where does Anna work NOW?",
]
ENCODERS = (
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "albert", "electra",
    "deberta-v2", "modernbert", "t5", "mobilebert", "qwen3", "xlnet",
)  # fmt: skip
POOLINGS = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")


def pooled(*modes: str, **others: Any) -> tuple[str, Mapping[str, Any]]:
    flags = {
        f"pooling_mode_{name}": name.removesuffix("_tokens").removesuffix("_token") in modes
        or name in modes
        for name in (
            "cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
            "weightedmean_tokens", "lasttoken",
        )
    }  # fmt: skip
    return "Pooling", {"word_embedding_dimension": 32, **flags, **others}


async def vectors(folder: Path, **settings: Any) -> tuple[Floats, Floats]:
    """(as queries, as passages)"""
    ours = LocalEncoder(EmbedderSettings(model=str(folder), compute=EXACT, **settings))
    await ours.start()
    try:
        queries, passages = await ours.embed_queries(TEXTS), await ours.embed_passages(TEXTS)
        assert ours.dimension == queries.shape[1]
        return queries, passages
    finally:
        await ours.close()


def theirs(folder: Path, method: str = "encode", **options: Any) -> Floats:
    """Each text alone; zeros where there is no token that they could read."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    rows = [
        getattr(model, method)(text, normalize_embeddings=True, **options)
        for text in TEXTS
        if text or len(model.tokenizer("")["input_ids"])
    ]
    if len(rows) < len(TEXTS):
        rows.insert(TEXTS.index(""), np.zeros_like(rows[0]))
    return np.stack(rows).astype(np.float32)


def equal(got: Floats, expected: Floats) -> None:
    assert got.shape == expected.shape
    read = expected.any(1)
    assert (got * expected).sum(1)[read].min() > 0.99999


async def same(folder: Path, **options: Any) -> None:
    expected = theirs(folder, **options)
    for got in await vectors(folder):
        equal(got, expected)


async def refused(folder: Path, reason: str) -> None:
    with pytest.raises(WrongModel, match=reason):
        await vectors(folder)


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
@pytest.mark.parametrize("family", ENCODERS)
async def test_families(family: str, pooling: str, tmp_path: Path) -> None:
    options = {"max_seq_length": 60, "do_lower_case": False}
    await same(arrange(make(tmp_path, family), pooled(pooling), ("Normalize", {}), options=options))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet"])
@pytest.mark.parametrize(
    "modes", [*((mode,) for mode in POOLINGS), ("cls", "mean"), ("mean", "max", "weightedmean")]
)
async def test_poolings(family: str, modes: tuple[str, ...], tmp_path: Path) -> None:
    folder = make(tmp_path, family)
    await same(arrange(folder, pooled(*modes), options={"max_seq_length": 40}))


@pytest.mark.parametrize("family", ["bert", "electra"])
@pytest.mark.parametrize(
    "own",
    [
        {"embedding_dimension": 32, "pooling_mode": "cls"},
        {"embedding_dimension": 32, "pooling_mode": ["mean", "cls"], "include_prompt": False},
        {"word_embedding_dimension": 32},
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": False},
    ],
    ids=["named", "several", "nothing said", "nothing on"],
)
async def test_poolings_of_newer_and_older_folders(
    family: str, own: Mapping[str, Any], tmp_path: Path
) -> None:
    await same(arrange(make(tmp_path, family), ("Pooling", own)))


def save_module(folder: Path, module: str, **tensors: torch.Tensor) -> None:
    save_file(
        {name.replace("__", "."): t for name, t in tensors.items()},
        folder / module / "model.safetensors",
    )


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("activation", ["Tanh", "Identity", "GELU", "ReLU"])
@pytest.mark.parametrize("bias", [True, False])
async def test_dense(family: str, activation: str, bias: bool, tmp_path: Path) -> None:
    own = {
        "in_features": 32,
        "out_features": 12,
        "bias": bias,
        "activation_function": f"torch.nn.modules.activation.{activation}"
        if activation != "Identity"
        else "torch.nn.modules.linear.Identity",
    }
    folder = arrange(make(tmp_path, family), pooled("mean"), ("Dense", own), ("Normalize", {}))
    torch.manual_seed(1)
    tensors = {"linear__weight": torch.randn(12, 32)}
    if bias:
        tensors["linear__bias"] = torch.randn(12)
    save_module(folder, "2_Dense", **tensors)
    await same(folder)


async def test_layer_norm_and_two_dense_layers(tmp_path: Path) -> None:
    dense = {"in_features": 32, "out_features": 32, "bias": False}
    folder = arrange(
        make(tmp_path, "mpnet"),
        pooled("mean"),
        ("LayerNorm", {"dimension": 32}),
        ("Dense", dense),
        ("Dense", {**dense, "use_residual": True}),
        options={"max_seq_length": 50},
    )
    torch.manual_seed(1)
    save_module(folder, "2_LayerNorm", norm__weight=torch.rand(32), norm__bias=torch.rand(32))
    for module in ("3_Dense", "4_Dense"):
        save_module(folder, module, linear__weight=torch.randn(32, 32))
    await same(folder)


async def test_layers_that_are_weighted(tmp_path: Path) -> None:
    own = {"word_embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 2}
    folder = arrange(
        make(tmp_path, "bert", output_hidden_states=True),
        ("WeightedLayerPooling", own),
        pooled("mean"),
    )
    save_module(folder, "1_WeightedLayerPooling", layer_weights=torch.tensor([0.3, 0.7]))
    await same(folder)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "xlm-roberta"])
@pytest.mark.parametrize("lower", [True, False])
async def test_lower_case(family: str, lower: bool, tmp_path: Path) -> None:
    """Whatever the tokenizer does by itself."""
    folder = make(tmp_path, family)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "do_lower_case": False}))
    options = {"max_seq_length": 50, "do_lower_case": lower}
    await same(arrange(folder, pooled("mean"), options=options))


@pytest.mark.parametrize("family", ["bert", "distilbert", "t5"])
@pytest.mark.parametrize("most", [5, 40, 64, None])
async def test_the_most_tokens(family: str, most: int | None, tmp_path: Path) -> None:
    """The module's limit takes the place of the tokenizer's."""
    folder = make(tmp_path, family)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "model_max_length": 20}))
    await same(arrange(folder, pooled("mean"), options={"max_seq_length": most}))


@pytest.mark.parametrize("family", ["roberta", "mpnet", "camembert"])
async def test_texts_are_cut_to_the_places_that_there_are(family: str, tmp_path: Path) -> None:
    """Their own limit counts two places too many, and a long text is an error."""
    folder = arrange(make(tmp_path / "a", family), pooled("mean"))
    cut = arrange(make(tmp_path / "b", family), pooled("mean"), options={"max_seq_length": 64})
    equal((await vectors(folder))[0], theirs(cut))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
async def test_the_side_that_is_cut(family: str, side: str, tmp_path: Path) -> None:
    folder = make(tmp_path, family)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "truncation_side": side}))
    await same(arrange(folder, pooled("mean"), options={"max_seq_length": 12}))


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet"])
@pytest.mark.parametrize("below", ["", "0_Transformer", "a/b"])
async def test_where_the_encoder_stands(family: str, below: str, tmp_path: Path) -> None:
    folder = make(tmp_path, family)
    if "/" in below:
        (folder / "a").mkdir()
    options = {"max_seq_length": 30, "do_lower_case": True}
    await same(arrange(folder, pooled("cls"), options=options, below=below))


@pytest.mark.parametrize("family", ["bert", "distilbert"])
async def test_older_names_of_options(family: str, tmp_path: Path) -> None:
    folder = arrange(make(tmp_path, family), pooled("mean"), options={"max_seq_length": 9})
    (folder / "sentence_bert_config.json").rename(folder / "sentence_distilbert_config.json")
    await same(folder)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize(
    "options",
    [
        {"model_args": {"attn_implementation": "eager"}},
        {"tokenizer_args": {"model_max_length": 11}},
        {"processing_kwargs": {"text": {"max_length": 7, "truncation": True}}},
        {"config_args": {"output_hidden_states": True}},
        {"unpad_inputs": False},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_options_handed_to_transformers(
    family: str, options: Mapping[str, Any], tmp_path: Path
) -> None:
    await same(arrange(make(tmp_path, family), pooled("mean"), options=options))


def as_bin(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def in_shards(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    places: dict[str, str] = {}
    for at, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{at + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def beside_others(folder: Path) -> None:
    """Weights of another variant, which nobody reads."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name: t * 2 for name, t in tensors.items()}, folder / "model.zz.safetensors")
    torch.save({name: t * 3 for name, t in tensors.items()}, folder / "pytorch_model.bin")


def in_half(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    halves = {name: t.half() if t.is_floating_point() else t for name, t in tensors.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))


def from_tensorflow(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for n, t in tensors.items()
    }
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize(
    "stored", [as_bin, in_shards, beside_others, in_half, from_tensorflow], ids=lambda f: f.__name__
)
async def test_how_weights_are_stored(
    family: str, stored: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = make(tmp_path, family)
    stored(folder)
    await same(arrange(folder, pooled("mean"), options={"max_seq_length": 50}))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "qwen3"])
async def test_a_folder_without_modules(family: str, tmp_path: Path) -> None:
    """Options and prompts beside it are not read by anybody."""
    folder = make(tmp_path, family)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "model_max_length": 60}))
    await same(folder)


async def test_a_decoder_without_modules_pools_its_last_token(tmp_path: Path) -> None:
    folder = make(tmp_path, "qwen3")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    await same(folder)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
async def test_files_of_the_tokenizer(family: str, tmp_path: Path) -> None:
    """Only a vocabulary; and a tokenizer.json whose settings the configuration overrules."""
    folder = make(tmp_path / "a", family)
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    await same(arrange(folder, pooled("mean")))
    folder = make(tmp_path / "b", family)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "do_lower_case": False}))
    await same(arrange(folder, pooled("mean")))


PROMPTS = {"query": "question: ", "passage": "fact: ", "other": "x: "}


@pytest.mark.parametrize("family", ["bert", "distilbert"])
async def test_prompts(family: str, tmp_path: Path) -> None:
    folder = arrange(make(tmp_path, family), pooled("mean"), config={"prompts": PROMPTS})
    queries, passages = await vectors(folder)
    equal(queries, theirs(folder, "encode_query"))
    equal(passages, theirs(folder, prompt_name="passage"))


@pytest.mark.parametrize("family", ["bert", "distilbert"])
async def test_prompts_that_are_empty_or_the_default(family: str, tmp_path: Path) -> None:
    prompts = {"query": "", "document": "doc: ", "other": "x: "}
    config = {"prompts": prompts, "default_prompt_name": "other"}
    folder = arrange(make(tmp_path / "a", family), pooled("mean"), config=config)
    queries, passages = await vectors(folder)
    equal(queries, theirs(folder, "encode_query"))
    equal(passages, theirs(folder, "encode_document"))
    config = {"prompts": {"other": "x: "}, "default_prompt_name": "other"}
    folder = arrange(make(tmp_path / "b", family), pooled("mean"), config=config)
    await same(folder)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("dimension", [8, 31, 100])
async def test_shorter_vectors(family: str, dimension: int, tmp_path: Path) -> None:
    config = {"truncate_dim": dimension, "similarity_fn_name": "cosine"}
    folder = arrange(make(tmp_path, family), pooled("mean"), ("Normalize", {}), config=config)
    await same(folder)


async def test_a_similarity_that_is_not_the_cosine_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = arrange(make(tmp_path, "bert"), pooled("cls"), config={"similarity_fn_name": "dot"})
    await same(folder)
    assert "compared by cosine" in caplog.text


@pytest.mark.parametrize("kind", ["CNN", "LSTM", "BoW", "WordEmbeddings", "Router", "Unknown"])
async def test_modules_that_are_refused(kind: str, tmp_path: Path) -> None:
    await refused(arrange(make(tmp_path, "bert"), (kind, {}), pooled("mean")), f"{kind} module")


async def test_a_static_embedding_is_refused(tmp_path: Path) -> None:
    listed = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
    ]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    await refused(tmp_path, "StaticEmbedding module")


@pytest.mark.parametrize("family", ["convbert", "fnet"])
async def test_families_that_read_their_padding_are_refused(family: str, tmp_path: Path) -> None:
    await refused(arrange(make(tmp_path, family), pooled("mean")), "in a batch its vectors")


def without(*parts: str) -> Callable[[Path], None]:
    """Takes the weights of these names out of the file."""

    def work(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        left = {n: t for n, t in tensors.items() if not any(part in n for part in parts)}
        assert len(left) < len(tensors)
        save_file(left, folder / "model.safetensors", {"format": "pt"})

    return work


def with_json(file: str, **own: Any) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        path = folder / file
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**old, **own}))

    return work


def with_module(**own: Any) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        listed[-1].update(own)
        (folder / "modules.json").write_text(json.dumps(listed))

    return work


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("bert", without("layer.1.attention.self.query.weight"), "the weights lack"),
        ("distilbert", without("layer.1.attention.q_lin.weight"), "the weights lack"),
        ("roberta", without("word_embeddings"), "the weights lack"),
        ("bert", with_json("config.json", model_type="nonsense"), "cannot be read"),
        ("distilbert", with_json("config.json", hidden_dim=48), "cannot be loaded"),
        ("bert", with_json("config.json", num_hidden_layers=3), "the weights lack"),
        ("bert", with_json("config.json", hidden_size=36), "do not fit"),
        ("roberta", with_json("config.json", max_position_embeddings=80), "do not fit"),
        ("roberta", with_json("config.json", vocab_size=900), "do not fit"),
        ("distilbert", with_json("config.json", dim=36), "cannot be loaded"),
        ("bert", with_module(type="own_code.Pooling"), "never run"),
        ("bert", with_module(path="../../elsewhere"), "outside of the folder"),
        ("bert", with_json("1_Pooling/config.json", pooling_mode="best"), "pools by"),
        ("bert", with_json("sentence_bert_config.json", max_seq_length="many"), "max_seq_length"),
        ("bert", with_json("config_sentence_transformers.json", truncate_dim=-3), "truncate_dim"),
        (
            "bert",
            with_json("config_sentence_transformers.json", default_prompt_name="gone"),
            "not among its prompts",
        ),
        (
            "bert",
            with_json("config_sentence_transformers.json", model_type="SparseEncoder"),
            "is a SparseEncoder",
        ),
        ("bert", with_json("adapter_config.json", peft_type="LORA"), "cannot be loaded"),
    ],
)
async def test_folders_that_are_refused(
    family: str, change: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    folder = arrange(make(tmp_path, family), pooled("mean"))
    change(folder)
    await refused(folder, reason)


async def test_a_prompt_that_is_not_pooled_is_refused(tmp_path: Path) -> None:
    own = pooled("mean", include_prompt=False)
    await refused(
        arrange(make(tmp_path / "a", "bert"), own, config={"prompts": PROMPTS}), "prompt out"
    )
    await same(arrange(make(tmp_path / "b", "bert"), own, config={"prompts": {}}))


async def test_a_token_without_a_vector_fails_its_own_call(tmp_path: Path) -> None:
    """And no batch that others are in."""
    for family in ("bert", "distilbert"):
        folder = make(tmp_path / family, family)
        tensors = load_file(folder / "model.safetensors")
        name = next(n for n in tensors if "word_embeddings" in n)
        tensors[name] = tensors[name][:20000].clone()
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        with_json("config.json", vocab_size=20000)(folder)
        made = LocalEncoder(EmbedderSettings(model=str(folder), compute=EXACT))
        await made.start()
        with pytest.raises(WrongModel, match="no word vector"):
            await made.embed_queries(["##ffled 日本語 zhuangzi ʻo ₜ"])
        assert (await made.embed_passages(["a door"])).shape == (1, 32)
        await made.close()


@pytest.mark.parametrize("family", ["bert", "distilbert", "t5"])
async def test_odd_and_long_texts(family: str, tmp_path: Path) -> None:
    """Lone surrogates, marks and nothing at all, beside a flood of long texts."""
    folder = arrange(make(tmp_path, family), pooled("mean"), options={"max_seq_length": 60})
    made = LocalEncoder(EmbedderSettings(model=str(folder), compute=EXACT))
    await made.start()
    flood = asyncio.create_task(made.embed_passages(["word " * 400_000, "e\u0301" * 900_000] * 20))
    longest = 0.0
    for text in ("\ud800 door", "\u200b\u0301", "\x00", "") * 3:
        before = time.monotonic()
        await asyncio.sleep(0)
        longest = max(longest, time.monotonic() - before)
        rows = await made.embed_queries([text])
        assert np.isfinite(rows).all()
    assert (await flood).shape == (40, 32)
    assert longest < 0.25
    await made.close()


QUERY = "where is the red lamp"
DOCUMENTS = [t for t in TEXTS if t] + ["The red lamp is in the garden.", "lamp"]
CLASSIFIERS = (
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "albert", "electra",
    "deberta-v2", "modernbert", "mobilebert",
)  # fmt: skip


async def scored(folder: Path) -> Floats:
    ours = LocalCrossEncoder(RerankerSettings(model=str(folder), compute=EXACT))
    await ours.start()
    try:
        answer = await ours.rerank(RerankRequest(QUERY, DOCUMENTS))
    finally:
        await ours.close()
    assert answer.scores is not None
    if answer.scale == "logit":
        return np.asarray(1 / (1 + np.exp(-answer.scores)))
    assert answer.scale == "probability"
    return answer.scores


def predicted(folder: Path, most: int = 66, **options: Any) -> Floats:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    model.max_seq_length = most
    pairs = [(QUERY, document) for document in DOCUMENTS]
    return np.asarray(model.predict(pairs, batch_size=1, show_progress_bar=False, **options))


@pytest.mark.parametrize("family", CLASSIFIERS)
async def test_classifiers(family: str, tmp_path: Path) -> None:
    folder = make(tmp_path, family, labels=1)
    counts_from_padding = family in ("roberta", "xlm-roberta", "camembert", "mpnet")
    expected = predicted(folder, 64 if counts_from_padding else 66)
    assert expected.std() > 0.001
    np.testing.assert_allclose(await scored(folder), expected, atol=1e-4)
    if family in ("bert", "distilbert", "roberta"):
        as_bin(folder)
        np.testing.assert_allclose(await scored(folder), expected, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
async def test_a_tokenizer_without_types(family: str, tmp_path: Path) -> None:
    folder = make(tmp_path, family, labels=1)
    with_json("tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")(folder)
    np.testing.assert_allclose(await scored(folder), predicted(folder), atol=1e-4)


SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize(
    "own",
    [
        {"sentence_transformers": {"activation_fn": SIGMOID, "version": "4.1.0"}},
        {"sentence_transformers": {"activation_fn": IDENTITY}},
        {"sbert_ce_default_activation_function": SIGMOID},
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sbert_ce_default_activation_function": "somebody.elses.Code"},
    ],
)
async def test_declared_activations(family: str, own: dict[str, Any], tmp_path: Path) -> None:
    folder = make(tmp_path, family, labels=1)
    with_json("config.json", **own)(folder)
    expected = predicted(folder, activation_fn=torch.nn.Sigmoid())
    np.testing.assert_allclose(await scored(folder), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "labels", "change", "reason"),
    [
        ("distilbert", 2, None, "2 labels"),
        ("roberta", 3, None, "3 labels"),
        ("bert", 0, None, "BertModel"),
        ("distilbert", 1, without("classifier.weight"), "the weights lack"),
        ("bert", 1, without("classifier.weight"), "the weights lack|lack the classification"),
        ("convbert", 1, None, "depend on what else"),
        (
            "bert",
            1,
            with_json("config.json", sentence_transformers={"activation_fn": "torch.nn.Tanh"}),
            "ends in torch.nn.Tanh",
        ),
    ],
)
async def test_classifiers_that_are_refused(
    family: str, labels: int, change: Callable[[Path], None] | None, reason: str, tmp_path: Path
) -> None:
    folder = make(tmp_path, family, labels=labels)
    if change is not None:
        change(folder)
    with pytest.raises(WrongModel, match=reason):
        await scored(folder)


async def test_a_classifier_saved_by_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    made = CrossEncoder(str(make(tmp_path / "a", "distilbert", labels=1)), device="cpu")
    made.save_pretrained(str(tmp_path / "b"))
    np.testing.assert_allclose(await scored(tmp_path / "b"), predicted(tmp_path / "b"), atol=1e-4)


async def test_an_embedder_saved_by_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    for family in ("bert", "distilbert", "deberta-v2"):
        made = SentenceTransformer(str(make(tmp_path / family, family)), device="cpu")
        made.save_pretrained(str(tmp_path / f"{family}-saved"))
        await same(tmp_path / f"{family}-saved")
