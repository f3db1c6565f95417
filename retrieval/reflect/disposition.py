"""The disposition of a bank, in words: how an answer sounds and how sure it is, never what it
rests on."""

from __future__ import annotations

from collections.abc import Mapping

NEUTRAL = 3

_SENTENCES: Mapping[str, tuple[str, str, str, str, str]] = {
    "skepticism": (
        "Take what the memories state at face value and say it plainly.",
        "Trust the memories; voice doubt only where two of them contradict each other.",
        "Say how certain something is where the memories leave it open.",
        "Point out claims that rest on one statement or on hearsay, and word them with care.",
        "Treat every claim as something that was said, not as something that is so: say who stated"
        " it and when, and name what would be needed to be sure.",
    ),
    "literalism": (
        "Read the question generously: answer what is meant, and explain what follows from it.",
        "Answer what is meant rather than each word of the question.",
        "Answer the question as it is put, and what it plainly implies.",
        "Keep close to the wording of the question and of the memories.",
        "Answer exactly what is asked and nothing beyond it, in the words of the memories wherever"
        " they allow it.",
    ),
    "empathy": (
        "Be matter-of-fact: no feelings, no pleasantries.",
        "Be sober, and mention feelings only where they are what is asked about.",
        "Be friendly and to the point.",
        "Be warm, and show that you see how what you say may be received.",
        "Be caring: put what is hard to hear gently, and begin with what matters most to the people"
        " concerned.",
    ),
}
TRAITS = tuple(_SENTENCES)


def sentences(traits: Mapping[str, int]) -> list[str]:
    """One sentence per trait, for its level from 1 to 5; a level that is missing is neutral."""
    return [
        said[min(5, max(1, traits.get(trait, NEUTRAL))) - 1] for trait, said in _SENTENCES.items()
    ]


def levels(
    overrides: Mapping[str, int | None], profile: Mapping[str, object], common: Mapping[str, int]
) -> dict[str, int]:
    """The level of each trait: the bank's setting, else its profile's, else the server's. A profile
    always has levels, neutral ones where nobody chose: those leave it to the server."""
    found = {}
    for trait in TRAITS:
        held = profile.get(trait)
        chosen = held if isinstance(held, int) and held != NEUTRAL else None
        found[trait] = overrides.get(trait) or chosen or common.get(trait) or NEUTRAL
    return found
