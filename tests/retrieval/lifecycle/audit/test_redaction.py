"""What the audit log keeps of bodies."""

from __future__ import annotations

from uuid import UUID

import orjson
import pytest

from retrieval.lifecycle.audit.redaction import BODY_BYTES, kept

pytestmark = pytest.mark.unit

BODY = {
    "items": [{"content": "Xanthippe", "tags": ["Xanthippe"], "n": 3, "flag": True, "none": None}],
    "secret": "hush",
    "http_config": {"headers": {"Authorization": "Bearer hush"}, "method": "POST"},
    "api_key": "hush",
    "access_token": "hush",
    "max_tokens": 100,
    "id": str(UUID(int=7)),
    "at": "2024-05-06T07:08:09Z",
    "Xanthippe said": 1,
}


def test_redacted_bodies_hold_no_text_and_no_secret() -> None:
    found = kept(orjson.dumps(BODY), "redacted", b"k")
    assert found is not None
    said = orjson.dumps(found).decode()
    assert "anthippe" not in said
    assert "hush" not in said
    (item,) = found["items"]
    assert item["content"] == item["tags"][0]  # equal texts stay equal
    assert item["content"]["chars"] == 9
    assert (item["n"], item["flag"], item["none"]) == (3, True, None)
    assert (found["max_tokens"], found["id"], found["at"]) == (100, BODY["id"], BODY["at"])
    assert kept(orjson.dumps(BODY), "redacted", b"other") != found


def test_full_bodies_have_no_secrets_either() -> None:
    found = kept(orjson.dumps(BODY), "full", b"k")
    assert found is not None
    assert found["items"] == BODY["items"]
    assert "hush" not in orjson.dumps(found).decode()


@pytest.mark.parametrize(
    ("content", "how", "expected"),
    [
        (b"", "full", None),
        (b"{}", "none", None),
        (b"[1]", "full", {"value": [1]}),
        (b'"x"', "redacted", {"chars": 1}),
        (b"{", "redacted", {"bytes": 1}),
        (b"[" * 60 + b"]" * 60, "redacted", {}),
        (b"x" * (BODY_BYTES + 1), "full", {"bytes": BODY_BYTES + 1}),
    ],
)
def test_odd_bodies(content: bytes, how: str, expected: object) -> None:
    found = kept(content, how, b"k")  # type: ignore[arg-type]
    if isinstance(expected, dict) and found is not None:
        assert expected.items() <= found.items()
    else:
        assert found == expected
