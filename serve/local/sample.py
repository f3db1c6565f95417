"""The sample bank: a small coherent world that shows what each arm of recall finds."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import httpx
import orjson

BANK = "sample"
QUESTION = "Why did the harvest festival move to the old mill?"


def memories() -> list[dict[str, Any]]:
    """The sample's memories, in the form of the import endpoint."""
    text = files("serve.local").joinpath("sample.jsonl").read_text(encoding="utf-8")
    return [orjson.loads(line) for line in text.splitlines() if line.strip()]


def load(client: httpx.Client) -> int:
    """Imports the sample through the API. Importing it again changes nothing."""
    found = memories()
    answer = client.post(f"/v1/default/banks/{BANK}/memories/import", json={"memories": found})
    answer.raise_for_status()
    client.put(f"/v1/default/banks/{BANK}", json={"name": "Sample: the valley of Lindow"})
    return len(found)
