"""PGroonga: Groonga's full text index."""

from __future__ import annotations

from retrieval.keyword.backends.backend import BackendFinding, Connection, KeywordBackend, Prepared
from retrieval.keyword.backends.tokens import pieces


class PGroonga(KeywordBackend):
    """Bigrams of every script; the score counts term occurrences.

    The score is 0 unless the scan goes through the text index. So the text index is the only one
    that can serve the query: sequential scans are off, and the bank is compared in a form that
    the primary key cannot serve.
    """

    name = "pgroonga"
    extensions = ("pgroonga",)
    score = "pgroonga_score(tableoid, ctid)"
    order = "score desc, ordinal"
    session = ("set local enable_seqscan = off",)

    expression = "(text || ' ' || coalesce(context, '') || ' ' || coalesce(text_signals, ''))"

    def index_ddl(self) -> str:
        return (
            f"create index if not exists {self.index} on {self.table} using pgroonga"
            f" ({self.expression}) with (tokenizer = 'TokenBigram',"
            " normalizer = 'NormalizerNFKC150')"
        )

    async def prepare(self, connection: Connection, text: str) -> Prepared | None:
        return pieces(text) or None

    def match(self, bank: str, kind: str) -> str:
        return (
            f"{self.expression} &@~ (select string_agg(pgroonga_query_escape(piece), ' OR ')"
            " from unnest($2::text[]) piece)\n"
            f"    and bank + 0 = {bank} and fact_type = {kind}"
        )

    def allowed(self, parameter: str) -> str:
        return f"ordinal + 0 = any({parameter}::int[])"

    async def doctor_more(self, connection: Connection) -> list[BackendFinding]:
        version = await connection.fetchval("select current_setting('pgroonga.libgroonga_version')")
        modern = tuple(int(part) for part in str(version).split(".")[:2] if part.isdigit()) >= (
            13,
            0,
        )
        return [
            BackendFinding(
                modern,
                f"Groonga {version} has NormalizerNFKC150",
                "upgrade Groonga to 13 or later",
            )
        ]
