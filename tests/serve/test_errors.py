"""Sentences of refusals."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from serve.http.errors import problems

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            {"loc": ("body", 9), "type": "json_invalid", "ctx": {"error": "Expecting value"}},
            "the body is not JSON: Expecting value",
        ),
        (
            {"loc": ("body",), "type": "model_attributes_type"},
            "the body must be a JSON object, sent with content-type application/json",
        ),
        (
            {"loc": ("body", "x"), "type": "model_attributes_type"},
            "Input should be a valid dictionary",
        ),
    ],
)
def test_a_body_that_cannot_be_read(problem: dict[str, Any], sentence: str) -> None:
    answer = problems([{"msg": "Input should be a valid dictionary", **problem}])
    assert answer.status_code == 422
    assert orjson.loads(bytes(answer.body))["detail"][0]["msg"] == sentence
