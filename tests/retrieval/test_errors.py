"""Errors cross process borders unchanged."""

from __future__ import annotations

import pickle

import pytest

from retrieval import errors

pytestmark = pytest.mark.unit

EVERY = [
    errors.InvalidInput("types: one of world, experience", "types"),
    errors.TooMuch("items: at most 10", "items"),
    errors.NotFound("no bank named 'x'"),
    errors.Conflict("the key is in use"),
    errors.Overloaded("the queue is full", 2.5),
    errors.RateLimited("too many", 3.0),
    errors.DeadlineExceeded("rerank"),
    errors.Unavailable("the database", "it restarts", 5.0),
    errors.StaleSnapshot("the bank", "its memories were rearranged"),
    errors.ModelChanged("old:32", "new:32"),
    errors.ModelFailed("the answer cannot be used"),
    errors.ModelRefused("it declined"),
    errors.ModelCut("the answer was cut"),
    errors.ModelTooLong("the input is too long"),
    errors.ModelExhausted("no quota is left", 60.0),
    errors.NeedsModel("consolidation needs an LLM"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_an_error_survives_pickling(error: errors.FourfoldError, protocol: int) -> None:
    once = pickle.loads(pickle.dumps(error, protocol))
    again = pickle.loads(pickle.dumps(once, protocol))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_every_kind_is_tried() -> None:
    named = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = {kind for kind in named if issubclass(kind, errors.FourfoldError)}
    assert {type(error) for error in EVERY} == kinds - {errors.FourfoldError}
