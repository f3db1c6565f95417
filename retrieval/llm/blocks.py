"""A prompt as the blocks it is built of, so that it can be shown as well as sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """One piece of a prompt. `field` names the setting that it comes from, "" for our own words;
    `section` is our name of a part that no setting owns. An empty text is not sent."""

    text: str
    field: str = ""
    section: str = ""

    def view(self, *, editable: bool = True) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "text": self.text,
            "source": "config" if self.field else "builtin",
            "field": self.field,
            "section": self.section,
            "heading": "",
            "active": bool(self.text),
            "value": self.text or None,
            "kind": "text",
            "choices": None,
            "editable": bool(self.field) and editable,
        }


def joined(blocks: Sequence[PromptBlock]) -> str:
    """The text that is sent."""
    return "\n\n".join(block.text for block in blocks if block.text)
