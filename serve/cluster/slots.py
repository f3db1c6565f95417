"""Slots: numbers that replicas have while they live and that their successors take over.

A bank's place follows from the slots (`retrieval.bank.shards.placement`), so a replacement gets the
banks of the one that it replaces. In a roll, a replica of the new release takes the slot of the
replica that Serve will stop next, while that one still serves: its banks move once.

Claims lie in the cluster's own key-value store, one key per claim: a later turn of a slot wins over
an earlier one, and a key can be made only once, so nothing is locked. Who holds a claim is alive as
long as its actor has its name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

SLOT, TURN = "slot", "turn"
"""What a replica publishes of its claim to the routers."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """`holder` is the full name of a replica, `release` the code version that it runs; `since` is
    a count of claims of the stage, which orders them by age."""

    slot: int
    turn: int
    holder: str
    release: str
    since: int


class Store(Protocol):
    """The claims of one stage, as the whole cluster sees them."""

    def all(self) -> list[SlotClaim]: ...

    def add(self, claim: SlotClaim) -> bool:
        """False where this turn of this slot is taken already."""
        ...

    def drop(self, claim: SlotClaim) -> None: ...

    def living(self) -> set[str]:
        """Names of all replicas that live, or are being started."""
        ...


def choose(claims: Sequence[SlotClaim], living: set[str], release: str) -> int:
    """The slot for one more replica of `release`.

    First a slot that nobody holds below others that are held: a dead or stopped replica's. Then
    one of the oldest replica of another release, which Serve stops first. Then a new one.
    """
    held = [claim for claim in claims if claim.holder in living]
    taken = {claim.slot for claim in held}
    free = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    if free < max(taken, default=-1):
        return free
    ours = {claim.slot for claim in held if claim.release == release}
    others = [claim for claim in held if claim.slot not in ours]
    return min(others, key=lambda claim: claim.since).slot if others else free


def claim(store: Store, holder: str, release: str) -> SlotClaim:
    """Claims a slot for `holder`. Blocks on the store; ends after a few rounds however many others
    claim at the same time, since in each round somebody succeeds."""
    while True:
        claims, living = store.all(), store.living() | {holder}
        slot = choose(claims, living, release)
        of_slot = [each for each in claims if each.slot == slot]
        turn = max((each.turn for each in of_slot), default=-1) + 1
        since = max((each.since for each in claims), default=-1) + 1
        mine = SlotClaim(slot, turn, holder, release, since)
        if not store.add(mine):
            continue
        latest = [each for each in store.all() if each.slot == slot and each.turn > turn]
        if latest:  # the store was read before others took turns that are dropped by now
            store.drop(mine)
            continue
        for each in of_slot:
            if each.holder not in living:
                store.drop(each)
        return mine


@dataclass(slots=True)
class ClusterStore:
    """Claims in the key-value store of Ray's control service; a head that comes back with its Redis
    still has them, and without it every replica is a new one anyway."""

    application: str
    stage: str
    _prefix: str = field(init=False)

    def __post_init__(self) -> None:
        self._prefix = f"fourfold/slots/{self.application}/{self.stage}/"

    def all(self) -> list[SlotClaim]:
        from ray.experimental import internal_kv

        values = map(internal_kv._internal_kv_get, internal_kv._internal_kv_list(self._prefix))
        return [SlotClaim(**json.loads(value)) for value in values if value]

    def add(self, claim: SlotClaim) -> bool:
        from ray.experimental import internal_kv

        there: bool = internal_kv._internal_kv_put(
            self._key(claim), json.dumps(asdict(claim)), overwrite=False
        )
        return not there

    def drop(self, claim: SlotClaim) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_del(self._key(claim))

    def living(self) -> set[str]:
        import ray

        return {actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)}

    def _key(self, claim: SlotClaim) -> str:
        return f"{self._prefix}{claim.slot}/{claim.turn}"


def claim_here() -> dict[str, int]:
    """Claims a slot for the replica of this process: what it publishes to the routers. Empty where
    the store does not answer: routers then place it by its name, as one that nobody replaces."""
    from ray import serve

    context = serve.get_replica_context()
    store = ClusterStore(context.app_name, context.deployment)
    try:
        mine = claim(store, context.replica_id.to_full_id_str(), context.code_version or "")
    except Exception as error:  # whatever it is, a replica without a slot serves, too
        log.warning("no slot could be claimed: %s", error)
        return {}
    log.info("slot %d of %s, turn %d", mine.slot, context.deployment, mine.turn)
    return {SLOT: mine.slot, TURN: mine.turn}
