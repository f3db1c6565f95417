"""Settings that are secrets: from files, so that nothing that is sent or kept has them in it.

A variable `NAME_FILE`, or a key `name_file` in a configuration file, names the file that holds the
value; every process reads it for itself. What a cluster is told of the settings (Ray keeps it) has
names of files in it, never secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SUFFIX = "_file"
_NAMES = ("database_url", "mcp_auth_token")
_ENDS = ("api_key", "default_headers", "_secret", "_secret_key", "_signing_key")


class UnreadableSecret(ValueError):
    """The file of a secret cannot be read. The message names the setting."""


def is_secret(name: str) -> bool:
    """Whether the setting of this name, in lower case and without prefix, is one."""
    return name in _NAMES or (name.endswith(_ENDS) and name != "require_api_key")


def read(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of a file with the secrets that they name. UnreadableSecret."""

    def content(place: str, key: str, value: Any) -> tuple[str, Any]:
        base = key.removesuffix(SUFFIX)
        if base == key or not is_secret(base):
            return key, value
        return base, _text(f"{place}.{key}", str(value))

    return {name: _mapped(section, name, content) for name, section in tree.items()}


def read_environment(env: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """The environment with the secrets that its `..._FILE` variables name. UnreadableSecret."""
    found = dict(env)
    for variable in env:
        prefix = next((one for one in prefixes if variable.startswith(one)), None)
        base = variable.removesuffix(SUFFIX.upper())
        if prefix is None or base == variable or not env[variable].strip():
            continue
        name = base.removeprefix(prefix).lower()
        if name == "api_key" or not is_secret(name):  # that key is a client's
            continue
        if env.get(base, "").strip():
            raise UnreadableSecret(f"{base} and {variable} are both set: leave one out")
        del found[variable]
        found[base] = _text(variable, env[variable])
    return found


def written(tree: Mapping[str, Any]) -> list[str]:
    """The places of a file's sections where a secret is written out."""
    return [f"{place}.{key}" for place, key, value in _items(tree) if value and is_secret(key)]


def moved_to_files(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The sections, with files of their own in `folder` in the place of secrets written out."""

    def file(place: str, key: str, value: Any) -> tuple[str, Any]:
        if not value or not is_secret(key) or not isinstance(value, str):
            return key, value
        path = folder / f"{place}.{key}"
        path.touch(mode=0o600)
        path.write_text(value)
        return key + SUFFIX, str(path)

    folder.mkdir(mode=0o700, exist_ok=True)
    return {name: _mapped(section, name, file) for name, section in tree.items()}


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UnreadableSecret(f"{name}: cannot read {path}: {reason}") from None


def _mapped(value: Any, place: str, change: Callable[[str, str, Any], tuple[str, Any]]) -> Any:
    """`value` with each key and its text changed, at every depth."""
    if isinstance(value, Mapping):
        pairs = []
        for key, part in value.items():
            inner = _mapped(part, f"{place}.{key}", change)
            nested = isinstance(part, list | tuple)
            pairs.append((key, inner) if nested else change(place, str(key), inner))
        return dict(pairs)
    if isinstance(value, list | tuple):
        return [_mapped(part, f"{place}.{i}", change) for i, part in enumerate(value)]
    return value


def _items(tree: Any, place: str = "") -> Iterator[tuple[str, str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield place, str(key), value
            yield from _items(value, f"{place}.{key}".lstrip("."))
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from _items(value, f"{place}.{i}")
