"""`fourfold erase`: complete deletion, in one bank or in all of them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import orjson
import typer

from serve.cli.client import Api, ApiError
from serve.cli.options import DEFAULT_URL, Key, Url

POLL_S = 0.5
_ENDED = ("completed", "failed", "cancelled", "not_found")
Several = list[str] | None


def add_to(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def erase(
        bank: Annotated[str | None, typer.Argument(help="A bank's id.")] = None,
        every: Annotated[bool, typer.Option("--all", help="Every bank of the tenant.")] = False,
        document: Annotated[Several, typer.Option(help="Id of a document; repeatable.")] = None,
        memory: Annotated[Several, typer.Option(help="Id of a memory; repeatable.")] = None,
        entity: Annotated[Several, typer.Option(help="Id of an entity; repeatable.")] = None,
        tag: Annotated[Several, typer.Option(help="A tag; repeatable.")] = None,
        tags_match: Annotated[str, typer.Option(help="any, all or exact.")] = "any",
        text: Annotated[str | None, typer.Option(help="A text that it contains.")] = None,
        keep_supported: Annotated[
            bool, typer.Option(help="Keep observations that have another source.")
        ] = False,
        yes: Annotated[
            bool, typer.Option("--yes", help="Erase; without it only the counts are shown.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="The answers as they come.")] = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Erase memories with all that was made from them. All selectors must hold."""
        if (bank is None) == (not every):
            _fail("name a bank, or give --all")
        given = {
            "document_ids": document,
            "memory_ids": memory,
            "entity_ids": entity,
            "tags": tag,
            "text_contains": text,
        }
        body: dict[str, Any] = {name: value for name, value in given.items() if value}
        body["observations"] = "keep_supported" if keep_supported else "delete"
        if tag:
            body["tags_match"] = tags_match
        failed = False
        try:
            with Api(url, api_key) as api:
                for each in [bank] if bank is not None else api.banks():
                    found = _one(api, each, body, yes=yes)
                    failed |= found.get("status") == "failed"
                    typer.echo(orjson.dumps(found).decode() if as_json else _said(each, found))
        except ApiError as error:
            _fail(str(error))
        if failed:
            raise typer.Exit(2)


def _one(api: Api, bank: str, body: dict[str, Any], *, yes: bool) -> dict[str, Any]:
    """The dry run, or the operation once it has ended."""
    found = api.erase(bank, {**body, "dry_run": not yes})
    while yes and found["status"] not in _ENDED:
        time.sleep(POLL_S)
        found = api.operation(bank, found["operation_id"])
    return found


def _said(bank: str, found: dict[str, Any]) -> str:
    report = found.get("result_metadata") or found
    counts = ", ".join(f"{n} {name}" for name, n in report.get("counts", {}).items() if n)
    state = "would go" if found.get("dry_run") else found["status"]
    why = f": {found['error_message']}" if found.get("error_message") else ""
    return f"{bank}: {counts or 'nothing'} ({state}{why})"


def _fail(message: str) -> None:
    typer.secho(f"error: {message}", err=True, fg="red")
    raise typer.Exit(1)
