"""A whole server as one file: PostgreSQL's own dump, and what it holds in words, from one snapshot.

The file is a ZIP of `database.dump` and `backup.json`. A backup is as good as its last restore:
`compare` counts and hashes every table again, wherever a backup was restored to.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import orjson

from retrieval.errors import Conflict, InvalidInput, Unavailable
from retrieval.lifecycle.transfer.exporting import producer
from retrieval.store.database import migrate
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.database.programs import connection as address
from retrieval.store.database.programs import program, said

DUMP: Final = "database.dump"
STATEMENT: Final = "backup.json"
FORMAT: Final = "fourfold.backup"
STATEMENT_S: Final = 6 * 3600.0
"""Most seconds of hashing one table."""
_BLOCK: Final = 1 << 20
_UNLOGGED: Final = ("document_turns", "ingress_heartbeats")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,62}")


class BadBackup(InvalidInput):
    """A file that is no backup, or is damaged."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What `backup.json` says. tables: name -> [rows, hash]; banks: what each holds."""

    content: Mapping[str, Any]

    @property
    def schema(self) -> str:
        return str(self.content["schema"])

    @property
    def number(self) -> int:
        return int(self.content["versions"]["schema"])

    @property
    def tables(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.content["tables"]
        return found


async def backup(pool: Pool, dsn: str, file: Path) -> Backup:
    """Writes the backup; the server goes on. The file appears when it is whole, for its owner only.

    Unavailable where the dump fails.
    """
    partial = file.with_name(f".{file.name}.partial")

    async def work(connection: Connection) -> Backup:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("set local statement_timeout = 0")
            await connection.execute("set local idle_in_transaction_session_timeout = 0")
            snapshot = await connection.fetchval("select pg_export_snapshot()")
            content = await _statement(connection, pool.schema)
            digest, size = await asyncio.to_thread(_dump, dsn, pool.schema, snapshot, partial)
            content |= {"dump": {"name": DUMP, "bytes": size, "sha256": digest}}
            await asyncio.to_thread(_close, partial, content)
            return Backup(content)

    try:
        made = await read(pool, work)
        await asyncio.to_thread(os.replace, partial, file)
        return made
    finally:
        with suppress(OSError):
            await asyncio.to_thread(partial.unlink)


async def _statement(connection: Connection, schema: str) -> dict[str, Any]:
    tables = await digests(connection)
    banks = await connection.fetch(
        "select tenant_id, bank_id, version, vector_set, stored_bytes,"
        " (select count(*) from memory_units m where m.bank = b.bank) as memories,"
        " (select count(*) from documents d where d.bank = b.bank) as documents"
        " from banks b where state = 'open' order by bank"
    )
    return {
        "format": FORMAT,
        "version": 1,
        "made_at": (await connection.fetchval("select now()")).isoformat(),
        "schema": schema,
        "versions": {
            "fourfold": producer(),
            "schema": await connection.fetchval("select max(number) from schema_migrations"),
            "postgresql": await connection.fetchval("show server_version"),
        },
        "models": sorted({row["vector_set"] for row in banks if row["vector_set"]}),
        "banks": [dict(row) for row in banks],
        "tables": tables,
        "digest": _digest(tables),
    }


async def digests(connection: Connection) -> dict[str, Any]:
    """table -> [rows, hash of all of them], whatever their order."""
    found: dict[str, Any] = {}
    for table in await _tables(connection):
        row = await connection.fetchrow(
            f"select count(*) as n, coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text"
            f' as hash from "{table}" t',
            timeout=STATEMENT_S,
        )
        found[table] = [row["n"], row["hash"]]
    return found


async def _tables(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "select relname from pg_class where relnamespace = current_schema()::regnamespace"
        " and relkind = 'r' and relpersistence = 'p' order by relname"
    )
    ours = {*migrate.tables(), "schema_migrations"} - set(_UNLOGGED)
    return [row[0] for row in rows if row[0] in ours]


def _digest(tables: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(tables, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _dump(dsn: str, schema: str, snapshot: str, file: Path) -> tuple[str, int]:
    """Runs pg_dump into the file; (SHA-256, bytes) of the dump."""
    where, environment = address(dsn)
    command = [
        program("pg_dump"), "--format=custom", "--no-unlogged-table-data", "--no-owner",
        "--no-privileges", f"--snapshot={snapshot}", f"--schema={schema}", f"--dbname={where}",
    ]  # fmt: skip
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo(DUMP)
        info.external_attr = 0o600 << 16
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
            ) as process,
            archive.open(info, "w", force_zip64=True) as member,
        ):
            assert process.stdout is not None
            assert process.stderr is not None
            while block := process.stdout.read(_BLOCK):
                digest.update(block)
                size += len(block)
                member.write(block)
            words = process.stderr.read()
        if process.returncode:
            done = subprocess.CompletedProcess(command, process.returncode, b"", words)
            raise Unavailable("pg_dump", said(done))
    return digest.hexdigest(), size


def _close(file: Path, content: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        info = zipfile.ZipInfo(STATEMENT)
        info.external_attr = 0o600 << 16
        archive.writestr(info, orjson.dumps(content, str, orjson.OPT_INDENT_2))
    with file.open("rb") as written:
        os.fsync(written.fileno())


def opened(file: Path) -> Backup:
    """What a file says of itself; BadBackup for one that is none."""
    try:
        with zipfile.ZipFile(file) as archive:
            content = orjson.loads(archive.read(STATEMENT))
            archive.getinfo(DUMP)
        if content["format"] != FORMAT or content["version"] != 1:
            raise BadBackup(
                f"{file.name} is a backup of version {content.get('version')}, this program reads 1"
            )
        if content["digest"] != _digest(content["tables"]):
            raise BadBackup(f"{file.name} does not agree with itself: its digest is another")
        if not _SCHEMA.fullmatch(content["schema"]):
            raise BadBackup(f"{file.name} names a schema that cannot be")
        found = Backup(content)
        _ = found.number, content["dump"]["sha256"]
        return found
    except OSError as error:
        raise BadBackup(f"{file} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, orjson.JSONDecodeError) as error:
        if isinstance(error, BadBackup):
            raise
        raise BadBackup(f"{file.name} is no backup, or it is cut off") from None


def verify(file: Path) -> Backup:
    """Reads all of it: hash and table of contents. BadBackup."""
    found = opened(file)
    digest = hashlib.sha256()
    listed = subprocess.Popen(
        [program("pg_restore"), "--list"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _feed(file, listed.stdin, digest)
        words = _words(listed)
    except (zipfile.BadZipFile, EOFError):
        listed.kill()
        _words(listed)
        raise BadBackup(f"{file.name} is damaged: {DUMP} cannot be read") from None
    if digest.hexdigest() != found.content["dump"]["sha256"]:
        raise BadBackup(f"{file.name} is damaged: the checksum of {DUMP} is another")
    if listed.returncode:
        done = subprocess.CompletedProcess([], listed.returncode, b"", words)
        raise BadBackup(f"{file.name} holds no dump: {said(done)}")
    return found


def _words(process: subprocess.Popen[bytes]) -> bytes:
    """What a program says of itself until its end; its input is closed."""
    assert process.stderr is not None
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    words = process.stderr.read()
    process.stderr.close()
    process.wait()
    return words


def _feed(file: Path, target: IO[bytes] | None, digest: Any = None) -> None:
    """The dump into a program's standard input, which may have read enough before its end."""
    assert target is not None
    with zipfile.ZipFile(file) as archive, archive.open(DUMP) as member:
        while block := member.read(_BLOCK):
            if digest is not None:
                digest.update(block)
            if not target.closed:
                try:
                    target.write(block)
                except BrokenPipeError:
                    with suppress(BrokenPipeError):
                        target.close()
    if not target.closed:
        with suppress(BrokenPipeError):
            target.close()


async def restore(file: Path, pool: Pool, dsn: str, *, replace: bool = False) -> Backup:
    """Puts the backup into a database, in one transaction, and brings it to this program's schema.

    Conflict for a database with banks in it, unless it is to be replaced, and while a server works
    on it; SchemaTooNew for a backup of a later program.
    """
    found = await asyncio.to_thread(verify, file)
    newest = migrate.known()[-1][0]
    if found.number > newest:
        raise migrate.SchemaTooNew(
            f"the backup has schema {found.number}, this program knows up to {newest}: use the"
            " newer version of the program"
        )
    await read(pool, lambda connection: _may(connection, replace))
    await asyncio.to_thread(_restore, file, dsn, found.schema, pool.schema)
    await pool.expire_connections()
    return found


async def _may(connection: Connection, replace: bool) -> None:
    there = await connection.fetchval("select to_regclass('banks') is not null")
    if not there:
        return
    if await connection.fetchval("select exists (select from banks)") and not replace:
        raise Conflict("the database holds banks: give --replace to replace all of them")
    alive = 0
    if await connection.fetchval("select to_regclass('ingress_heartbeats') is not null"):
        alive = await connection.fetchval(
            "select count(*) from ingress_heartbeats where seen > now() - interval '30 s'"
        )
    working = await connection.fetchval(
        "select count(*) from operations where status = 'processing' and leased_until > now()"
    )
    if alive or working:
        raise Conflict(
            "a server works on this database: stop it first"
            f" ({alive} processes, {working} operations at work)"
        )


def _restore(file: Path, dsn: str, schema: str, into: str) -> None:
    """Feeds the dump as SQL to psql, behind what removes our tables, all in one transaction."""
    if schema != into:
        raise InvalidInput(
            f"the backup is of schema {schema!r}: set DATABASE_SCHEMA={schema} for the restore"
        )
    where, environment = address(dsn)
    script = subprocess.Popen(
        [program("pg_restore"), f"--schema={schema}", "--no-owner", "--no-privileges",
         "--file=-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    run = subprocess.Popen(
        [program("psql"), "--no-psqlrc", "--quiet", "--single-transaction",
         "--set=ON_ERROR_STOP=1", f"--dbname={where}", "--file=-"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    from threading import Thread

    feeding = Thread(target=_feed, args=(file, script.stdin), daemon=True)
    words: list[bytes] = []
    listening = Thread(target=lambda: words.append(run.stderr.read()), daemon=True)  # type: ignore[union-attr]
    feeding.start()
    listening.start()
    assert script.stdout is not None
    assert script.stderr is not None
    assert run.stdin is not None
    try:
        run.stdin.write(_clearing(schema).encode())
        while block := script.stdout.read(_BLOCK):
            run.stdin.write(block)
    except BrokenPipeError:
        script.kill()
    broken = script.stderr.read()
    script.stdout.close()
    script.stderr.close()
    feeding.join()
    if script.wait() and not run.poll():
        # psql has not seen the end of the transaction: it must not.
        run.kill()
    with suppress(BrokenPipeError):
        run.stdin.close()
    run.wait()
    listening.join()
    assert run.stderr is not None
    run.stderr.close()
    if run.returncode or script.returncode:
        text = (words[0] if words else b"") or broken
        done = subprocess.CompletedProcess([], run.returncode or 1, b"", text)
        raise Unavailable("the restore", said(done))


def _clearing(schema: str) -> str:
    """What makes room for our tables: nothing of anybody else's in that schema goes."""
    tables = [*migrate.tables(), "schema_migrations", *_UNLOGGED]
    functions = {
        name
        for _, _, sql in migrate.known()
        for name in re.findall(r"create (?:or replace )?function (\w+)", sql)
    } | {f"count_{table}" for table in ("memory_units", "documents", "chunks")}
    return _CLEARING.format(
        schema=schema,
        tables=", ".join(f"'{name}'" for name in sorted(set(tables))),
        functions=", ".join(f"'{name}'" for name in sorted(functions)),
    )


_CLEARING: Final = """
create schema if not exists "{schema}";
create extension if not exists pg_trgm with schema public;
create extension if not exists btree_gin with schema public;
do $$
declare
    found record;
begin
    for found in select c.oid::regclass as name from pg_class c
        where c.relnamespace = '"{schema}"'::regnamespace and c.relkind in ('r', 'p')
        and (c.relname in ({tables}) or c.relname like 'keyword_%')
    loop
        execute 'drop table if exists ' || found.name || ' cascade';
    end loop;
    for found in select p.oid::regprocedure as name from pg_proc p
        where p.pronamespace = '"{schema}"'::regnamespace
        and (p.proname in ({functions}) or p.proname like 'keyword_%')
    loop
        execute 'drop function ' || found.name || ' cascade';
    end loop;
end $$;
"""


async def compare(pool: Pool, made: Backup) -> list[str]:
    """What of a restored database is not as the backup says, in sentences; [] where all is."""
    now = await read(pool, digests)
    wrong = []
    for table, (rows, hash) in made.tables.items():
        have = now.get(table)
        if have is None:
            wrong.append(f"table {table} is not there")
        elif have[0] != rows:
            wrong.append(f"table {table} has {have[0]} rows, the backup {rows}")
        elif have[1] != hash:
            wrong.append(f"the rows of table {table} are not those of the backup")
    return wrong
