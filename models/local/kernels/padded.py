"""The general path: any encoder that transformers can load, run on padded batches.

Used for classifiers that `packed.py` does not compute (DeBERTa, ModernBERT, DistilBERT and others),
and as the reference that the packed path is tested against.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.local.kernels.pack import Pack
from models.local.weights import ModelFolder
from models.types import WrongModel


class PaddedModel:
    """A transformers model over packs. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        folder: ModelFolder,
        device: torch.device,
        dtype: torch.dtype,
        *,
        classifier: bool,
        types: bool = True,
    ) -> None:
        """`types`: whether the tokenizer makes token types. Raises WrongModel where weights are
        missing: transformers would make them up."""
        from transformers import AutoModel, AutoModelForSequenceClassification

        kind: Any = AutoModelForSequenceClassification if classifier else AutoModel
        model, told = kind.from_pretrained(
            str(folder.path), dtype=dtype, trust_remote_code=False, output_loading_info=True
        )
        missing = sorted(told["missing_keys"]) if classifier else []
        if missing:
            raise WrongModel(f"{folder.name}: the weights lack {', '.join(missing[:3])}")
        self._model = model.to(device).eval()
        takes = inspect.signature(model.forward).parameters
        self._types = types and "token_type_ids" in takes
        self._padding = int(model.config.pad_token_id or 0)
        self._device = device

    @property
    def positions(self) -> int:
        """The most tokens of one sequence; 2^30 where no table bounds them."""
        return positions(self._model)

    @property
    def words(self) -> int:
        """The rows of the table of words."""
        return int(self._model.get_input_embeddings().num_embeddings)

    @torch.inference_mode()
    def hidden(self, batch: Pack) -> Tensor:
        """(tokens, hidden), packed like the batch."""
        inputs = self._inputs(batch)
        return self._model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]  # type: ignore[no-any-return]

    @torch.inference_mode()
    def logits(self, batch: Pack) -> Tensor:
        """(n, labels), in the order of the pack."""
        return self._model(**self._inputs(batch)).logits  # type: ignore[no-any-return]

    def _inputs(self, batch: Pack) -> dict[str, Tensor]:
        return padded(batch, self._padding, self._types, self._device)


def padded(batch: Pack, padding: int, types: bool, device: torch.device) -> dict[str, Tensor]:
    """What models of transformers take, (n, longest) each: input_ids, attention_mask, and with
    `types` token_type_ids; padded on the right."""
    lengths = batch.lengths
    shape = (len(batch), int(lengths.max()))
    real = np.arange(shape[1])[None, :] < lengths[:, None]
    ids = np.full(shape, padding, np.int64)
    ids[real] = batch.ids
    inputs = {"input_ids": ids, "attention_mask": real.astype(np.int64)}
    if types:
        inputs["token_type_ids"] = np.zeros(shape, np.int64)
        inputs["token_type_ids"][real] = batch.types
    return {name: torch.from_numpy(table).to(device) for name, table in inputs.items()}


def positions(model: torch.nn.Module) -> int:
    """The most tokens that a model's table of positions has rows for; the RoBERTa family counts
    from behind its padding token. 2^30 where there is no such table."""
    found = 1 << 30
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding):
            skipped = getattr(module, "padding_idx", None)
            first = skipped + 1 if isinstance(skipped, int) else 0
            found = min(found, table.num_embeddings - first)
    return found
