"""Values at the edge."""

from __future__ import annotations

from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput
from retrieval.store.edge import as_ids

pytestmark = pytest.mark.unit


def test_ids_in_every_form_that_a_uuid_has() -> None:
    ids = [uuid4() for _ in range(5)]
    expected = tuple(id.bytes for id in ids)
    for form in (str, lambda id: id.hex, lambda id: str(id).upper(), lambda id: f"{{{id}}}"):
        assert as_ids([form(id) for id in ids], "ids") == expected
    assert as_ids([str(ids[0]), ids[1].urn], "ids") == expected[:2]
    assert as_ids([], "ids") == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x",
        "0" * 31,
        "0" * 33,
        "0" * 30 + "  ",
        "g" * 32,
        "0" * 31 + "\n",
        "0" * 16 + " " * 16,
        "0_" * 16,
    ],
)
def test_what_is_no_id_is_named(wrong: str) -> None:
    for values in ([wrong], [str(uuid4()), wrong], [wrong, "0" * 32]):
        with pytest.raises(InvalidInput, match=r"ids: .* is not a UUID") as caught:
            as_ids(values, "ids")
        assert repr(wrong[:60]) in str(caught.value)
