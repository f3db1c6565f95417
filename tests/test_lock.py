"""The lock file: every pin has its hashes, and what the project asks for is met."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(
    r"([a-z0-9-]+)(\[[a-z0-9,-]+\])?==([^ ;]+)( ;[^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)"
)


def pins() -> dict[str, str]:
    """Version by name. Whatever is no pin with hashes is refused."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    body = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    found = {match[1]: match[3] for match in PIN.finditer(body)}
    assert not PIN.sub("", body).strip(), "something is not pinned with a hash"
    return found


def test_the_pins_are_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    held = pins()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    for requirement in map(Requirement, wanted):
        version = held.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not in requirements.lock: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement} is locked to {version}"


def test_it_names_no_machine_and_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^-|file:| @ ", text, re.M)
