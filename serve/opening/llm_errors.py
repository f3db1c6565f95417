"""Errors of language models as those of retrieval, translated once."""

from __future__ import annotations

from models.llm.types import CutOff, Exhausted, Refused, TooLong
from models.types import DeadlineExceeded, ModelError, Overloaded
from retrieval import errors


def translated(error: ModelError) -> errors.FourfoldError:
    """An error of a language model as one of retrieval's."""
    said = str(error)
    match error:
        case Refused():
            return errors.ModelRefused(said)
        case CutOff():
            return errors.ModelCut(said)
        case TooLong():
            return errors.ModelTooLong(said)
        case Exhausted():
            return errors.ModelExhausted(said, error.retry_after_s)
        case Overloaded():
            return errors.Overloaded(said, error.retry_after_s)
        case DeadlineExceeded():
            return errors.DeadlineExceeded(error.stage)
        case _:
            return errors.Unavailable("the language model", said)
