"""Transfers as operations: what is checked before one is accepted, and who does it.

Of a tenant one transfer runs at a time and MOST_WAITING wait. An export that lost its worker starts
anew; an import goes on where it was. Files come and go through the database, so that any process
can do what another one accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias
from uuid import UUID, uuid4

from retrieval.errors import FourfoldError, InvalidInput, NotFound, RateLimited, TooMuch
from retrieval.ingest.context import WriteContext
from retrieval.ingest.operations.parking import Parked
from retrieval.ingest.operations.worker import Handler
from retrieval.lifecycle.transfer import cloning, merging
from retrieval.lifecycle.transfer.archive import ArchiveContents, BadArchive
from retrieval.lifecycle.transfer.bundles import BundleArchive
from retrieval.lifecycle.transfer.exporting import Exported, Outlet, Wanted, export
from retrieval.lifecycle.transfer.hindsight import reading, writing
from retrieval.lifecycle.transfer.restoring import restore
from retrieval.lifecycle.transfer.staging import Staged
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.settings.transfer import TransferSettings
from retrieval.store import banks, building, operations
from retrieval.store import stored_files as files
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import iso
from retrieval.store.operations import Claim
from retrieval.store.stored_files import FileWriter

log = logging.getLogger(__name__)

EXPORT: Final = "transfer_export"
IMPORT: Final = "transfer_import"
CLONE: Final = "clone"
TYPES: Final = (EXPORT, IMPORT, CLONE)

MOST_WAITING: Final = 4
TURN_S: Final = 1.0
"""How often a transfer looks whether it is its turn."""
_LOCK: Final = 6
"""Class of our advisory lock; the upkeep of banks has 4 and 5."""
MEDIA_TYPE: Final = "application/zip"
DOWNLOAD: Final = "/v1/default/files/download/"

Mode: TypeAlias = Literal["restore", "merge"]
Rule: TypeAlias = merging.Conflict
Format: TypeAlias = Literal["fourfold", "hindsight"]


# Accepting


async def submit_export(
    pool: Pool, tenant: str, bank_id: str, wanted: Wanted, format: Format = "fourfold"
) -> dict[str, Any]:
    """{operation_id, status}. NotFound for an unknown bank or document."""

    async def work(connection: Connection) -> UUID:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if wanted.documents is not None:
            known = await connection.fetch(
                "select document_id from documents where bank = $1 and document_id = any($2)",
                bank,
                list(wanted.documents),
            )
            if missing := set(wanted.documents) - {row[0] for row in known}:
                raise NotFound(f"there is no document {min(missing)[:200]!r}")
        await _room(connection, tenant)
        made, _ = await operations.create(
            connection, bank, EXPORT, {"wanted": asdict(wanted), "format": format}
        )
        return made

    return {"operation_id": str(await write(pool, work)), "status": "pending"}


async def submit_clone(
    pool: Pool, tenant: str, bank_id: str, target: str, include: ArchiveContents
) -> dict[str, Any]:
    """{operation_id, status}. InvalidInput where the target is there, or is the bank itself."""
    if target == bank_id:
        raise InvalidInput("target_bank_id: a bank cannot be cloned into itself", "target_bank_id")
    _some(include)
    building.check_target(target)

    async def work(connection: Connection) -> UUID:
        home = (await banks.head_of(connection, tenant, bank_id)).bank
        await _room(connection, tenant)
        made, _ = await operations.create(
            connection, home, CLONE, {"target_bank_id": target, "include": asdict(include)}
        )
        bank = await building.reserve(connection, tenant, target)
        await building.belongs(connection, bank, home, made)
        return made

    return {"operation_id": str(await write(pool, work)), "status": "pending"}


def _some(include: ArchiveContents) -> None:
    if not (include.data or include.bank_config or include.history):
        raise InvalidInput("include_data, include_bank_config and include_history are all false")


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """An import as it was asked for. target: the bank to make; None: the archive's."""

    mode: Mode = "restore"
    target: str | None = None
    conflict: Rule = "skip"
    include: ArchiveContents = field(default_factory=ArchiveContents)


async def check_import(pool: Pool, tenant: str, bank_id: str, asked: ImportRequest) -> None:
    """What can be said before the archive is here."""
    banks.check_id(bank_id)
    if asked.target is not None:
        building.check_target(asked.target)
    _some(asked.include)
    if asked.mode == "merge" and asked.target is not None:
        raise InvalidInput(
            "target_bank_id: a merge goes into the bank of the address", "target_bank_id"
        )

    async def work(connection: Connection) -> None:
        there = await _exists(connection, tenant, bank_id)
        if asked.mode == "restore" and asked.target is not None:
            if await _exists(connection, tenant, asked.target):
                raise building.taken(asked.target)
            if not there and asked.target != bank_id:
                raise banks.unknown(bank_id)
        await _room(connection, tenant, taken=False)

    await read(pool, work)


async def submit_import(
    pool: Pool,
    tenant: str,
    bank_id: str,
    archive: IO[bytes],
    asked: ImportRequest,
    *,
    name: str = "",
    settings: TransferSettings | None = None,
) -> dict[str, Any]:
    """{operation_id, status} for an archive in an open file, which may go when this returns.

    BadArchive and InvalidInput for what can be seen without unpacking all of it; NotFound for an
    unknown bank that is not itself the target.
    """
    settings = settings or TransferSettings()
    await check_import(pool, tenant, bank_id, asked)
    unpacker = await asyncio.to_thread(Unpacker, archive)
    try:
        _readable(unpacker, asked)
        source, manifest = unpacker.bank_id, unpacker.manifest
    finally:
        unpacker.close()
    target = bank_id if asked.mode == "merge" else (asked.target or source)
    if asked.mode == "restore":
        asked = replace(asked, target=target)
        await check_import(pool, tenant, bank_id, asked)
    await _fits(pool, tenant, 0 if manifest is None else manifest.stored_bytes)
    operation = uuid4()
    key = f"imports/{operation}/{safe(target)}.zip"
    writer = await FileWriter.begin(pool, tenant, key, name or f"{safe(target)}.zip", MEDIA_TYPE)
    try:
        digest = await _upload(writer, archive)

        async def work(connection: Connection) -> None:
            await _room(connection, tenant)
            if asked.mode == "merge":
                home = bank = (await banks.ensure(connection, tenant, bank_id)).bank
            else:
                bank = await building.reserve(connection, tenant, target)
                home = bank
                if target != bank_id:
                    home = (await banks.head_of(connection, tenant, bank_id)).bank
            payload = {
                "mode": asked.mode,
                "target_bank_id": target,
                "document_conflict": asked.conflict,
                "include": asdict(asked.include),
            }
            await operations.create(connection, home, IMPORT, payload, operation_id=operation)
            if asked.mode == "restore":
                await building.belongs(connection, bank, home, operation)
            await files.complete(
                connection, writer, digest, settings.export_ttl_s, bank=home, operation_id=operation
            )

        await write(pool, work)
    except BaseException:
        await asyncio.shield(files.remove(pool, writer.file))
        raise
    return {"operation_id": str(operation), "status": "pending"}


def _readable(unpacker: Unpacker, asked: ImportRequest) -> None:
    """BadArchive for members that an import would need and that are not there."""
    manifest = unpacker.manifest
    if manifest is None:
        reading.check(unpacker)
    elif not unpacker.has("bank.json"):
        raise BadArchive("the archive lacks the part 'bank.json'")
    elif asked.mode == "restore" and not manifest.documents_only:
        _some(asked.include.narrowed(manifest.include))


async def _upload(writer: FileWriter, archive: IO[bytes]) -> bytes:
    digest = hashlib.sha256()

    def part() -> bytes:
        data = archive.read(files.PART_BYTES)
        digest.update(data)
        return data

    await asyncio.to_thread(archive.seek, 0)
    while data := await asyncio.to_thread(part):
        await writer.write(data)
    await writer.flush()
    return digest.digest()


async def _exists(connection: Connection, tenant: str, bank_id: str) -> bool:
    found = await connection.fetchval(
        "select true from banks where tenant_id = $1 and bank_id = $2", tenant, bank_id
    )
    return bool(found)


async def _room(connection: Connection, tenant: str, *, taken: bool = True) -> None:
    """RateLimited where the tenant has one transfer running and as many waiting as may. `taken`:
    the caller's transaction takes a place; two at once do not take the same."""
    if taken:
        await connection.execute(
            "select pg_advisory_xact_lock($1, hashtext(current_schema() || $2))", _LOCK, tenant
        )
    waiting = await connection.fetchval(
        "select count(*) from operations o join banks b using (bank) where b.tenant_id = $1"
        " and o.type = any($2) and o.status in ('pending', 'processing')",
        tenant,
        list(TYPES),
    )
    if waiting > MOST_WAITING:
        raise RateLimited(
            f"one transfer runs and {MOST_WAITING} wait already: come again when one is done", 10.0
        )


async def _fits(pool: Pool, tenant: str, size: int) -> None:
    """TooMuch where what is to come does not fit what the tenant may store."""

    async def work(connection: Connection) -> None:
        row = await connection.fetchrow(
            "select (limits->>'max_stored_bytes')::numeric as most,"
            " (select coalesce(sum(stored_bytes), 0) from banks where tenant_id = $1) as held"
            " from tenants where tenant_id = $1",
            tenant,
        )
        if row is not None and row["most"] and row["held"] + size > row["most"]:
            raise TooMuch(
                f"the tenant may store {row['most']} bytes, and with this bank it would be"
                f" {row['held'] + size}",
                "file",
            )

    await read(pool, work)


def safe(name: str) -> str:
    """A bank's id as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-") or "bank"


# Doing


async def _turn(pool: Pool, claimed: Claim) -> None:
    """Parked while an earlier transfer of the tenant is at work."""
    busy = await read(
        pool,
        lambda connection: connection.fetchval(
            "select exists (select from operations o join banks b using (bank)"
            "  where b.tenant_id = $1 and o.type = any($2) and o.status = 'processing'"
            "  and o.leased_until > now() and o.place < (select place from operations"
            "   where operation_id = $3 and lease = $4))",
            claimed.tenant,
            list(TYPES),
            claimed.operation_id,
            claimed.lease,
        ),
    )
    if busy:
        raise Parked("another transfer of the tenant is at work", TURN_S)


class _Progress:
    """What an operation shows of itself; Conflict where it is not ours any more."""

    def __init__(self, pool: Pool, claimed: Claim) -> None:
        self._pool = pool
        self._claimed = claimed

    async def __call__(self, stage: str, processed: int, total: int) -> None:
        async def work(connection: Connection) -> None:
            at = await connection.fetchval("select now()")
            shown = {
                "stage": stage,
                "at": iso(at),
                "processed": processed,
                "total": total,
                "detail": f"{stage}: {processed} of {total}" if total else f"{stage}: {processed}",
            }
            await operations.proceed(connection, self._claimed, shown)

        await write(self._pool, work)


async def _home(pool: Pool, claimed: Claim) -> int:
    bank = await read(
        pool,
        lambda connection: connection.fetchval(
            "select bank from operations where operation_id = $1 and lease = $2",
            claimed.operation_id,
            claimed.lease,
        ),
    )
    if bank is None:
        raise NotFound("the operation was taken over or cancelled")
    return int(bank)


def _exports(settings: TransferSettings, keys: Sequence[str]) -> Handler:
    async def handle(deps: WriteContext, claimed: Claim) -> None:
        await _turn(deps.pool, claimed)
        pool, payload = deps.pool, claimed.payload
        home = await _home(pool, claimed)
        given = payload["wanted"]
        wanted = Wanted(**{**given, "include": ArchiveContents(**given["include"])})
        name = f"{safe(claimed.bank_id)}.zip"
        key = f"exports/{claimed.operation_id}/{name}"
        writers: list[FileWriter] = []

        async def begin() -> Outlet:
            writers.append(
                await FileWriter.begin(
                    pool, claimed.tenant, key, name, MEDIA_TYPE,
                    bank=home, operation_id=claimed.operation_id,
                )
            )  # fmt: skip
            return writers[-1].write

        report = _Progress(pool, claimed)
        ours = payload["format"] == "fourfold"
        make = partial(export, keys=keys) if ours else writing.export
        try:
            async with asyncio.timeout(settings.export_max_s):
                done = await make(pool, claimed.tenant, claimed.bank_id, wanted, begin, report)
                await writers[-1].flush()
        except TimeoutError:
            raise InvalidInput(
                f"the export took longer than {settings.export_max_s:.0f} seconds (EXPORT_MAX_S):"
                " export large banks with `fourfold bank export --tenant`"
            ) from None

        async def work(connection: Connection) -> None:
            ends = await files.complete(connection, writers[-1], done.sha256, settings.export_ttl_s)
            result = _result(done, key, name, writers[-1].size)
            await operations.finish(connection, claimed, {**result, "expires_at": iso(ends)})

        await write(pool, work)

    return handle


def _result(done: Exported, key: str, name: str, size: int) -> dict[str, Any]:
    return {
        "download_url": f"{DOWNLOAD}{key}",
        "storage_key": key,
        "byte_size": size,
        "filename": name,
        "sha256": done.sha256.hex(),
        "bank_version": done.manifest.bank_version,
        "counts": dict(done.manifest.counts),
    }


@asynccontextmanager
async def _local(pool: Pool, home: int, claimed: Claim) -> AsyncIterator[Path]:
    """The archive of an import as a local file. InvalidInput where it is gone."""
    stored = await files.of_operation(pool, home, claimed.operation_id)
    if stored is None:
        raise InvalidInput("the archive is no longer kept: send it again")
    with tempfile.TemporaryDirectory(prefix="fourfold-import-") as folder:
        path = Path(folder) / "archive.zip"
        with path.open("wb") as out:
            async for data in files.chunks(pool, stored):
                await asyncio.to_thread(out.write, data)
        yield path


async def _imports(keys: Sequence[str], deps: WriteContext, claimed: Claim) -> None:
    await _turn(deps.pool, claimed)
    pool, payload = deps.pool, claimed.payload
    home = await _home(pool, claimed)
    report = _Progress(pool, claimed)
    target, include = payload["target_bank_id"], ArchiveContents(**payload["include"])
    bank = None
    if payload["mode"] == "restore":
        bank = await _reserved(pool, claimed, home, target)
    async with _local(pool, home, claimed) as path:
        unpacker = await asyncio.to_thread(Unpacker, path)
        try:
            manifest = unpacker.manifest
            if bank is not None and manifest is not None and not manifest.documents_only:
                await restore(deps, claimed, unpacker, bank, include, report, keys=keys)
                return
            bundles: BundleArchive
            if manifest is None:
                bundles = reading.Bundles(unpacker, whole=bank is not None)
            else:
                bundles = Staged(unpacker, path.parent)
            rule = payload["document_conflict"]
            await merging.merge(deps, claimed, bundles, target, rule, bank)
        finally:
            unpacker.close()


async def _clones(keys: Sequence[str], deps: WriteContext, claimed: Claim) -> None:
    await _turn(deps.pool, claimed)
    home = await _home(deps.pool, claimed)
    target = claimed.payload["target_bank_id"]
    bank = await _reserved(deps.pool, claimed, home, target)
    include = ArchiveContents(**claimed.payload["include"])
    report = _Progress(deps.pool, claimed)
    await cloning.clone(deps, claimed, home, bank, include, report, keys=keys)


async def _reserved(pool: Pool, claimed: Claim, home: int, target: str) -> int:
    """The bank that the operation builds: reserved when it was accepted, or again where it failed
    since and is tried once more."""

    async def work(connection: Connection) -> int:
        await operations.proceed(connection, claimed)
        row = await building.found(connection, home, claimed.operation_id)
        if row is not None:
            return int(row["bank"])
        bank = await building.reserve(connection, claimed.tenant, target)
        await building.belongs(connection, bank, home, claimed.operation_id)
        return bank

    return await write(pool, work)


def handlers(settings: TransferSettings, keys: Sequence[str] = ()) -> Mapping[str, Handler]:
    """For a worker of their own: nobody's retain is to wait behind a bank. `keys`: those of what
    webhooks keep sealed."""
    return {
        EXPORT: _exports(settings, keys),
        IMPORT: partial(_imports, keys),
        CLONE: partial(_clones, keys),
    }


async def keep_tidy(pool: Pool, period_s: float = 60.0) -> None:
    """Removes files whose time is over and banks that were never finished, until cancelled."""
    while True:
        try:
            await files.let_go(pool)
            await building.sweep(pool)
        except FourfoldError as error:
            log.warning("what transfers leave behind could not be removed: %s", error)
        except Exception:
            log.exception("what transfers leave behind could not be removed")
        await asyncio.sleep(period_s)
