"""What each stage is told of the settings: the sections that it reads, and no secret.

Serve starts a stage's replicas anew when what they are told changes. So a limit of admission is not
told to the stages behind it, how many replicas a stage has is told to none, and its CPUs only to
where its threads are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LOG = ("log_level", "log_format")
_WRITES = (
    "consolidation", "reflect", "mental_models", "transfer", "llm", "worker", "webhooks", "erasure",
    "audit",
)  # fmt: skip
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "embedder": ("embeddings",),
    "reranker": ("embeddings", "rerankers"),
    "ranges": ("database", "banks"),
    "retriever": ("database", "banks", "embeddings", "recall", "retain"),
    "ingest": ("database", "banks", "embeddings", "recall", "retain", *_WRITES),
}
_MODELS = ("embedder", "reranker")
_LIMITS = ("embed_wait_s", "rerank_wait_s", "write_max_concurrent")
"""Of the limits, those that hold behind admission."""


def portion(tree: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """Of a file's sections, those that the replicas of `stage` read."""
    sections = _SECTIONS.get(stage)
    if sections is None:
        told = {name: value for name, value in tree.items() if name != "stages"}
    else:
        told = {name: tree[name] for name in sections if name in tree}
        own = tree.get("server") or {}
        told["server"] = {name: own[name] for name in _LOG if name in own}
        limits = tree.get("limits") or {}
        if kept := {name: limits[name] for name in _LIMITS if name in limits}:
            told["limits"] = kept
    stages = {name: place or {} for name, place in (tree.get("stages") or {}).items()}
    sized = _sized(stages, stage)
    kept = {
        name: {
            key: value
            for key, value in place.items()
            if key == "placement" or (key == "cpus" and name == sized)
        }
        for name, place in stages.items()
    }
    told["stages"] = {name: place for name, place in kept.items() if place}
    return told


def _sized(stages: Mapping[str, Mapping[str, Any]], stage: str) -> str:
    """Whose CPUs the threads of `stage` are counted by: a model's are its own, or those of the
    ingress where it is inline."""
    if stage in _MODELS:
        return stage
    inside = _MODELS if stage == "recall" else _MODELS[:1]
    inline = any(stages.get(name, {}).get("placement") != "deployment" for name in inside)
    return "recall" if inline else ""
