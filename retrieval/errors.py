"""The one exception tree of retrieval. serve/ maps it to HTTP in one table.

FourfoldError
    InvalidInput          the caller's fault; names the field and what would be right   (400)
        TooMuch           more than one request may send or store; names the field      (413)
    NotFound              bank, document, memory, entity, chunk, operation              (404)
    Conflict              an id that is already used for something else                 (409)
    Overloaded            a bounded queue is full; carries retry_after_s                (503)
    RateLimited           a tenant's own limit; carries retry_after_s                   (429)
    DeadlineExceeded      the request's time is over; names the stage, and what was
                          finished before it                                          (504)
    Unavailable           a part is gone for now (database, embedder); names the part;
                          carries retry_after_s                                        (503)
        StaleSnapshot     the state of the bank that was asked about is gone: ask again
        ModelChanged      another embedding model answers than the one that was counted on
    ModelFailed           a language model's answer cannot be used, asked twice         (502)
        ModelRefused      it declined this input                                        (422)
        ModelCut          its answer does not fit, however small the input              (422)
        ModelTooLong      the input does not fit its context                            (422)
    ModelExhausted        the account of the language model has no quota left; an
                          Overloaded                                                    (503)
    NeedsModel            asked for something that needs an LLM and none is configured  (400)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class FourfoldError(Exception):
    """Base of every error that a caller may be told about: str() is a sentence for them.

    Every one survives pickling, its attributes included; cause and traceback stay behind.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[FourfoldError], args: tuple[Any, ...]) -> FourfoldError:
    # Without the constructor, which would make a sentence of the sentence again.
    return kind.__new__(kind, *args)


class InvalidInput(FourfoldError):
    """`together`: each field is right by itself, and this one is wrong beside the others."""

    together = False  # what a program of before sends does not have it

    def __init__(self, message: str, field: str | None = None, *, together: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.together = together


class TooMuch(InvalidInput):
    pass


class NotFound(FourfoldError):
    pass


class Conflict(FourfoldError):
    pass


class Overloaded(FourfoldError):
    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded):
    pass


class DeadlineExceeded(FourfoldError):
    """`finished`: seconds of each step that was done before `stage` ran out of time."""

    finished: Mapping[str, float] = MappingProxyType({})

    def __init__(self, stage: str, finished: Mapping[str, float] | None = None) -> None:
        super().__init__(f"the request ran out of time during {stage}")
        self.stage = stage
        if finished:
            self.finished = dict(finished)

    def add(self, earlier: Mapping[str, float]) -> None:
        """Puts steps that were finished before in front."""
        self.finished = {**earlier, **self.finished}

    def __str__(self) -> str:
        said = super().__str__()
        if not self.finished:
            return said
        done = ", ".join(f"{name} {spent * 1000:.0f} ms" for name, spent in self.finished.items())
        return f"{said}; finished before: {done}"


class Unavailable(FourfoldError):
    def __init__(self, part: str, reason: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(f"{part} is not available" + (f": {reason}" if reason else ""))
        self.part = part
        self.retry_after_s = retry_after_s


class StaleSnapshot(Unavailable):
    """The bank's ordinals were reassigned, or other vectors or postings serve it now."""


class ModelChanged(Unavailable):
    """Nothing was made of what it answered; `found` names the vectors that it makes now."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__("the embedder", f"it makes {found!r} now, not {wanted!r}: repeat it")
        self.found = found


class ModelFailed(FourfoldError):
    pass


class ModelRefused(ModelFailed):
    pass


class ModelCut(ModelFailed):
    pass


class ModelTooLong(ModelFailed):
    pass


class ModelExhausted(Overloaded):
    pass


class NeedsModel(FourfoldError):
    @classmethod
    def to(cls, what: str, without: str = "") -> NeedsModel:
        """`what` cannot be had; `without`: what can be had all the same."""
        return cls(
            f"{what} needs a language model and none is configured: set LLM_PROVIDER and LLM_MODEL,"
            f" or LLM_PROVIDER=extractive for rules in its place{without and '; ' + without}"
        )
