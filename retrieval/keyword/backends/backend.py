"""What a keyword back-end is: a table of its own beside the memories, and one query over it.

Back-ends rank inside Postgres with what an extension offers. They differ in the column and index
they need and in match, score and order; everything else stands here. User text always travels as
a parameter and never becomes query syntax.

Their statistics are those of all banks in the table, and their ties are cut in the index's order;
the default arm (retrieval.keyword.bm25) has neither limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, TypeAlias

import asyncpg
import numpy as np

from retrieval.types import FactType, Hits, Ints, no_hits

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

Prepared: TypeAlias = str | list[str]
"""A query text as a back-end takes it: one string, or the words it may hold."""

REINDEX_BATCH = 2000


@dataclass(frozen=True, slots=True)
class Statement:
    """`session` runs first in the same transaction; `sql` gives fact_type, ordinal, score."""

    sql: str
    parameters: tuple[Any, ...]
    session: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackendFinding:
    """One line of `doctor`. `remedy` says what to do when it is not ok."""

    ok: bool
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    done: int
    total: int


class KeywordBackend(ABC):
    """One way to rank by keywords inside Postgres.

    Scores: higher is better; a result always has a score above 0, and at least the floor where
    the floor is above 0. All methods use the connection given and hold no state.
    """

    name: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]] = ()
    preload: ClassVar[tuple[str, ...]] = ()
    """What must stand in shared_preload_libraries."""

    @property
    def table(self) -> str:
        return f"keyword_{self.name}"

    @property
    def index(self) -> str:
        return f"{self.table}_match"

    # Data definition and the write side

    columns: ClassVar[tuple[str, ...]] = ()
    """Definitions of the columns beyond those that every back-end has."""

    @abstractmethod
    def index_ddl(self) -> str: ...

    def setup_ddl(self) -> Sequence[str]:
        """What the extensions need before the table."""
        return [f"create extension if not exists {name} cascade" for name in self.extensions]

    def ddl(self) -> Sequence[str]:
        """Statements that make the table and its index; each may be run again."""
        columns = (
            "bank bigint not null references banks on delete cascade",
            "ordinal int not null",
            "fact_type smallint not null",
            "text text not null",
            "context text",
            "text_signals text",
            *self.columns,
            "primary key (bank, ordinal)",
        )
        return [
            *self.setup_ddl(),
            f"create table if not exists {self.table} (\n    " + ",\n    ".join(columns) + "\n)",
            self.index_ddl(),
        ]

    derived: ClassVar[str] = ""
    """Name of a column that is filled on write."""

    def derive(self, row: str) -> str:
        """The expression that fills it."""
        raise NotImplementedError

    def insert(self, source: str) -> str:
        """Inserts the rows of `source`, a query with the common columns; skips known ones."""
        names = ["bank", "ordinal", "fact_type", "text", "context", "text_signals"]
        values = [f"w.{name}" for name in names]
        if self.derived:
            names.append(self.derived)
            values.append(self.derive("w"))
        return (
            f"insert into {self.table} ({', '.join(names)})\n"
            f"select {', '.join(values)}\n"
            f"from ({source}) w\non conflict (bank, ordinal) do nothing"
        )

    def sync_ddl(self) -> Sequence[str]:
        """Statements that keep the table in line with the memories, inside the transaction of every
        write, whichever process writes; each may be run again. For tables that are not
        distributed: Citus has no such triggers."""
        columns = "bank, ordinal, fact_type, text, context, text_signals"
        known = ("ordinal", "fact_type", "text", "context", "text_signals")
        before, after = (", ".join(f"{side}.{name}" for name in known) for side in ("o", "n"))
        changed = f"before o join after n using (bank, id) where ({before}) is distinct from"
        changed = f"{changed} ({after})"
        # Negative ordinals stand for a moment while a bank is given new ones.
        added = self.insert(f"select {columns} from after where ordinal >= 0")
        moved = self.insert(f"select bank, {after} from {changed} and n.ordinal >= 0")
        gone = f"delete from {self.table} k using before o where (k.bank, k.ordinal) ="
        left = f"delete from {self.table} k using (select bank, o.ordinal from {changed}) o"
        return [
            *self._trigger("insert", "new table as after", added),
            *self._trigger(
                "update",
                "old table as before new table as after",
                f"{left} where (k.bank, k.ordinal) = (o.bank, o.ordinal)",
                moved,
            ),
            *self._trigger("delete", "old table as before", f"{gone} (o.bank, o.ordinal)"),
        ]

    def _trigger(self, event: str, tables: str, *statements: str) -> Sequence[str]:
        name = f"{self.table}_{event}"
        body = ";\n".join(statements)
        return (
            f"create or replace function {name}() returns trigger language plpgsql as $sync$\n"
            f"begin\n{body};\nreturn null;\nend $sync$",
            f"create or replace trigger {name} after {event} on memory_units"
            f" referencing {tables} for each statement execute function {name}()",
        )

    @property
    def signature(self) -> str:
        """Names everything that the stored rows depend on: another one wants a new table."""
        statements = "\n".join((*self.ddl(), *self.sync_ddl()))
        return f"{self.name} {blake2b(statements.encode(), digest_size=8).hexdigest()}"

    # The query side. Parameters: $1 bank, $2 what `prepare` made, $3 limit, $4 floor, and $5 the
    # ordinals where there is a filter.

    async def prepare(self, connection: Connection, text: str) -> Prepared | None:
        """The value of $2 for this query text; None where nothing can match."""
        return text if text.strip() else None

    session: ClassVar[tuple[str, ...]] = ()
    """Settings for the transaction of a query."""

    @property
    @abstractmethod
    def score(self) -> str:
        """The score of a row, higher is better."""

    @property
    @abstractmethod
    def order(self) -> str:
        """Best first, in the form that the index understands."""

    def match(self, bank: str, kind: str) -> str:
        """The condition on bank, fact type and text."""
        return f"bank = {bank} and fact_type = {kind}"

    def allowed(self, parameter: str) -> str:
        return f"ordinal = any({parameter}::int[])"

    def statement(
        self,
        bank: int,
        prepared: Prepared,
        types: Sequence[FactType],
        limit: int,
        floor: float = 0.0,
        allowed: Ints | None = None,
    ) -> Statement:
        """One query for all types, each with its own order and cut; the filter comes first."""
        filtered = "" if allowed is None else f" and {self.allowed('$5')}"
        parts = [
            f"(select {int(kind)}::smallint fact_type, ordinal, score from (\n"
            f"  select ordinal, {self.score} score from {self.table} k\n"
            f"  where {self.match('$1::bigint', str(int(kind)))}{filtered}\n"
            f"  order by {self.order} limit $3::int) best\n"
            "where score > 0 and ($4::float8 <= 0 or score >= $4))"
            for kind in types
        ]
        sql = "\nunion all\n".join(parts) + "\norder by fact_type, score desc, ordinal"
        filters = () if allowed is None else ([int(ordinal) for ordinal in allowed],)
        return Statement(sql, (bank, prepared, limit, floor, *filters), self.session)

    async def search(
        self,
        connection: Connection,
        bank: int,
        text: str,
        types: Sequence[FactType],
        limit: int,
        *,
        floor: float = 0.0,
        allowed: Ints | None = None,
    ) -> dict[FactType, Hits]:
        """The best `limit` memories of each type. allowed: the ordinals a filter leaves."""
        found: dict[FactType, Hits] = dict.fromkeys(types, no_hits())
        prepared = await self.prepare(connection, text)
        if prepared is None or limit <= 0 or (allowed is not None and not len(allowed)):
            return found
        statement = self.statement(bank, prepared, types, limit, floor, allowed)
        async with connection.transaction():
            for setting in statement.session:
                await connection.execute(setting)
            rows = await connection.fetch(statement.sql, *statement.parameters)
        for kind in types:
            mine = [row for row in rows if row["fact_type"] == kind]
            found[kind] = Hits(
                np.array([row["ordinal"] for row in mine], np.int32),
                np.array([row["score"] for row in mine], np.float32),
            )
        return found

    # Upkeep

    async def doctor(self, connection: Connection) -> list[BackendFinding]:
        """What this back-end needs and whether it is there, in the order to put it right."""
        findings = [await self._extension(connection, name) for name in self.extensions]
        for library in self.preload:
            loaded = await connection.fetchval(
                "select $1 = any(string_to_array(replace(current_setting("
                "'shared_preload_libraries'), ' ', ''), ','))",
                library,
            )
            findings.append(
                BackendFinding(
                    bool(loaded),
                    f"shared_preload_libraries has {library}",
                    f"add {library} to shared_preload_libraries and restart PostgreSQL",
                )
            )
        if all(finding.ok for finding in findings):
            findings += await self.doctor_more(connection)
        state = await connection.fetchrow(
            "select to_regclass($1) is not null made,"
            " (select indisvalid from pg_index where indexrelid = to_regclass($2)) valid",
            self.table,
            self.index,
        )
        assert state is not None
        make = f"fourfold reindex --keyword {self.name}"
        findings.append(
            BackendFinding(state["made"], f"table {self.table} exists", f"run `{make}`")
        )
        findings.append(
            BackendFinding(bool(state["valid"]), f"index {self.index} is valid", f"run `{make}`")
        )
        if state["made"]:
            absent = await self.missing(connection)
            findings.append(
                BackendFinding(
                    absent == 0, f"{absent} memories lack a row in {self.table}", f"run `{make}`"
                )
            )
        return findings

    async def doctor_more(self, connection: Connection) -> list[BackendFinding]:
        return []

    async def _extension(self, connection: Connection, name: str) -> BackendFinding:
        version = await connection.fetchval(
            "select coalesce((select extversion from pg_extension where extname = $1),"
            " (select 'not created' from pg_available_extensions where name = $1))",
            name,
        )
        if version is None:
            return BackendFinding(
                False, f"extension {name} is not installed on the server", f"install {name}"
            )
        if version == "not created":
            return BackendFinding(
                False,
                f"extension {name} is not in this database",
                f"run: create extension {name} cascade",
            )
        return BackendFinding(True, f"extension {name} {version}")

    async def missing(self, connection: Connection) -> int:
        """How many memories of all banks have no row here: above 0, a switch needs `reindex`."""
        count: int = await connection.fetchval(
            f"select count(*) from memory_units m where ordinal is not null and not exists"
            f" (select from {self.table} k where k.bank = m.bank and k.ordinal = m.ordinal)"
        )
        return count

    async def reindex(
        self, connection: Connection, bank: int, batch: int = REINDEX_BATCH
    ) -> AsyncGenerator[BuildProgress, None]:
        """Brings the bank's rows in line with its memories; progress after every batch.

        Each batch is a transaction under the lock of the bank's row, so writes go on between
        batches and none is missed. May be stopped and run again at any time.
        """
        total: int = await connection.fetchval(
            "select count(*) from memory_units where bank = $1 and ordinal is not null", bank
        )
        async with connection.transaction():
            await connection.execute("select from banks where bank = $1 for update", bank)
            await connection.execute(
                f"delete from {self.table} k where bank = $1 and not exists (select from"
                " memory_units m where m.bank = k.bank and m.ordinal = k.ordinal)",
                bank,
            )
        done, last = 0, -1
        while True:
            async with connection.transaction():
                await connection.execute("select from banks where bank = $1 for update", bank)
                step = await connection.fetchrow(
                    "select max(ordinal) last, count(*) n from (select ordinal from memory_units"
                    " where bank = $1 and ordinal > $2 order by ordinal limit $3) s",
                    bank,
                    last,
                    batch,
                )
                assert step is not None
                if not step["n"]:
                    break
                await connection.execute(
                    self.insert(
                        "select bank, ordinal, fact_type, text, context, text_signals from"
                        " memory_units where bank = $1 and ordinal > $2 and ordinal <= $3"
                    ),
                    bank,
                    last,
                    step["last"],
                )
                last = step["last"]
            done += step["n"]
            yield BuildProgress(done, max(total, done))
