"""A folder as sentence-transformers itself computes it, over our batches.

For every embedder that is more than an encoder of the BERT family and poolings. Its tokenizer,
encoder and modules do the work; batches, queue and deadlines are ours.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.local.kernels.pack import Pack, Tokens, pack
from models.local.kernels.padded import padded, positions
from models.local.layout import Layout
from models.local.text import CHARS_PER_TOKEN, beginning, without_surrogates
from models.local.weights import ModelFolder
from models.types import Floats, WrongModel

UNLIMITED_TOKENS = 8192
"""Where neither model nor tokenizer bounds a text."""

AT_ONCE = 32
"""Texts that are tokenised together: the tokenizer pads them to the longest."""

TEXTS = (
    "Where does Anna work now?",
    "ok",
    "The CONTRACT ends on 31 December, unless a party objects in writing three months before; "
    "then both meet within two weeks, in Porto or in Leipzig, and look for a way to go on.",
    "La réunion de Marie est reportée au 12 juin.",
)
"""What a model is tried on at its start."""

AGREES = {torch.float32: 0.9999}
AGREES_ROUNDED = 0.98
"""The least cosine to what sentence-transformers says of a text alone, in fp32."""


class SentenceModel:
    """Not thread-safe but for `tokens`: one thread owns it."""

    def __init__(
        self, folder: ModelFolder, layout: Layout, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Raises WrongModel where sentence-transformers cannot load the folder, makes up weights,
        or where vectors would depend on what else is in a batch."""
        self._name = folder.name
        self._layout = layout
        self._device = device
        self._lock = threading.Lock()
        self._model = _load(folder)
        limit = min(self._model.max_seq_length or UNLIMITED_TOKENS, positions(self._model))
        self.max_length = limit if limit < 1 << 20 else UNLIMITED_TOKENS
        self._model.max_seq_length = self.max_length
        self._types = False
        self._extra: Mapping[str, Any] = {}
        self._padding = int(getattr(self._model.tokenizer, "pad_token_id", None) or 0)
        self._from_left = getattr(self._model.tokenizer, "truncation_side", "right") == "left"
        self._words = int(self._model[0].auto_model.get_input_embeddings().num_embeddings)
        self._learn_inputs()
        expected = self._alone(self._model)
        self._require_own_weights(folder, expected)
        self._model.to(device, dtype)
        self._require_agreement(expected, AGREES.get(dtype, AGREES_ROUNDED))

    def tokens(self, texts: Sequence[str], prompt: str) -> list[Tokens]:
        """As sentence-transformers cuts them. Waits for other calls: not for an event loop."""
        chars = self.max_length * CHARS_PER_TOKEN
        short = [beginning(text, chars, from_left=self._from_left) for text in texts]
        found: list[Tokens] = []
        for start in range(0, len(short), AT_ONCE):
            found += self._tokenised(short[start : start + AT_ONCE], prompt)
        return found

    @torch.inference_mode()
    def vectors(self, batch: Pack) -> Tensor:
        """(n, dimension), of length 1, in the order of the pack."""
        inputs = padded(batch, self._padding, self._types, self._device)
        rows = self._model({**inputs, **self._extra})["sentence_embedding"]
        return F.normalize(rows[:, : self._layout.truncate_dim].float(), dim=1)

    def _tokenised(self, texts: Sequence[str], prompt: str) -> list[Tokens]:
        with self._lock:
            try:
                made = self._model.preprocess(texts, prompt=prompt or None)
            except TypeError:
                clean = without_surrogates(texts)
                made = self._model.preprocess(clean, prompt=prompt or None)
        real = made["attention_mask"].numpy().astype(bool)
        ids = made["input_ids"].numpy().astype(np.int32)
        if ids.size and ids[real].max(initial=0) >= self._words:
            token = ids[real].max()
            raise WrongModel(f"{self._name} has no word vector for token {token} of a text")
        types = made["token_type_ids"].numpy() if self._types else np.zeros_like(ids)
        # Without special tokens nothing at all may be left of an empty text.
        nothing = np.array([self._padding], np.int32)
        return [
            Tokens(row[mask], kinds[mask].astype(np.int32))
            if mask.any()
            else Tokens(nothing, np.zeros_like(nothing))
            for row, mask, kinds in zip(ids, real, types, strict=True)
        ]

    def _learn_inputs(self) -> None:
        made = self._model.preprocess(list(TEXTS[:2]))
        known = {"input_ids", "attention_mask", "token_type_ids"}
        tables = {name for name, value in made.items() if isinstance(value, Tensor)}
        if not {"input_ids", "attention_mask"} <= tables <= known:
            raise WrongModel(
                f"{self._name}: its tokenizer makes {', '.join(sorted(tables))}, "
                "which is not supported"
            )
        self._types = "token_type_ids" in tables
        self._extra = {name: value for name, value in made.items() if name not in known}

    def _alone(self, model: Any) -> Floats:
        prompt = self._layout.query_prompt
        rows = [
            model.encode(t, prompt=prompt, normalize_embeddings=True, show_progress_bar=False)
            for t in TEXTS
        ]
        return np.stack(rows).astype(np.float32)

    def _require_own_weights(self, folder: ModelFolder, expected: Floats) -> None:
        """Weights that the files lack are made up, by chance: another time they are others."""
        again = _load(folder)
        again.max_seq_length = self.max_length
        if np.abs(self._alone(again) - expected).max() < 1e-4:
            return
        first, second = self._model.state_dict(), again.state_dict()
        differing = [name for name in first if not torch.equal(first[name], second[name])]
        raise WrongModel(f"{folder.name}: the weights lack {', '.join(differing[:3])}")

    def _require_agreement(self, expected: Floats, least: float) -> None:
        batch = pack(self.tokens(TEXTS, self._layout.query_prompt))
        rows = self.vectors(batch).cpu().numpy()
        cosines = (rows * expected[batch.order]).sum(1)
        if not cosines.min() >= least:
            raise WrongModel(
                f"{self._name}: in a batch its vectors are not those of each text alone "
                f"(cosine {cosines.min():.4f})"
            )


def _load(folder: ModelFolder) -> Any:
    """On the CPU in fp32."""
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = SentenceTransformer(
            str(folder.root),
            device="cpu",
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.float32},
        )
    except Exception as error:  # it raises whatever the files lead to
        raise WrongModel(f"{folder.name} cannot be loaded: {error}") from error
    return model.float().eval()
