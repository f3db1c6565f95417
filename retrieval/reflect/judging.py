"""Whether an answer keeps to a bank's directives: the one thing that only a model can say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retrieval.llm.asking import Asker
from retrieval.llm.fences import RULE, fence, fenced
from retrieval.llm.reading import NoJson, json_object, list_of, text_of
from retrieval.store.directives import Directive

TOKENS = 1_000

_TASK = f"""\
You check whether a text keeps to rules. For each rule that the text clearly breaks, say why, and \
give the rule's number; a rule that does not apply to the text is kept. Answer with a JSON object \
whose "broken" are a list, empty if all rules are kept. {RULE}"""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "broken": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"reason": {"type": "string"}, "rule": {"type": "integer"}},
                "required": ["reason", "rule"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["broken"],
    "additionalProperties": False,
}


async def broken(asker: Asker, directives: Sequence[Directive], text: str) -> list[str]:
    """The rules that a text breaks, with the reason; in the words of the model, for a repair.

    Raises what a call of the model raises, ModelFailed where its verdict cannot be read."""
    rules = "\n".join(f"{i}. {one.name}: {one.content}" for i, one in enumerate(directives, 1))
    messages = [
        {"role": "system", "content": _TASK},
        {"role": "user", "content": f"Rules:\n{rules}\n\nText:\n{fenced(fence(), text)}"},
    ]

    def read(said: str, last: bool) -> list[str]:
        held = json_object(said)
        if "broken" not in held:
            raise NoJson('the object has no "broken"')
        found = []
        for one in list_of(held["broken"]):
            number = one.get("rule") if isinstance(one, dict) else None
            if isinstance(number, int) and 1 <= number <= len(directives):
                reason = text_of(one.get("reason"), 300)
                found.append(f'it breaks the rule "{directives[number - 1].name}": {reason}')
        return found

    return await asker.read(messages, ("verdict", _SCHEMA), read, max_tokens=TOKENS)
