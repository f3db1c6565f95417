"""Whether what readers saw of a bank is explained by the order of its writes.

One writer per bank, any number of readers. Write n leaves the bank in state n (id -> text; state 0
is empty). A recall reads one state as a whole, so it must have seen some state j that

    is not older than the last write acknowledged before the recall began,
    is not newer than the last write sent before it ended, and
    is not older than what an earlier recall, ended before this one began, must have seen.

Texts are fetched after the search, and a memory that a write removes in between is left out: a
recall may lack those members of state j that a later write within its span took away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

State = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Write:
    """Sent at `begin`, acknowledged at `end`, leaving `state`."""

    begin: float
    end: float
    state: State


@dataclass(frozen=True, slots=True)
class Read:
    begin: float
    end: float
    seen: State


@dataclass(slots=True)
class History:
    """What happened to one bank; times are of one clock."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    def violations(self) -> list[str]:
        """A sentence for each read that no order of the operations explains."""
        states: list[State] = [{}, *(write.state for write in self.writes)]
        found: list[str] = []
        settled: list[tuple[float, int]] = []
        """(end of a read, the oldest state that it can have seen)."""
        for read in sorted(self.reads, key=lambda read: read.end):
            oldest = sum(write.end < read.begin for write in self.writes)
            newest = sum(write.begin < read.end for write in self.writes)
            before = max((j for end, j in settled if end < read.begin), default=0)
            fitting = [
                j
                for j in range(max(oldest, before), newest + 1)
                if _explains(read.seen, states, j, newest)
            ]
            if fitting:
                settled.append((read.end, fitting[0]))
            else:
                found.append(_sentence(read, states, max(oldest, before), newest))
        return found


def _explains(seen: State, states: list[State], j: int, newest: int) -> bool:
    state = states[j]
    if any(state.get(memory) != text for memory, text in seen.items()):
        return False
    return all(
        any(states[k].get(memory) != text for k in range(j + 1, newest + 1))
        for memory, text in state.items()
        if memory not in seen
    )


def _sentence(read: Read, states: list[State], oldest: int, newest: int) -> str:
    lines = []
    for j in range(oldest, newest + 1):
        state = states[j]
        lines.append(
            f"state {j}: {len(state)} memories, lacks {sorted(set(state) - set(read.seen))[:3]}, "
            f"besides {sorted(set(read.seen) - set(state))[:3]}, "
            f"other texts {[m for m in read.seen if m in state and state[m] != read.seen[m]][:3]}"
        )
    return f"a recall of {len(read.seen)} memories fits none of " + "; ".join(lines)
