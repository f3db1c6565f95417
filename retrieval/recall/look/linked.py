"""What is linked with one memory, by kind: stored links, and those that follow from the columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.types import CAUSAL, Ints, LinkType

PER_ENTITY = 20
"""Memories that one shared entity is looked at for."""


def links(bank: ResidentBank, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """{links: [{ordinal, id, kind, direction, weight, via}], totals: {kind: n}} of the live memory
    `id` (16 bytes), at most `limit`, strongest of each kind first; None where it is none.

    direction: out, in or none. Kinds: the causal ones, semantic, sequence, temporal, entity,
    source, observation. Of entity `totals` counts PER_ENTITY memories of each shared one at most.
    """
    at = bank.ordinal_of(np.frombuffer(asked["id"], np.uint8).reshape(1, 16))
    if at[0] < 0:
        return None
    kinds: dict[str, _Linked] = {
        **_stored(bank, at),
        "sequence": _sequence(bank, int(at[0])),
        "temporal": [
            (int(t), "none", float(w), None) for t, w in zip(*_near(bank, at), strict=True)
        ],
        "entity": _sharing(bank, at),
        "source": _plain(bank.sources_of(at)[1], "in"),
        "observation": _plain(bank.observations_of(at)[1], "out"),
    }
    each = max(1, asked["limit"] // max(1, sum(map(bool, kinds.values()))))
    shown = []
    for kind, found in kinds.items():
        found.sort(key=lambda entry: (-entry[2], entry[0]))
        shown += [
            {
                "ordinal": ordinal,
                "id": bank.columns.id[ordinal].tobytes().hex(),
                "kind": kind,
                "direction": direction,
                "weight": round(weight, 4),
                "via": via,
            }
            for ordinal, direction, weight, via in found[:each]
        ]
    return {
        "version": bank.head.version,
        "links": shown[: asked["limit"]],
        "totals": {kind: len(found) for kind, found in kinds.items() if found},
    }


_Linked = list[tuple[int, str, float, str | None]]


def _stored(bank: ResidentBank, at: Ints) -> dict[str, _Linked]:
    found: dict[str, _Linked] = {}
    rows = bank.links.neighbours(at, (*CAUSAL, LinkType.SEMANTIC, LinkType.TEMPORAL))
    for target, kind, weight, direction in zip(
        rows.target.tolist(), rows.type.tolist(), rows.weight.tolist(), rows.direction.tolist(),
        strict=True,
    ):  # fmt: skip
        name = LinkType(kind).wire
        way = "out" if direction > 0 else "in"
        if kind in (LinkType.SEMANTIC, LinkType.TEMPORAL):
            way = "none"
        entry = (target, way, weight, None)
        if name != "temporal" and entry not in found.setdefault(name, []):
            found[name].append(entry)
    return found


def _sequence(bank: ResidentBank, at: int) -> _Linked:
    before, after = int(bank.previous[at]), int(bank.next[at])
    return [(o, way, 1.0, None) for o, way in ((before, "in"), (after, "out")) if o >= 0]


def _near(bank: ResidentBank, at: Ints) -> tuple[Iterable[int], Iterable[float]]:
    rows = bank.temporal_neighbours(at)
    return rows.target.tolist(), rows.weight.tolist()


def _sharing(bank: ResidentBank, at: Ints) -> _Linked:
    """Memories that mention what this one does: the rarer that is, the stronger."""
    _, entities = bank.entities.of_units(at)
    live = max(2, int(bank.live.sum()))
    best: dict[int, tuple[float, str]] = {}
    for number in entities.tolist():
        _, others = bank.entities.units_of(np.array([number], np.int32))
        rarity = float(np.log(live / max(1, int(bank.entities.df[number]))) / np.log(live))
        for other in others[others != at[0]][-PER_ENTITY:].tolist():
            if rarity > best.get(other, (-1.0, ""))[0]:
                best[other] = (rarity, bank.entities.name[number])
    return [(o, "none", weight, name) for o, (weight, name) in best.items()]


def _plain(ordinals: Ints, way: str) -> _Linked:
    return [(o, way, 1.0, None) for o in ordinals.tolist()]
