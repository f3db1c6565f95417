"""A bank's set-up without its memories: settings, mental models, directives, as one manifest that
can lie under version control. Only what differs from the server's own is in it, no credential."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from retrieval.errors import InvalidInput
from retrieval.mental import models
from retrieval.mental.trigger import ID, GivenTrigger, Trigger
from retrieval.store import bankconfig, banks, directives, mental_models, refreshes
from retrieval.store.database.pool import Connection, Pool, read, write

VERSION: Final = 1
MODELS_MOST: Final = mental_models.MOST
DIRECTIVES_MOST: Final = directives.MOST
TEXT_MOST: Final = 20_000
FAULTS_MOST: Final = 100
"""Faults that one refusal names."""

ELSEWHERE: Final = frozenset(
    ("consolidation_use_decision_model", "reflect_use_decision_model",
     "mental_model_refresh_use_decision_model", "mental_model_delta_use_decision_model",
     "llm_gemini_safety_settings")
)  # fmt: skip
"""The peer's settings of parts that are not built here: passed over."""

_NEUTRAL: Final = 3
"""A trait that says nothing."""

Label = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"\S")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MOST, pattern=r"\S")]
Tags = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=1024)]], Field(max_length=100)
]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="ignore", use_attribute_docstrings=True
    )


class TemplateModel(_Part):
    """A mental model: its question, not its answer."""

    id: Annotated[str, StringConstraints(pattern=f"^{ID}$")]
    """Lower-case letters, digits and hyphens."""
    name: Label
    source_query: Text
    """The question that the document answers."""
    tags: Tags = Field(default_factory=list)
    max_tokens: Annotated[int, Field(ge=256, le=8192)] = 2048
    trigger: GivenTrigger = Field(default_factory=dict)  # type: ignore[assignment]


class TemplateDirective(_Part):
    """A rule that goes into the answers of a bank."""

    name: Label
    content: Text
    priority: Annotated[int, Field(ge=-(2**31) + 1, le=2**31 - 1)] = 0
    is_active: bool = True
    tags: Tags = Field(default_factory=list)


class Template(_Part):
    """The manifest of a bank's set-up."""

    version: str = str(VERSION)
    """Of this form of manifest; newer ones are refused."""
    bank: dict[str, Any] | None = None
    """Settings of the bank, as PATCH config takes them."""
    mental_models: Annotated[list[TemplateModel], Field(max_length=MODELS_MOST)] = Field(
        default_factory=list
    )
    directives: Annotated[list[TemplateDirective], Field(max_length=DIRECTIVES_MOST)] = Field(
        default_factory=list
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of manifests."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bank template",
        **Template.model_json_schema(),
    }


async def export(pool: Pool, tenant: str, bank_id: str) -> dict[str, Any]:
    """{version, bank, mental_models, directives} of a bank; NotFound."""

    async def work(connection: Connection) -> dict[str, Any]:
        head = await banks.head_of(connection, tenant, bank_id)
        row = await connection.fetchrow(
            "select mission, disposition, config from banks where bank = $1", head.bank
        )
        found = await connection.fetch(
            "select id, name, source_query, tags, max_tokens, trigger from mental_models"
            " where bank = $1 and not is_page order by id",
            head.bank,
        )
        rules = await connection.fetch(
            "select name, content, priority, is_active, tags from directives where bank = $1"
            " order by name, id",
            head.bank,
        )
        return {
            "version": str(VERSION),
            "bank": _settings(row) or None,
            "mental_models": [
                {**dict(each), "trigger": Trigger.of(each["trigger"]).wire()} for each in found
            ],
            "directives": [dict(each) for each in rules],
        }

    return await read(pool, work)


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row["config"].items() if name in bankconfig.names()}
    if row["mission"]:
        found["reflect_mission"] = row["mission"]
    for trait in bankconfig.TRAITS:
        if row["disposition"].get(trait, _NEUTRAL) != _NEUTRAL:
            found[f"disposition_{trait}"] = row["disposition"][trait]
    return found


def checked(manifest: Mapping[str, Any]) -> Template:
    """The manifest, upgraded where it is older. InvalidInput names all that is wrong with it."""
    faults = []
    version = manifest.get("version", str(VERSION))
    if not isinstance(version, str) or not version.isascii() or not version.isdigit():
        faults.append(f"version: must be a number as text, such as {str(VERSION)!r}")
    elif len(version) > 9 or int(version) > VERSION:
        raise InvalidInput(
            f"version: {version[:20]} is newer than this server reads, which is {VERSION}",
            "version",
        )
    template = None
    try:
        template = Template.model_validate(_without_nulls(manifest))
    except ValidationError as error:
        faults += [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
            if each["loc"] != ("version",) or not faults
        ]
    bank = manifest.get("bank")
    if isinstance(bank, Mapping):
        for name, value in _ours(bank).items():
            try:
                bankconfig.checked({name: value})
            except InvalidInput as error:
                faults.append(f"bank.{error}")
    for kind, key in (("mental_models", "id"), ("directives", "name")):
        rows = manifest.get(kind)
        names = Counter(
            row[key]
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, Mapping) and isinstance(row.get(key), str)
        )
        for name in sorted(name for name, count in names.items() if count > 1):
            faults.append(f"{kind}: {name[:80]!r} is there twice")
    if faults or template is None:
        told = faults[:FAULTS_MOST]
        if len(faults) > len(told):
            told.append(f"and {len(faults) - len(told)} more")
        raise InvalidInput("; ".join(told), faults[0].partition(":")[0])
    return template


def for_new_banks(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as what new banks begin with. InvalidInput names all faults."""
    template = checked(manifest)
    return {
        "settings": _ours(template.bank or {}),
        "mental_models": [each.model_dump(mode="json") for each in template.mental_models],
        "directives": [each.model_dump() for each in template.directives],
    }


def _ours(bank: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are given, without those of the peer that mean nothing here."""
    return {k: v for k, v in bank.items() if v is not None and k not in ELSEWHERE}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


async def apply(
    pool: Pool,
    tenant: str,
    bank_id: str,
    manifest: Mapping[str, Any],
    *,
    dry_run: bool = False,
    writes: bool = True,
) -> dict[str, Any]:
    """What an import of the manifest does, or with `dry_run` would do; the bank is made if there is
    none, all in one transaction.

    Mental models are known by their id, directives by their name. `writes`: somebody here can write
    documents, so that refreshes are queued; else models are only kept. InvalidInput names all
    faults.
    """
    banks.check_id(bank_id)
    template = await asyncio.to_thread(checked, manifest)

    async def work(connection: Connection) -> dict[str, Any]:
        result = await _apply(connection, tenant, bank_id, template, writes=writes)
        if dry_run:
            raise _Dry(result)
        return result

    try:
        done = await write(pool, work)
    except _Dry as dry:
        done = {**dry.result, "operation_ids": []}
    return {"bank_id": bank_id, **done, "dry_run": dry_run}


class _Dry(Exception):
    """Undoes what was done to find out what would be."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


async def _apply(
    connection: Connection, tenant: str, bank_id: str, template: Template, *, writes: bool
) -> dict[str, Any]:
    await banks.ensure(connection, tenant, bank_id, bare=True)
    settings = _ours(template.bank or {})
    if settings:
        await banks.apply(connection, tenant, bank_id, settings)
    bank = (await banks.lock(connection, tenant, bank_id)).bank
    made, changed, queued = [], [], []
    known = {
        row["id"]: row
        for row in await connection.fetch("select * from mental_models where bank = $1", bank)
    }
    for each in template.mental_models:
        fields = each.model_dump(exclude={"id"}, mode="json")
        if each.id not in known:
            made.append(each.id)
            if writes:
                queued.append(await models.created(connection, bank, each.id, fields))
            else:
                await mental_models.insert(connection, bank, each.id, fields)
                await models.rescheduled(connection, bank, each.id, fields["trigger"])
        elif _differs(known[each.id], fields):
            changed.append(each.id)
            await models.changed(connection, bank, each.id, fields)
            if writes:
                queued.append(str(await refreshes.queue_refresh(connection, bank, each.id)))
    return {
        "config_applied": bool(settings),
        "mental_models_created": made,
        "mental_models_updated": changed,
        **await _directives(connection, bank, template),
        "operation_ids": queued,
    }


def _differs(row: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return any(
        Trigger.of({**row[name], **value}) != Trigger.of(row[name])
        if name == "trigger"
        else row[name] != value
        for name, value in fields.items()
    )


async def _directives(connection: Connection, bank: int, template: Template) -> dict[str, Any]:
    rows = await connection.fetch("select * from directives where bank = $1 order by id", bank)
    known: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        known.setdefault(row["name"], row)
    made, changed = [], []
    for each in template.directives:
        fields = each.model_dump()
        row = known.get(each.name)
        if row is None:
            made.append(each.name)
            await directives.put(connection, bank, fields)
        elif any(row[name] != value for name, value in fields.items()):
            changed.append(each.name)
            await directives.change(connection, bank, row["id"], fields)
    return {"directives_created": made, "directives_updated": changed}
