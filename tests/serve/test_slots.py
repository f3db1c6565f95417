"""Slots of replicas: stable over replacements, passed on in a roll, never held twice."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from serve.cluster.slots import SlotClaim, claim

pytestmark = pytest.mark.unit


@dataclass
class Memory:
    """A store of claims with a set of living replicas."""

    claims: dict[tuple[int, int], SlotClaim] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def all(self) -> list[SlotClaim]:
        with self.lock:
            return list(self.claims.values())

    def add(self, claim: SlotClaim) -> bool:
        with self.lock:
            if (claim.slot, claim.turn) in self.claims:
                return False
            self.claims[claim.slot, claim.turn] = claim
            return True

    def drop(self, claim: SlotClaim) -> None:
        with self.lock:
            self.claims.pop((claim.slot, claim.turn), None)

    def living(self) -> set[str]:
        return set(self.alive)

    def start(self, name: str, release: str = "one") -> int:
        self.alive.add(name)
        return claim(self, name, release).slot

    def held(self) -> dict[str, int]:
        return {each.holder: each.slot for each in self.all() if each.holder in self.alive}


def test_slots_count_up() -> None:
    store = Memory()
    assert [store.start(name) for name in "abc"] == [0, 1, 2]


def test_a_replacement_takes_the_slot_of_the_dead() -> None:
    store = Memory()
    for name in "abcd":
        store.start(name)
    store.alive -= {"b", "d"}
    assert store.start("e") == 1
    assert store.start("f") == 3
    assert len(store.claims) == 4  # the claims of the dead are gone


def test_after_scaling_down_no_number_is_left_open_for_long() -> None:
    store = Memory()
    for name in "abcdef":
        store.start(name)
    store.alive -= set("bef")
    assert [store.start(name) for name in "gh"] == [1, 4]


@pytest.mark.parametrize("replicas", [1, 3, 8, 20])
def test_a_roll_with_surge_passes_every_slot_on_before_its_holder_stops(replicas: int) -> None:
    store = Memory()
    old = [f"old-{number}" for number in range(replicas)]
    slots = [store.start(name) for name in old]
    new: list[str] = []
    while old:
        batch = [f"new-{len(new) + i}" for i in range(min(len(old), max(1, replicas // 4)))]
        for name in batch:
            store.start(name, "two")
        new += batch
        for name in old[: len(batch)]:  # Serve stops the oldest
            slot = store.held()[name]
            successors = [n for n, at in store.held().items() if at == slot and n in new]
            assert len(successors) == 1, "the banks of a stopped replica move elsewhere"
            store.alive.remove(name)
        old = old[len(batch) :]
    assert sorted(store.held()[name] for name in new) == slots


def test_a_roll_that_stops_first_fills_what_it_emptied() -> None:
    store = Memory()
    for name in "abcde":
        store.start(name)
    store.alive.remove("a")
    assert store.start("v", "two") == 0
    store.alive.remove("b")
    assert store.start("w", "two") == 1


def test_a_later_turn_wins() -> None:
    store = Memory()
    store.start("a")
    assert store.start("b", "two") == 0
    turns = {each.holder: each.turn for each in store.all()}
    assert turns["b"] > turns["a"]


def test_many_that_start_at_once_get_one_slot_each() -> None:
    store = Memory()
    names = [f"r{number}" for number in range(40)]
    store.alive |= set(names)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(claim(store, name, "one").slot))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(40))


def test_a_claim_over_an_old_reading_is_given_back() -> None:
    """Between reading and adding, others took later turns of the slot and the earlier were
    dropped."""

    class Stale(Memory):
        first = True

        def all(self) -> list[SlotClaim]:
            if self.first:
                self.first = False
                return []
            return super().all()

    store = Stale()
    store.alive |= {"x"}
    store.claims[0, 5] = SlotClaim(0, 5, "x", "one", 5)
    assert store.start("y") == 1
    assert set(store.claims) == {(0, 5), (1, 0)}
