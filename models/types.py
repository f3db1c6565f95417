"""Leaf types of models: what a model answers, and the one exception tree.

ModelError
    Overloaded          a bounded queue is full, or would serve too late; carries retry_after_s
    DeadlineExceeded    the caller's time is over; names the stage
    Unavailable         not started, closed, unreachable: may work later; names the part
        DeviceLost      the device or its thread is gone: the process should be replaced
    WrongModel          these weights cannot do this job; final
    BadOutput           non-finite vectors, too few scores: the answer is not usable
    RemoteError         a server answered with an error; carries status, retryable, retry_after_s
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]

Observe: TypeAlias = Callable[[str, float], None]
"""Receives one measurement: a name (docs in `engine.py` and `chain.py`) and its value."""


def ignore(_name: str, _value: float) -> None:
    """The observer of nobody."""


class Priority(IntEnum):
    """Which lane work waits in. BULK runs only while no QUERY waits."""

    QUERY = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """All pairs (query, document) of one recall. `deadline` is on the clock of this process."""

    query: str
    documents: Sequence[str]
    tenant: str = ""
    bank: str = ""
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What a reranker answers for one query.

    scores: float32 (n,) in the order of the documents, or None from a passthrough member.
    scale: "logit", "probability" or "unknown". member: the provider that answered.
    degraded: an earlier member failed, was late or had its circuit open.
    truncated: how many documents were cut to the model's length.
    """

    scores: Floats | None
    scale: str
    member: str
    degraded: bool = False
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """One moment of a batcher: how much waits and runs, and totals since the start.

    `queued_tokens` and `tokens_per_s` are what an autoscaling policy needs; `busy_s` grows by
    one per second while the device works, however many batches share it. `running_s` is the age
    of the oldest batch on the device.
    """

    queued_tokens: int = 0
    queued_calls: int = 0
    running_batches: int = 0
    running_s: float = 0.0
    tokens_per_s: float = 0.0
    batches: int = 0
    items: int = 0
    tokens: int = 0
    busy_s: float = 0.0
    refused: int = 0
    expired: int = 0
    cancelled: int = 0
    failed: int = 0


class ModelError(Exception):
    """Base of every error that this package raises on purpose: str() is a sentence."""


class Overloaded(ModelError):
    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(ModelError):
    def __init__(self, stage: str) -> None:
        super().__init__(f"the request ran out of time during {stage}")
        self.stage = stage


class Unavailable(ModelError):
    def __init__(self, part: str, reason: str = "") -> None:
        super().__init__(f"{part} is not available" + (f": {reason}" if reason else ""))
        self.part = part
        self.reason = reason


class DeviceLost(Unavailable):
    pass


class WrongModel(ModelError):
    pass


class BadOutput(ModelError):
    pass


class RemoteError(ModelError):
    def __init__(
        self,
        part: str,
        message: str,
        *,
        status: int = 0,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
