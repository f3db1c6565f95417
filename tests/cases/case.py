"""Cases: small inputs with what a right answer looks like, read from a file outside the repository.

A window case is a question, an anchor and the expected span of days. A recall case is a bank, what
is done to it, a request and an expectation; `tests/cases/checks.py` knows every expectation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_BANK = "bank"


@dataclass(frozen=True, slots=True)
class WindowCase:
    """`expected` and `also_ok` are pairs of ISO days, None for an open side; `expected` is None
    where there must be no window and "any" where there must be some."""

    id: str
    query: str
    anchor: str
    expected: tuple[str | None, str | None] | str | None
    also_ok: tuple[tuple[str | None, str | None], ...] = ()
    must_include: tuple[str, ...] = ()
    must_exclude: tuple[str, ...] = ()
    stretch: bool = False


@dataclass(frozen=True, slots=True)
class RecallCase:
    """`memories` carry their `bank` and `tenant`; `bulk` holds further rows without an index."""

    id: str
    memories: tuple[Mapping[str, Any], ...]
    query: str
    expect: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    bulk: tuple[Mapping[str, Any], ...] = ()
    links: tuple[Mapping[str, Any], ...] = ()
    setup: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[Mapping[str, Any], ...] = ()
    load: Mapping[str, Any] | None = None
    needs: frozenset[str] = frozenset()
    client_timeout_s: float = 60.0

    @property
    def bank(self) -> str:
        """The bank that is asked."""
        if "bank_id" in self.params or not self.memories:
            asked = {"bank": self.params.get("bank_id", DEFAULT_BANK)}
            return bank_of({**asked, **{k: v for k, v in self.params.items() if k == "tenant"}})
        tenant = self.params.get("tenant")
        own = [row for row in self.memories if tenant is None or row.get("tenant") == tenant]
        return bank_of(own[0] if own else {"tenant": tenant})

    @property
    def banks(self) -> tuple[str, ...]:
        """Every bank of the case, in order of first mention."""
        rows = (*self.memories, *self.bulk)
        return tuple(dict.fromkeys([*(bank_of(row) for row in rows), self.bank]))


def bank_of(memory: Mapping[str, Any]) -> str:
    """A label for a memory's bank: its name, behind its tenant's where it has one."""
    name = str(memory.get("bank", DEFAULT_BANK))
    return f"{memory['tenant']}/{name}" if memory.get("tenant") else name


def parts_of(bank: str) -> tuple[str | None, str]:
    """The tenant, if any, and the name in a label of `bank_of`."""
    tenant, slash, name = bank.rpartition("/")
    return (tenant if slash else None, name)


def read(path: Path) -> tuple[list[WindowCase], list[RecallCase]]:
    """The cases of a file; ValueError for a case of a kind that is not known here."""
    windows: list[WindowCase] = []
    recalls: list[RecallCase] = []
    for row in json.loads(path.read_text()):
        if row["kind"] == "window":
            windows.append(_window(row))
        elif row["kind"] == "recall":
            recalls.append(recall_case(row))
        else:
            raise ValueError(f"case {row['id']} is of unknown kind {row['kind']!r}")
    return windows, recalls


def _window(row: Mapping[str, Any]) -> WindowCase:
    expected = row["expect_window"]
    return WindowCase(
        id=row["id"],
        query=row["query"],
        anchor=row["query_timestamp"],
        expected=tuple(expected) if isinstance(expected, list) else expected,
        also_ok=tuple((start, end) for start, end in row.get("also_ok", ())),
        must_include=tuple(row.get("must_include", ())),
        must_exclude=tuple(row.get("must_exclude", ())),
        stretch=row.get("tier") == "stretch",
    )


def recall_case(row: Mapping[str, Any]) -> RecallCase:
    query = row.get("query")
    if query is None:
        repeat = row["query_repeat"]
        query = repeat["text"] * repeat["times"] + repeat.get("suffix", "")
    return RecallCase(
        id=row["id"],
        memories=tuple(row["memories"]),
        query=query,
        expect=row["expect"],
        params=row.get("params") or {},
        bulk=tuple(item for rule in row.get("bulk", ()) for item in _bulk(rule)),
        links=tuple(row.get("links", ())),
        setup=row.get("setup") or {},
        after=tuple(row.get("after", ())),
        load=row.get("load"),
        needs=frozenset(row.get("needs", ())),
        client_timeout_s=row.get("client_timeout_s", 60.0),
    )


def _bulk(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`count` memories from a template; braces in its strings hold format expressions in `i`."""
    fields = {k: v for k, v in rule.items() if k not in ("count", "template", "text")}
    fields["text"] = rule.get("template", rule.get("text", ""))
    return [{k: _filled(v, i) for k, v in fields.items()} for i in range(rule["count"])]


def _filled(value: Any, i: int) -> Any:
    if isinstance(value, list):
        return [_filled(item, i) for item in value]
    if not isinstance(value, str) or "{" not in value:
        return value
    return eval(f"f{value!r}", {"__builtins__": {}}, {"i": i})
