"""A reflect in the terminal: the answer with numbers for what each sentence rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from serve.cli import terminal


def show(answer: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints the text, its sources, and what is to be said about it."""
    out = console or terminal.console()
    numbers: dict[str, int] = {}
    out.print(_cited(answer, numbers))
    based_on = answer.get("based_on") or {}
    texts = {one["id"]: one for one in based_on.get("memories") or []}
    texts |= {one["id"]: one for one in based_on.get("mental_models") or []}
    if numbers:
        out.print()
    for id, number in numbers.items():
        out.print(_source(number, texts.get(id) or {"text": id}))
    marks = (answer.get("grounding") or {}).get("marks") or []
    if marks:
        out.print("\nnot supported by any memory (in red above):", style="yellow")
        for mark in marks:
            out.print(f"  {mark['reason']}", style="dim")
    if parts := answer.get("degraded"):
        out.print(f"less than it should be: {', '.join(parts)}", style="yellow")
    if (finish := answer.get("finish")) not in (None, "done"):
        out.print(f"it had to answer: its bound of {finish} was reached", style="dim")


def _cited(answer: Mapping[str, Any], numbers: dict[str, int]) -> Text:
    """The text with [1], [2] behind its sentences; `numbers` gets each id's."""
    said: str = answer["text"]
    shown, at = Text(), 0
    for one in answer.get("citations") or []:
        shown.append(said[at : one["end"]])
        at = one["end"]
        cited = [numbers.setdefault(id, len(numbers) + 1) for id in one["ids"]]
        shown.append(f" [{', '.join(map(str, cited))}]", style="cyan")
    shown.append(said[at:])
    return _marked(shown, answer)


def _marked(shown: Text, answer: Mapping[str, Any]) -> Text:
    for mark in (answer.get("grounding") or {}).get("marks") or []:
        part = answer["text"][mark["start"] : mark["end"]]
        if (found := shown.plain.find(part)) >= 0:
            shown.stylize("red", found, found + len(part))
    return shown


def _source(number: int, source: Mapping[str, Any]) -> Text:
    when = str(source.get("occurred_start") or source.get("mentioned_at") or "")[:10]
    shown = Text(f"[{number}] ", style="cyan")
    if when:
        shown.append(f"{when}  ", style="dim")
    shown.append(" ".join(str(source["text"]).split())[:400], style="default")
    if (kind := source.get("type")) not in (None, "world"):
        shown.append(f"  [{kind}]", style="magenta")
    return shown
