"""Where banks lie, and which of them move when replicas come, go or are rolled."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from retrieval.bank.shards.evenness import shares
from retrieval.bank.shards.placement import Ranking
from serve.cluster.slots import SlotClaim, claim
from tests.sim.banks import Banks


@dataclass
class Claims:
    """The store of claims, in memory."""

    made: dict[tuple[int, int], SlotClaim] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)

    def all(self) -> list[SlotClaim]:
        return list(self.made.values())

    def add(self, claim: SlotClaim) -> bool:
        return self.made.setdefault((claim.slot, claim.turn), claim) is claim

    def drop(self, claim: SlotClaim) -> None:
        self.made.pop((claim.slot, claim.turn), None)

    def living(self) -> set[str]:
        return set(self.alive)

    def start(self, name: str, release: str) -> None:
        self.alive.append(name)
        claim(self, name, release)

    def holders(self) -> dict[int, str]:
        """The replica of each slot that routers ask first."""
        newest: dict[int, SlotClaim] = {}
        for each in self.made.values():
            if each.holder in self.alive and (
                each.slot not in newest or newest[each.slot].turn < each.turn
            ):
                newest[each.slot] = each
        return {slot: each.holder for slot, each in newest.items()}


def evened(banks: Banks, replicas: int) -> dict[int, float]:
    return shares(range(replicas), banks.keys, banks.bytes)


def bytes_spread(banks: Banks, replicas: int) -> float:
    """Bytes of the fullest replica over the mean."""
    at = Ranking(range(replicas), evened(banks, replicas)).winners(banks.keys)
    held = np.bincount(at, weights=banks.bytes, minlength=replicas)
    return float(held.max() / held.mean())


def moved(banks: Banks, replicas: int) -> tuple[float, float, float]:
    """Banks that move, as multiples of a replica's fair share: one added (with what is evened out
    after it), one lost (beyond its own), one replaced."""
    told = evened(banks, replicas)
    before = Ranking(range(replicas), told).winners(banks.keys)
    after = shares(range(replicas + 1), banks.keys, banks.bytes, told)
    added = Ranking(range(replicas + 1), after).winners(banks.keys)
    lost = Ranking(range(1, replicas), told).winners(banks.keys)
    claims = Claims()
    for number in range(replicas):
        claims.start(f"old-{number}", "one")
    claims.alive.remove("old-1")
    claims.start("new", "one")
    replaced = Ranking([*claims.holders()], told).winners(banks.keys)
    count = len(banks.keys)
    return (
        float((added != before).sum() / (count / (replicas + 1))),
        float(((lost != before) & (before != 0)).sum() / (count / replicas)),
        float((replaced != before).sum() / (count / replicas)),
    )


def roll(banks: Banks, replicas: int, surge: float = 0.25) -> float:
    """Loads a bank while every replica is replaced by one of another release, as Serve does it with
    `max_surge_percent`: all banks are asked for between any two steps."""
    claims, told = Claims(), evened(banks, replicas)
    names = np.arange(len(banks.keys))
    for number in range(replicas):
        claims.start(f"old-{number}", "one")
    identity = {name: number for number, name in enumerate(claims.alive)}
    held: set[tuple[int, int]] = set()
    loads = 0

    def ask() -> None:
        nonlocal loads
        holders = claims.holders()
        at = Ranking([*holders], told).winners(banks.keys)
        owner = np.asarray([identity[holders[slot]] for slot in at.tolist()])
        pairs = set(zip(names.tolist(), owner.tolist(), strict=True))
        loads += len(pairs - held)
        held.update(pairs)

    ask()
    loads = 0
    old = list(claims.alive)
    batch = max(1, round(surge * replicas))
    while old:
        for number in range(min(batch, len(old))):
            name = f"new-{len(identity)}-{number}"
            identity[name] = len(identity)
            claims.start(name, "two")
        ask()
        for name in old[:batch]:
            claims.alive.remove(name)
        old = old[batch:]
        ask()
    return loads / len(banks.keys)
