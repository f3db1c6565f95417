"""The head of a bank: the one row that a recall reads before it searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from retrieval.messages import message


@message
@dataclass(frozen=True, slots=True)
class BankHead:
    """A bank's identity and newest committed state.

    `bank` is the internal number (distribution key); `version` rises with every committed write,
    `generation` when ordinals were reassigned, and ordinals 0 .. next_ordinal - 1 are in use.
    `vector_set` and `analyser` name what the active vectors and postings were made with; both are
    empty until the first write. `config` holds the bank's overrides in field form. Two heads can be
    compared only within one `epoch` (see retrieval.store.epoch). `attached`: files have come with
    contents.
    """

    bank: int
    tenant: str
    bank_id: str
    version: int
    generation: int
    next_ordinal: int
    vector_set: str
    analyser: str
    config: Mapping[str, Any] = field(default_factory=dict)
    epoch: str = ""
    attached: bool = False


class VectorModel(Protocol):
    """What makes vectors, as `vector_set` names it."""

    @property
    def model_id(self) -> str: ...
    @property
    def dimension(self) -> int: ...


def made_by(model: VectorModel) -> str:
    """The name of the vectors that the embedder makes."""
    return vector_set(model.model_id, model.dimension)


def vector_set(model_id: str, dimension: int) -> str:
    """The name of the vectors that a model makes: what `BankHead.vector_set` is compared with."""
    return f"{model_id}:{dimension}"


def model_of(vectors: str) -> str:
    """The model of a `vector_set`."""
    return vectors.rpartition(":")[0]
