"""Observation scopes: under which tags a memory's observations are made."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from itertools import chain, combinations
from typing import Any

import orjson

from retrieval.errors import InvalidInput

COMBINED_TAGS = 6
"""Most tags of a memory with all_combinations: they come to 63 scopes."""


def scope_key(tags: Collection[str]) -> str:
    """The name of a scope, by which a memory is marked as consolidated in it."""
    return orjson.dumps(sorted(set(tags))).decode()


def check_combinations(scopes: Any, tags: Collection[str], path: str) -> None:
    """InvalidInput where these scopes would be too many."""
    if scopes == "all_combinations" and len(set(tags)) > COMBINED_TAGS:
        raise InvalidInput(
            f"{path}: all_combinations is for at most {COMBINED_TAGS} tags, not {len(set(tags))}",
            path,
        )


def expanded(scopes: Any, tags: Collection[str]) -> list[frozenset[str]]:
    """The scopes that a memory with these tags is consolidated in, each once, in a fixed order.

    InvalidInput where all combinations would be too many.
    """
    check_combinations(scopes, tags, "observation_scopes")
    found = resolved(scopes, tags)
    if isinstance(found, frozenset):
        return sorted(found, key=scope_key)
    own = sorted(set(tags))
    every = chain.from_iterable(combinations(own, n) for n in range(1, len(own) + 1))
    return sorted({frozenset(group) for group in every}, key=scope_key)


def resolved(scopes: Any, tags: Collection[str]) -> Hashable:
    """What `scopes` comes to for a memory with these tags; equal where the same is meant.

    A set of tag sets, one for each observation of its own: all tags (combined, the default), each
    alone (per_tag), none (shared), or those that are listed. That of all_combinations, which would
    have 2^n of them, is told by the tags.
    """
    own = frozenset(tags)
    if scopes == "shared" or (not own and isinstance(scopes, str | None)):
        return frozenset({frozenset[str]()})
    if scopes == "per_tag":
        return frozenset(frozenset({tag}) for tag in own)
    if scopes == "all_combinations" and len(own) > 1:
        return ("every combination", own)
    if isinstance(scopes, list) and scopes:
        return frozenset(frozenset(group) for group in scopes)
    return frozenset({own})
