"""A reflect in the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from serve.cli import reflection

pytestmark = pytest.mark.unit


def test_an_answer_with_numbers() -> None:
    out = io.StringIO()
    reflection.show(
        {
            "text": "Ann moved. [sic] She left. It rained.",
            "citations": [
                {"start": 0, "end": 10, "ids": ["a"]},
                {"start": 17, "end": 26, "ids": ["b", "a"]},
            ],
            "grounding": {"marks": [{"start": 27, "end": 37, "reason": "it cites nothing"}]},
            "based_on": {
                "memories": [{"id": "a", "text": "Ann\nmoved.", "type": "observation",
                              "mentioned_at": "2024-05-01T00:00:00Z"}],
                "mental_models": [{"id": "b", "text": "She left."}],
            },
            "degraded": ["declined"],
            "finish": "time",
        },
        Console(file=out, width=100, color_system=None),
    )  # fmt: skip
    said = out.getvalue()
    assert "Ann moved. [1] [sic] She left. [2, 1] It rained." in said
    assert "[1] 2024-05-01  Ann moved.  [observation]" in said
    assert "[2] She left." in said
    for part in ("not supported", "declined", "bound of time"):
        assert part in said
