"""Messages between programs of two versions."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval import messages
from retrieval.messages import WrongProtocol, message
from tests.golden.messages import FOLDER, every

pytestmark = pytest.mark.unit

GOLDEN = sorted(FOLDER.glob("*.pickle"))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if dataclasses.is_dataclass(one):
        names = [f.name for f in dataclasses.fields(one)]
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_earlier_releases_sent_is_understood(path: Path) -> None:
    """A field that came since has its default; nothing else differs."""
    stored, now = pickle.loads(path.read_bytes()), every()
    assert set(stored) <= set(now)
    for name, value in stored.items():
        assert same(value, now[name]), f"{name} is not what {path.name} says"


def test_there_is_one_of_this_release() -> None:
    """`python -m tests.golden` writes it, where a message has fields that none there has."""
    assert any(pickle.loads(path.read_bytes()).keys() == every().keys() for path in GOLDEN)


@pytest.mark.parametrize("name", every())
def test_a_message_is_what_it_was(name: str) -> None:
    sent = every()[name]
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        assert same(pickle.loads(pickle.dumps(sent, protocol)), sent)


@message
@dataclass(frozen=True, slots=True)
class Old:
    text: str


@message
@dataclass(frozen=True, slots=True)
class New:
    text: str
    limit: int = 3
    names: list[str] = field(default_factory=list)


def _sent(one: Any, kind: type[Any]) -> Any:
    """`one`, as it comes to a program that has `kind` under that name."""
    made, (_, protocol, values) = one.__reduce__()
    return made(kind, protocol, values)


def test_fields_that_one_side_does_not_know() -> None:
    assert _sent(Old("a"), New) == New("a", 3, [])
    assert _sent(Old("a"), New).names is not _sent(Old("b"), New).names
    assert _sent(New("a", 9, ["x"]), Old) == Old("a")


def test_a_field_without_a_default_is_a_mistake_that_shows() -> None:
    @message
    @dataclass(frozen=True, slots=True)
    class Worse:
        text: str
        more: int

    with pytest.raises(WrongProtocol, match="Worse comes without more"):
        _sent(Old("a"), Worse)


def test_versions_next_to_each_other_talk_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = pickle.dumps(Old("a"))
    monkeypatch.setattr(messages, "PROTOCOL", 2)
    assert pickle.loads(sent) == Old("a")
    monkeypatch.setattr(messages, "PROTOCOL", 3)
    with pytest.raises(WrongProtocol, match="of protocol 1, this program has 3"):
        pickle.loads(sent)
