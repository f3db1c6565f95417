"""From a YAML file and the environment to one Settings object. The only reader of either.

Later wins: default, file, HINDSIGHT_API_*, FOURFOLD_*. Every error names the variable or key.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from serve.settings import llm, secrets
from serve.settings.compatible import ALIASES, REASONS, REPLACED, UNPREFIXED, WITHOUT_EFFECT
from serve.settings.inference import RerankerMember
from serve.settings.model import Settings

PREFIXES = ("HINDSIGHT_API_", "FOURFOLD_")
_MEMBER = re.compile(r"RERANKER_(?:(\d+)_)?([A-Z0-9_]+)")
_OWN_NAMES = frozenset(
    {"SHARED", "CONFIG", "DATA", "URL", "API_KEY", "RUN", "LOG_FILE", "RELEASE"}
)  # our own variables that are not settings


class SettingsError(ValueError):
    """Settings that cannot be right. The message names each variable or key and the reason."""


def load(config: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process; `env` defaults to the environment."""
    return parse(load_file(config) if config else {}, os.environ if env is None else env)


def load_file(path: Path) -> dict[str, Any]:
    """The settings inside a Serve application file: the `args` of its one application."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not valid YAML: {error}") from None
    try:
        (application,) = content["applications"]
        args = application.get("args") or {}
    except (TypeError, KeyError, ValueError, AttributeError):
        raise SettingsError(f"{path} needs one entry under `applications`") from None
    if not isinstance(args, dict):
        raise SettingsError(f"{path}: `args` of the application must be a mapping")
    return args


def parse(tree: Mapping[str, Any], env: Mapping[str, str]) -> Settings:
    """Validated settings from sections of a file and a flat environment."""
    warnings: list[str] = []
    try:
        tree, env = secrets.read(tree), secrets.read_environment(env, PREFIXES)
    except secrets.UnreadableSecret as error:
        raise SettingsError(str(error)) from None
    sections = {name: dict(_mapping(name, value)) for name, value in tree.items()}
    origin: dict[tuple[str, ...], str] = {}
    members: dict[int, dict[str, tuple[str, str]]] = {}
    for variable, name, value in _variables(env):
        if (where := _FIELDS.get(ALIASES.get(name, name).lower())) is not None:
            section, field = where
            sections.setdefault(section, {})[field] = value
            origin[section, field] = variable
        elif llm.is_name(name.lower()):
            sections.setdefault("llm", {})[name.lower()] = value
        elif (kind := WITHOUT_EFFECT.get(name)) is not None:
            _check_kind(variable, value, kind)
            why = f": {REASONS[name]}" if name in REASONS else ""
            warnings.append(f"{variable} is accepted but has no effect here{why}")
        elif (match := _MEMBER.fullmatch(name)) and _member_field(match[2]):
            members.setdefault(int(match[1] or 0), {})[match[2]] = (variable, value)
        elif name not in _OWN_NAMES:
            warnings.append(f"{variable} is not a setting{_suggestion(name.lower(), _FIELDS)}")
    if chain := list(_chain(members)):
        for place, member in enumerate(chain):
            for field, (variable, _) in member.items():
                origin["rerankers", "members", str(place), field] = variable
        values = [{field: value for field, (_, value) in member.items()} for member in chain]
        sections["rerankers"] = {"members": values}
    _replace(sections, warnings)
    try:
        return Settings.model_validate({**sections, "warnings": tuple(warnings)})
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(error, origin))) from None


def _variables(env: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(variable, name, value); a blank value counts as unset."""
    for variable, name in UNPREFIXED.items():
        if env.get(variable, "").strip():
            yield variable, name, env[variable]
    for prefix in PREFIXES:
        for variable in sorted(v for v in env if v.startswith(prefix)):
            if env[variable].strip():
                yield variable, variable.removeprefix(prefix), env[variable]


def _chain(
    members: Mapping[int, Mapping[str, tuple[str, str]]],
) -> Iterator[dict[str, tuple[str, str]]]:
    """The members of the chain: the plain names are the first, then 1, 2, ... without a gap.

    A numbered member without a provider ends the chain. Members inherit nothing from each other.
    """
    if members:
        yield {_member_field(name): given for name, given in members.get(0, {}).items()}
    for number in range(1, max(members, default=0) + 1):
        given = members.get(number, {})
        if "PROVIDER" not in given:
            return
        yield {_member_field(name): value for name, value in given.items()}


def _member_field(name: str) -> str:
    """The field of a chain member with this name; empty if there is none."""
    field = ALIASES.get(f"RERANKER_{name}", f"RERANKER_{name}").removeprefix("RERANKER_").lower()
    return field if field in RerankerMember.model_fields else ""


def _mapping(section: str, value: Any) -> Mapping[str, Any]:
    if section not in Settings.model_fields or section == "warnings":
        raise SettingsError(
            f"unknown section {section!r}{_suggestion(section, Settings.model_fields)}"
        )
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SettingsError(f"section {section!r} must be a mapping")
    known = llm.is_name if section == "llm" else _names(section).__contains__
    unknown = [key for key in value if not known(key)]
    if unknown:
        raise SettingsError(
            "\n".join(
                f"{section}.{key}: unknown setting{_suggestion(str(key), _names(section))}"
                for key in unknown
            )
        )
    return value


def _replace(sections: dict[str, dict[str, Any]], warnings: list[str]) -> None:
    """Values that the public server replaces with a warning rather than refusing."""
    for field, (allowed, default) in REPLACED.items():
        section, _ = _FIELDS[field]
        value = sections.get(section, {}).get(field)
        if value is not None and not allowed(value):
            sections[section][field] = default
            warnings.append(f"{field.upper()}={value} is not known: using {default}")


def _check_kind(variable: str, value: str, kind: type) -> None:
    if kind is str:
        return
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        raise SettingsError(f"{variable}={value!r}: expected {_KINDS[kind]}") from None


def _sentences(error: ValidationError, origin: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    for problem in error.errors():
        if problem["type"] == "value_error":
            yield str(problem["ctx"]["error"])
            continue
        place = tuple(str(part) for part in problem["loc"])
        name = origin.get(place) or origin.get(place[:2]) or ".".join(place) or "settings"
        reason = _KINDS_BY_ERROR.get(problem["type"], problem["msg"])
        given = problem["input"] if isinstance(problem["input"], str | int | float) else "..."
        secret = any(word in name.lower() for word in ("key", "url", "token"))
        yield f"{name}{'' if secret else f'={given!r}'}: {reason}"


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_KINDS_BY_ERROR = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "bool_parsing": "expected true or false",
}


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""


def _names(section: str) -> tuple[str, ...]:
    if section == "llm":
        return tuple(llm.names())
    kind = Settings.model_fields[section].annotation
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return tuple(f.name for f in dataclasses.fields(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    return ()


_FIELDS: dict[str, tuple[str, str]] = {
    name: (section, name)
    for section in reversed(Settings.model_fields)  # `timezone` is one of recalls first
    if section not in ("warnings", "rerankers", "stages", "llm")
    for name in _names(section)
}
"""Public name in lower case -> (section, field)."""
