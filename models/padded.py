"""The general path: any encoder that transformers can load, run on padded batches.

Used for what `packed.py` does not compute (DeBERTa, ModernBERT, MPNet and others), and as the
reference that the packed path is tested against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.pack import Pack
from models.weights import ModelFolder


class PaddedModel:
    """A transformers model over packs. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        folder: ModelFolder,
        device: torch.device,
        dtype: torch.dtype,
        *,
        classifier: bool,
        trust_remote_code: bool = False,
    ) -> None:
        from transformers import AutoModel, AutoModelForSequenceClassification

        kind: Any = AutoModelForSequenceClassification if classifier else AutoModel
        self._model = kind.from_pretrained(
            str(folder.path), dtype=dtype, trust_remote_code=trust_remote_code
        )
        self._model.to(device).eval()
        self._types = int(folder.config.get("type_vocab_size") or 0)
        self._padding = int(folder.config.get("pad_token_id") or 0)
        self._device = device

    @torch.inference_mode()
    def hidden(self, batch: Pack) -> Tensor:
        """(tokens, hidden), packed like the batch."""
        inputs, real = self._inputs(batch)
        return self._model(**inputs).last_hidden_state[real]  # type: ignore[no-any-return]

    @torch.inference_mode()
    def logits(self, batch: Pack) -> Tensor:
        """(n, labels), in the order of the pack."""
        inputs, _ = self._inputs(batch)
        return self._model(**inputs).logits  # type: ignore[no-any-return]

    def _inputs(self, batch: Pack) -> tuple[dict[str, Tensor], Tensor]:
        lengths = batch.lengths
        shape = (len(batch), int(lengths.max()))
        real = np.arange(shape[1])[None, :] < lengths[:, None]
        ids = np.full(shape, self._padding, np.int64)
        ids[real] = batch.ids
        mask = torch.from_numpy(real).to(self._device)
        inputs = {
            "input_ids": torch.from_numpy(ids).to(self._device),
            "attention_mask": mask.long(),
        }
        if self._types > 1:
            types = np.zeros(shape, np.int64)
            types[real] = batch.types
            inputs["token_type_ids"] = torch.from_numpy(types).to(self._device)
        return inputs, mask
