"""ParadeDB's pg_search: BM25 by Tantivy."""

from __future__ import annotations

from retrieval.keyword.backends.backend import BackendFinding, Connection, KeywordBackend
from retrieval.keyword.backends.tokenizer import tokenizer_cast

_FIELDS = ("text", "context", "text_signals")


class PgSearch(KeywordBackend):
    """BM25 of three fields, each with its own statistics, added. tokenizer: see tokenizer.py."""

    name = "pg_search"
    extensions = ("pg_search",)
    columns = ("id bigint generated always as identity unique",)  # the index wants one key column
    score = "paradedb.score(id)"
    order = "score desc, ordinal"

    def __init__(self, tokenizer: str = "") -> None:
        self.cast = tokenizer_cast(tokenizer)

    def index_ddl(self) -> str:
        fields = [f"({field}::{self.cast})" if self.cast else field for field in _FIELDS]
        return (
            f"create index if not exists {self.index} on {self.table} using bm25"
            f" (id, bank, fact_type, ordinal, {', '.join(fields)}) with (key_field = 'id')"
        )

    def match(self, bank: str, kind: str) -> str:
        # Conditions beside the text would add to the score: they are made constants of 0.
        fields = ", ".join(f"paradedb.match('{field}', $2::text)" for field in _FIELDS)
        return (
            f"id @@@ paradedb.boolean(must => array[\n"
            f"    paradedb.boolean(should => array[{fields}]),\n"
            f"    paradedb.const_score(0, paradedb.term('bank', {bank})),\n"
            f"    paradedb.const_score(0, paradedb.term('fact_type', {kind}::smallint))])"
        )

    def allowed(self, parameter: str) -> str:
        return f"ordinal + 0 = any({parameter}::int[])"

    async def doctor_more(self, connection: Connection) -> list[BackendFinding]:
        if not self.cast:
            return []
        kind = self.cast.removeprefix("pdb.").partition("(")[0]
        known = await connection.fetchval("select to_regtype('pdb.' || $1::text) is not null", kind)
        return [
            BackendFinding(
                known,
                f"this pg_search has the tokenizer {kind}",
                "upgrade pg_search, or choose another tokenizer",
            )
        ]
