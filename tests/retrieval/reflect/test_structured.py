"""Schemas of structured answers."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval.llm.reading import NoJson
from retrieval.reflect.structured import ResponseSchema

pytestmark = pytest.mark.unit


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {}},
        of(a={"type": "date"}),
        of(a={"type": ["string", "money"]}),
        of(a={"type": "null"}),
        of(a={"type": "string", "minLength": "x"}),
        of(a={"$ref": "https://example.org/schema"}),
        of(a={"$ref": "file:///etc/passwd"}),
        of(a={"$ref": "#/nowhere"}),
        of(a={"$dynamicRef": "#x"}),
        {**of(a={"$ref": "#/$defs/a"}), "$defs": {"a": {"type": "array",
                                                       "items": {"$ref": "#/$defs/a"}}}},
        {**of(a={"$ref": "#/$defs/n0"}),
         "$defs": {f"n{i}": {"type": "object", "properties": {
             side: {"$ref": f"#/$defs/n{i + 1}"} for side in "lr"}} for i in range(30)}},
    ],
)  # fmt: skip
def test_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="response_schema"):
        ResponseSchema(schema)


def test_references_are_written_out() -> None:
    shape = ResponseSchema(
        {
            **of(home={"$ref": "#/$defs/Place"}, all={"type": "array",
                                                    "items": {"$ref": "#/$defs/Place"}}),
            "$defs": {"Place": of(city={"type": "string"})},
            "required": ["home"],
        }
    )  # fmt: skip
    assert "$ref" not in str(shape.schema)
    assert shape.read('{"home": {"city": "Rome"}, "all": []}') == {
        "home": {"city": "Rome"}, "all": [],
    }  # fmt: skip
    with pytest.raises(NoJson, match="city"):
        shape.read('{"home": {"city": 7}}')
    with pytest.raises(NoJson, match="home"):
        shape.read("{}")


def test_a_patterns_time_is_bounded() -> None:
    shape = ResponseSchema(of(a={"type": "string", "pattern": r"^(a|a)*$"}))
    assert shape.read('{"a": "aa"}') == {"a": "aa"}
    with pytest.raises(NoJson):
        shape.read(f'{{"a": "{"a" * 40}!"}}')
    with pytest.raises(ValueError, match="response_schema"):
        ResponseSchema(of(a={"type": "string", "pattern": "("}))
