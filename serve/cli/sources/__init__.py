"""Memories from elsewhere: each module reads what one system exports, a record at a time.

Readers are pure: files in, records out. Times are those of the source, never of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from serve.cli.sources import chats, graphiti, langgraph, markdown, mem0
from serve.cli.sources.records import ReadOptions, Record

Reader: TypeAlias = Callable[[Path, ReadOptions], Iterator[Record]]

READERS: Mapping[str, Reader] = {
    "mem0": mem0.read,
    "zep": graphiti.read,
    "graphiti": graphiti.read,
    "chatgpt": chats.chatgpt,
    "claude": chats.claude,
    "langgraph": langgraph.read,
    "langmem": langgraph.read,
    "markdown": markdown.read,
}
