"""What each stage is told of the settings: the sections that it reads, and no secret.

Serve starts a stage's replicas anew when what they are told changes. So a limit at the door is not
told to the stages behind it, and how many replicas a stage has is told to none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LOG = ("log_level", "log_format")
_WRITES = ("consolidation", "reflect", "mental_models", "llm", "worker")
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "embedder": ("embeddings",),
    "reranker": ("embeddings", "rerankers"),
    "ranges": ("database", "banks"),
    "retriever": ("database", "banks", "embeddings", "recall", "retain"),
    "ingest": ("database", "banks", "embeddings", "recall", "retain", *_WRITES),
}
_TOLD = ("placement", "cpus")
"""Of its own place, what a replica reads: it sizes its threads by it."""


def portion(tree: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """Of a file's sections, those that the replicas of `stage` read."""
    sections = _SECTIONS.get(stage)
    if sections is None:
        told = {name: value for name, value in tree.items() if name != "stages"}
    else:
        told = {name: tree[name] for name in sections if name in tree}
        own = tree.get("server") or {}
        told["server"] = {name: own[name] for name in _LOG if name in own}
        if waits := _waits(tree.get("limits") or {}):
            told["limits"] = waits
    stages = tree.get("stages") or {}
    told["stages"] = {
        name: {key: value for key, value in (place or {}).items() if key in _TOLD}
        for name, place in stages.items()
    }
    return told


def _waits(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {name: limits[name] for name in ("embed_wait_s", "rerank_wait_s") if name in limits}
