"""Looking at a resident bank: what it holds, and what a recall saw of it.

Pure functions over one snapshot, run where the bank's arrays are; nothing here reads a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from retrieval.bank.resident import ResidentBank
from retrieval.recall.look import contents, linked

LOOKS: Mapping[str, Callable[[ResidentBank, Mapping[str, Any]], Any]] = {
    "contents": contents.contents,
    "counts": contents.counts,
    "timeline": contents.timeline,
    "links": linked.links,
}
"""What can be asked of a bank by name; each takes the arguments of `Retriever.look`."""
