"""What the documents name is there: files, sections, settings, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from serve.cli.main import app
from serve.settings import SettingsError, parse
from serve.settings.loading import PREFIXES

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
PACKAGES = ("retrieval", "serve", "models")
FOLDERS = (*PACKAGES, "tests", "docs", "configs")

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]+\.(?:py|toml|jsonl?|ya?ml|sql)")
_NAMED = re.compile(rf"\b(?:{'|'.join(FOLDERS)})/[\w/-]++(?:\.\w+)*+(?!\*)")
_VARIABLE = re.compile(rf"`(?:{'|'.join(PREFIXES)})?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`")
_COMMAND = re.compile(r"(?<![\w/.'\[-])fourfold ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")

ELSEWHERE = {
    # Files of clients, archives and the server that are no part of the repository.
    ".roo/mcp.json", ".vscode/mcp.json", "settings.json", "claude_desktop_config.json",
    "bank.json", "manifest.json", "backup.json", "/openapi.json",
}  # fmt: skip
OTHERS = (
    "RAY_", "DATABASE_URL_FILE", "PER_BANK", "API_KEY", "FOURFOLD_URL", "HINDSIGHT_MCP_BANK_ID",
    "RERANKER_PROVIDERS",
)  # fmt: skip
"""Names in capitals that are no settings of ours."""


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def files() -> frozenset[str]:
    """Files and folders of the repository, relative to its root."""
    found = [ROOT / page for page in PAGES]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def there(name: str) -> bool:
    """Whether a name is that of a file or folder, or the end of one."""
    name = name.rstrip("/")
    return name in files() or name in FOLDERS or any(path.endswith("/" + name) for path in files())


def sections(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    dead = []
    for link in _LINK.findall(text(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, section = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        name = target.relative_to(ROOT).as_posix()
        if not target.exists() or (section and section not in sections(name)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    named = {code for code in _CODE.findall(text(page)) if _FILE.fullmatch(code)} - ELSEWHERE
    named |= set(_NAMED.findall(text(page)))
    assert sorted(name for name in named if not there(name)) == []


def sources() -> Iterator[str]:
    return (name for name in files() if name.endswith(".py") and name.startswith(PACKAGES))


def test_files_that_a_source_names_are_there() -> None:
    named = re.compile(rf"\b(?:{'|'.join(FOLDERS)})/[\w/-]+\.(?:py|md|toml|json)\b")
    wrong = [
        f"{source}: {name}"
        for source in sources()
        for name in named.findall(text(source))
        if name not in files()
    ]
    assert wrong == []


def can_be_set(name: str) -> bool:
    try:
        warnings = parse({}, {f"FOURFOLD_{name}": "1"}).warnings
    except SettingsError:
        return True  # known, and "1" is no value of it
    return not any("is not a setting" in warning for warning in warnings)


@pytest.mark.parametrize("page", PAGES)
def test_settings_that_a_page_names_can_be_set(page: str) -> None:
    named = {name for name in _VARIABLE.findall(text(page)) if not name.startswith(OTHERS)}
    assert sorted(name for name in named if not can_be_set(name)) == []


def test_what_is_no_setting_is_seen() -> None:
    assert can_be_set("BANK_WARM")
    assert can_be_set("RERANKER_1_PROVIDER")
    assert not can_be_set("BANK_COLD")


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_names_are_there(page: str) -> None:
    commands = getattr(get_command(app), "commands")  # noqa: B009 - of click's groups
    wrong = []
    for name, inner in _COMMAND.findall(text(page)):
        below = getattr(commands.get(name), "commands", None)
        if name not in commands or (below is not None and inner and inner not in below):
            wrong.append(f"{name} {inner}")
    assert wrong == []
