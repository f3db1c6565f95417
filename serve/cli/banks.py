"""`fourfold bank`: archives of banks, against a running server or, with --tenant, its database.

Downloads go into FILE.part, and on from there after an interruption; FILE appears when it is whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retrieval.errors import InvalidInput
from serve.cli.options import DEFAULT_DATA, DEFAULT_URL, Config, Data, Key, Url, WithPool

if TYPE_CHECKING:
    from retrieval.lifecycle.transfer.unpacking import Unpacker
    from retrieval.store.database.pool import Pool
    from serve.cli.client import Api

POLL_S = 0.5
_BLOCK = 1 << 20

NoData = Annotated[bool, typer.Option("--no-data", help="Without memories and documents.")]
NoConfig = Annotated[bool, typer.Option("--no-config", help="Without settings, models, rules.")]
History = Annotated[bool, typer.Option("--history", help="With operations and model requests.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def add_to(app: typer.Typer, with_pool: WithPool, fail: Any) -> None:
    """Adds the commands. `fail` makes an exit with a sentence."""
    commands = typer.Typer(no_args_is_help=True, help="Export, import, clone, check banks.")
    app.add_typer(commands, name="bank")

    @commands.command("export")
    def export(
        bank: Annotated[str | None, typer.Argument(help="The bank; none with --all.")] = None,
        file: Annotated[
            Path | None, typer.Argument(help="The archive; with --all a folder.")
        ] = None,
        every: Annotated[bool, typer.Option("--all", help="Every bank of the tenant.")] = False,
        tenant: Annotated[
            str | None,
            typer.Option(help="Straight from the database, of this tenant; no server is needed."),
        ] = None,
        vectors: Annotated[
            bool, typer.Option("--vectors", help="With vectors, for a server with the same model.")
        ] = False,
        format: Annotated[str, typer.Option(help="fourfold or hindsight.")] = "fourfold",
        no_data: NoData = False,
        no_config: NoConfig = False,
        history: History = False,
        as_json: AsJson = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Write an archive of a bank, as it is at one moment."""
        from serve.cli.client import Api, ApiError

        if every and bank is not None and file is None:
            file, bank = Path(bank), None  # the one argument is the folder
        if every == (bank is not None):
            raise fail("name a bank, or give --all")
        flags = _included(no_data, no_config, history)
        try:
            if tenant is not None:
                target = file or Path(".")

                async def work(pool: Pool) -> list[dict[str, Any]]:
                    return await _from_database(pool, tenant, bank, target, flags, vectors, format)

                done = with_pool(config, data, work)
            else:
                query = {**flags, "format": format, "include_vectors": vectors}
                with Api(url, api_key) as api:
                    done = [
                        _download(api, name, _place(name, file, every), query)
                        for name in (_banks(api) if every else [str(bank)])
                    ]
        except (ApiError, InvalidInput, OSError) as error:
            raise fail(error) from None
        _show(done, as_json)

    @commands.command("import")
    def import_archive(
        file: Annotated[
            Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The archive.")
        ],
        bank: Annotated[
            str | None, typer.Option(help="The bank to make, or to merge into; else the archive's.")
        ] = None,
        merge: Annotated[
            bool, typer.Option("--merge", help="Beside what the bank holds already.")
        ] = False,
        conflict: Annotated[
            str, typer.Option(help="Of a merged document that is there: skip, replace, new-id.")
        ] = "skip",
        no_data: NoData = False,
        no_config: NoConfig = False,
        history: History = False,
        as_json: AsJson = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Import an archive as a bank.

        With --merge into a bank that exists.
        """
        from retrieval.lifecycle.transfer.unpacking import Unpacker
        from serve.cli.client import Api, ApiError

        try:
            unpacker = Unpacker(file)
            target = bank or unpacker.bank_id
            unpacker.close()
            query: dict[str, Any] = {"mode": "merge" if merge else "restore"}
            if merge:
                query["document_conflict"] = conflict
            else:
                query |= {"target_bank_id": target, **_included(no_data, no_config, history)}
            with Api(url, api_key) as api:
                made = api.upload(target, "transfer/import", file, query)
                done = _wait(api, target, made["operation_id"])
        except (ApiError, InvalidInput) as error:
            raise fail(error) from None
        _show([done["result_metadata"]], as_json)

    @commands.command("clone")
    def clone(
        bank: Annotated[str, typer.Argument(help="The bank to copy.")],
        target: Annotated[str, typer.Argument(help="The id of the copy.")],
        no_data: NoData = False,
        no_config: NoConfig = False,
        history: History = False,
        as_json: AsJson = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Copy a bank on its server; nothing is embedded again."""
        from serve.cli.client import Api, ApiError

        query = {"target_bank_id": target, **_included(no_data, no_config, history)}
        try:
            with Api(url, api_key) as api:
                made = api.post(bank, "clone", None, query)
                done = _wait(api, bank, made["operation_id"])
        except ApiError as error:
            raise fail(error) from None
        _show([done["result_metadata"]], as_json)

    @commands.command("rename")
    def rename(
        bank: Annotated[str, typer.Argument(help="The bank's id.")],
        target: Annotated[str, typer.Argument(help="Its new id.")],
        tenant: Annotated[str, typer.Option(help="Tenant that owns the bank.")] = "default",
        config: Config = None,
        data: Data = DEFAULT_DATA,
    ) -> None:
        """Give a bank another id. Its old one leads to it as an alias."""
        from retrieval.store import renaming

        with_pool(config, data, lambda pool: renaming.rename(pool, tenant, bank, target))
        typer.echo(f"{bank} is {target} now")

    @commands.command("verify")
    def verify(
        file: Annotated[
            Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The archive.")
        ],
        as_json: AsJson = False,
    ) -> None:
        """Check an archive without a server.

        Its directory, its manifest, each part.
        """
        from retrieval.lifecycle.transfer.unpacking import Unpacker

        try:
            unpacker = Unpacker(file)
            try:
                found = checked(unpacker)
            finally:
                unpacker.close()
        except InvalidInput as error:
            raise fail(error) from None
        _show([found], as_json)


def checked(unpacker: Unpacker) -> dict[str, Any]:
    """What a whole archive holds. BadArchive names what is wrong with it."""
    manifest = unpacker.manifest
    if manifest is None:
        for name in unpacker.names:
            unpacker.whole(name, 1 << 40)
        assert unpacker.peer is not None
        return {"format": "hindsight", "bank_id": unpacker.bank_id, **unpacker.peer}
    for part in manifest.parts:
        unpacker.verify(part)
        if part.name.endswith(".ndjson"):
            rows = sum(1 for _ in unpacker.lines(part))
            if rows != part.rows:
                raise InvalidInput(
                    f"the part {part.name!r} has {rows} rows, its manifest says {part.rows}"
                )
    return {
        "format": "fourfold",
        "bank_id": manifest.bank_id,
        "exported_at": manifest.exported_at,
        "bank_version": manifest.bank_version,
        "counts": dict(manifest.counts),
        "parts": len(manifest.parts),
        "vectors": manifest.vectors,
    }


def _included(no_data: bool, no_config: bool, history: bool) -> dict[str, bool]:
    """What of a bank goes along, as the routes name it."""
    return {
        "include_data": not no_data,
        "include_bank_config": not no_config,
        "include_history": history,
    }


def _banks(api: Api) -> Iterator[str]:
    offset = 0
    while True:
        found = api.get("/v1/default/banks", {"limit": 500, "offset": offset})
        yield from (row["bank_id"] for row in found["banks"])
        offset += 500
        if offset >= found["total"]:
            return


def _place(bank: str, file: Path | None, every: bool) -> Path:
    from retrieval.lifecycle.transfer.jobs import safe

    name = f"{safe(bank)}-{hashlib.sha256(bank.encode()).hexdigest()[:8]}.zip"
    if every:
        folder = file or Path(".")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name
    return file or Path(f"{safe(bank)}.zip")


def _wait(api: Api, bank: str, operation: str) -> dict[str, Any]:
    """The operation, once it ended well; what it does meanwhile goes to the terminal."""
    from serve.cli.client import ApiError

    told = ""
    while True:
        found = api.operation(bank, operation)
        if found["status"] == "completed":
            return found
        if found["status"] in ("failed", "cancelled", "not_found"):
            raise ApiError(found.get("error_message") or f"the operation was {found['status']}")
        said = (found.get("progress") or {}).get("detail") or ""
        if said != told:
            told = said
            typer.echo(said, err=True)
        time.sleep(POLL_S)


def _download(api: Api, bank: str, file: Path, query: Mapping[str, Any]) -> dict[str, Any]:
    """Makes an archive and fetches it, or goes on with the one that lies beside the file."""
    from serve.cli.client import ApiError

    part, note = file.with_name(f"{file.name}.part"), file.with_name(f"{file.name}.part.json")
    import orjson

    result = None
    if note.exists() and part.exists():
        try:
            result = orjson.loads(note.read_bytes())
            if result["query"] != query or result["bank"] != bank:
                result = None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            result = None
    for attempt in range(2):
        if result is None:
            made = api.post(bank, "transfer/export", None, query)
            done = _wait(api, bank, made["operation_id"])["result_metadata"]
            result = {**done, "query": dict(query), "bank": bank}
            part.unlink(missing_ok=True)
            note.write_bytes(orjson.dumps(result))
        try:
            api.download(result["download_url"], part)
            break
        except ApiError:
            if attempt:
                raise
            result = None  # it is no longer kept: make another
    digest = hashlib.sha256()
    with part.open("rb") as written:
        while block := written.read(_BLOCK):
            digest.update(block)
    assert result is not None
    if digest.hexdigest() != result["sha256"]:
        part.unlink()
        note.unlink()
        raise ApiError("the archive was damaged on its way: try again")
    part.replace(file)
    note.unlink()
    return {"file": str(file), **{k: v for k, v in result.items() if k not in ("query", "bank")}}


async def _from_database(
    pool: Pool,
    tenant: str,
    bank: str | None,
    target: Path,
    flags: Mapping[str, bool],
    vectors: bool,
    format: str,
) -> list[dict[str, Any]]:
    """Archives of a tenant's banks, written straight into files."""
    from retrieval.lifecycle.transfer.archive import ArchiveContents
    from retrieval.lifecycle.transfer.exporting import Outlet, Wanted
    from retrieval.lifecycle.transfer.exporting import export as ours
    from retrieval.lifecycle.transfer.hindsight.writing import export as theirs
    from retrieval.store.database.pool import read
    from retrieval.store.edge import one_of

    make = ours if one_of(format, ("fourfold", "hindsight"), "format") == "fourfold" else theirs
    names = [bank]
    if bank is None:
        rows = await read(
            pool,
            lambda c: c.fetch(
                "select bank_id from banks where tenant_id = $1 and state = 'open' order by bank",
                tenant,
            ),
        )
        names = [row["bank_id"] for row in rows]
    wanted = Wanted(
        ArchiveContents(
            flags["include_data"], flags["include_bank_config"], flags["include_history"]
        ),
        vectors=vectors,
    )
    done = []
    for name in names:
        assert name is not None
        if bank is not None and target == Path("."):
            file = _place(name, None, False)
        else:
            file = _place(name, target, bank is None)
        part = file.with_name(f"{file.name}.part")

        async def begin(part: Path = part) -> Outlet:
            await asyncio.to_thread(part.write_bytes, b"")

            async def take(data: bytes) -> None:
                await asyncio.to_thread(_append, part, data)

            return take

        made = await make(pool, tenant, name, wanted, begin)
        await asyncio.to_thread(part.replace, file)
        done.append(
            {
                "file": str(file),
                "bank_id": name,
                "sha256": made.sha256.hex(),
                "bank_version": made.manifest.bank_version,
                "counts": dict(made.manifest.counts),
            }
        )
    return done


def _append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


def _show(done: list[dict[str, Any]], as_json: bool) -> None:
    import orjson

    if as_json:
        typer.echo(orjson.dumps(done if len(done) != 1 else done[0]).decode())
        return
    for each in done:
        for name, value in each.items():
            if isinstance(value, Mapping):
                value = ", ".join(f"{k} {v}" for k, v in value.items() if v) or "-"
            typer.echo(f"{name}: {value}")
