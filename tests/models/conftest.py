"""Small real models for the tests of models/."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models.weights import make_cross_encoder, make_encoder


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """The reference models too: threads that wait for each other cost more than they bring here."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-label BERT of MiniLM-L6 shape: the packaged encoder with a seeded head."""
    return make_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


@pytest.fixture(scope="session")
def small_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-label BERT with two layers of 64, random, with the packaged tokenizer."""
    folder = tmp_path_factory.mktemp("small-cross-encoder")
    return make_encoder(folder, "bert", labels=1, vocab_size=30522)
