"""What programs of two versions send each other, while a new one takes the place of the other.

A message is sent by the names of its fields: what the receiver does not know it leaves out, what
the sender did not know has its default. So fields may be added, with defaults, and nothing else may
change in a release; tests/golden holds what the releases before sent.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

PROTOCOL = 1
"""Raised where a message changes in another way than by a field more. Versions next to each other
talk."""

T = TypeVar("T")


class WrongProtocol(Exception):
    """A message of a program too far from this one: roll one version after the other."""


def message(kind: type[T]) -> type[T]:
    """Makes a frozen dataclass a message: put it above `dataclass`."""

    def reduced(self: Any) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _received, (kind, PROTOCOL, values)

    kind.__reduce__ = reduced  # type: ignore[method-assign]
    return kind


def _received(kind: type[Any], protocol: int, values: dict[str, Any]) -> Any:
    if abs(protocol - PROTOCOL) > 1:
        raise WrongProtocol(f"{kind.__name__} of protocol {protocol}, this program has {PROTOCOL}")
    made = object.__new__(kind)
    for field in fields(kind):
        if field.name in values:
            value = values[field.name]
        elif field.default is not MISSING:
            value = field.default
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        else:
            raise WrongProtocol(f"{kind.__name__} comes without {field.name}, which has no default")
        object.__setattr__(made, field.name, value)
    return made
