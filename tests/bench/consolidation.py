"""What observations cost: calls and tokens of a language model, and our own CPU time.

    fourfold bench consolidation [--facts 400] [--batch 8] [--duplicates 0.05]

Facts about people are imported and consolidated by a model in process, which says each of them in
its own words and updates what says the same. A share of them is told in nearly the same words
again, which costs a question each. Calls and tokens (cl100k) are counted as they are sent; CPU time
is this process's, database and model excluded, embedding by hashed words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from retrieval.text import tokens
from tests.bench import report
from tests.retrieval.consolidation.world import World, create, shown, update
from tests.retrieval.llm.scripted import Asked
from tests.retrieval.store.servers import database

_WHO = ("Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Jo")
_DID = (
    "bought a {} lamp for the kitchen of the house by the lake",
    "told the {} neighbours about the concert in the old harbour",
    "will repair the {} boat before the race around the island",
    "prefers the {} tea that the shop at the station sells",
    "works with the {} team on the bridge across the river",
)
_WHAT = ("green", "tall", "loud", "small", "young", "heavy", "early", "plain", "third", "round")
COLUMN = "per 100 facts"


def facts(count: int, duplicates: float) -> list[dict[str, Any]]:
    """Items of an import, of which a share repeats an earlier one but for a word."""
    rng = Random(7)
    made: list[str] = []
    for i in range(count):
        if made and rng.random() < duplicates:
            made.append(rng.choice(made)[:-1] + ", they say.")
            continue
        who, what = _WHO[i % 10], rng.choice(_WHAT)
        made.append(f"{who} {rng.choice(_DID).format(what)}.")
    names = [[text.split(" ", 1)[0]] for text in made]
    return [
        {"text": text, "entities": entities} for text, entities in zip(made, names, strict=True)
    ]


class Cost:
    """Answers as an honest model would, and counts what it is sent."""

    def __init__(self) -> None:
        self.input = self.output = self.near = 0
        self.seconds = 0.0

    def __call__(self, asked: Asked) -> Any:
        begin = time.process_time()
        self.input += sum(tokens.counts([str(m["content"]) for m in asked.messages]))
        if asked.schema is not None and asked.schema[0] == "same":
            self.near += 1
            answer: Any = {"reason": "the same words", "same": True}
        else:
            answer = self._decided(asked)
        self.output += tokens.count(json.dumps(answer))
        self.seconds += time.process_time() - begin
        return answer

    @staticmethod
    def _decided(asked: Asked) -> Any:
        new, known = shown(asked)
        held = {one["text"]: one["observation"] for one in known}
        return {
            "actions": [
                update(held[one["text"]], one["text"], one["fact"])
                if one["text"] in held
                else create(one["text"], one["fact"])
                for one in new
            ]
        }


async def run(count: int, batch: int, duplicates: float) -> dict[str, dict[str, float]]:
    """The figures, one a row."""
    async with database() as pool:
        world = World(pool)
        cost = Cost()
        world.model.rule = cost
        world.tune(consolidation_llm_batch_size=batch)
        await world.add(*facts(count, duplicates))
        begin, wall = time.process_time(), time.perf_counter()
        await world.run(10_000)
        cpu = time.process_time() - begin - cost.seconds
        wall = time.perf_counter() - wall
        made = len(await world.observations())
        await world.residency.close()
    share = 100 / count
    calls = len(world.model.asked)
    values = {
        "calls": (calls - cost.near) * share,
        "calls about near-duplicates": cost.near * share,
        "input tokens": cost.input * share,
        "output tokens": cost.output * share,
        "observations": made * share,
        "CPU-ms of ours, per fact": 1000 * cpu / count,
        "ms of the clock, per fact": 1000 * wall / count,
    }
    return {name: {COLUMN: value} for name, value in values.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fourfold bench consolidation", description=__doc__)
    parser.add_argument("--facts", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--duplicates", type=float, default=0.05)
    given = parser.parse_args(arguments)
    rows = asyncio.run(run(given.facts, given.batch, given.duplicates))
    report.table("consolidation", [COLUMN], rows)


if __name__ == "__main__":
    main()
