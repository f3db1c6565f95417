"""Observation scopes: under which tags a memory's observations are made."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any


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
