"""A batch without padding: token ids laid end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.types import Ints


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised text or pair. ids and types int32 (n,), special tokens included.

    `cut`: tokens were left out to fit the model.
    """

    ids: Ints
    types: Ints
    cut: bool = False

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Pack:
    """Sequences laid end to end, longest first.

    ids, types, positions int32 (tokens,), positions counting from 0 in each sequence; offsets
    int32 (n + 1,), where each sequence begins; order int32 (n,): the caller's index of each.
    """

    ids: Ints
    types: Ints
    positions: Ints
    offsets: Ints
    order: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.order)


def pack(sequences: Sequence[Tokens]) -> Pack:
    """Lays the sequences end to end, longest first; at least one, none of them empty."""
    lengths = np.fromiter((len(s) for s in sequences), np.int32, len(sequences))
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths[order], out=offsets[1:])
    total = int(offsets[-1])
    positions = np.arange(total, dtype=np.int32) - np.repeat(offsets[:-1], lengths[order])
    return Pack(
        ids=np.concatenate([sequences[i].ids for i in order]),
        types=np.concatenate([sequences[i].types for i in order]),
        positions=positions.astype(np.int32),
        offsets=offsets,
        order=order,
    )
