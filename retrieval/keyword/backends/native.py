"""PostgreSQL's own text search: tsvector, GIN and ts_rank_cd."""

from __future__ import annotations

import re
from collections.abc import Sequence

import asyncpg

from retrieval.errors import InvalidInput
from retrieval.keyword.backends.backend import BackendFinding, Connection, KeywordBackend, Prepared
from retrieval.keyword.backends.tokens import words

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RAREST = """
select q.place - 1, max(coalesce(common.share, 0))
from unnest($1::text[]) with ordinality q(word, place)
cross join lateral unnest(tsvector_to_array(to_tsvector({config}, q.word))) l(lexeme)
left join (
    select m.lexeme, m.share from pg_stats, unnest(
        most_common_elems::text::text[], most_common_elem_freqs) m(lexeme, share)
    where schemaname = current_schema() and tablename = $2 and attname = 'search_vector'
) common on common.lexeme = l.lexeme
group by q.place order by 2, 1 limit $3"""


class Native(KeywordBackend):
    """Cover density, not BM25: no idf. Finds nothing inside words of scripts without spaces.

    language: a text search configuration of the server.
    max_terms: a query keeps at most this many words, 0: all.
    selective: keep the rarest ones by the planner's statistics instead of the first ones.
    """

    name = "native"
    columns = ("search_vector tsvector not null",)
    derived = "search_vector"
    score = "ts_rank_cd(search_vector, $2::tsquery)"
    order = "score desc, ordinal"

    def __init__(
        self, language: str = "english", *, max_terms: int = 16, selective: bool = True
    ) -> None:
        if not _IDENTIFIER.fullmatch(language):
            raise InvalidInput(
                f"{language!r} cannot be a text search configuration: use letters, digits and"
                " underscores, no digit first",
                "text_search_extension_native_language",
            )
        self.language = language
        self.max_terms = max_terms
        self.selective = selective

    @property
    def config(self) -> str:
        return f"'{self.language}'::regconfig"

    def index_ddl(self) -> str:
        return f"create index if not exists {self.index} on {self.table} using gin (search_vector)"

    def derive(self, row: str) -> str:
        text = f"concat_ws(' ', {row}.text, {row}.context, {row}.text_signals)"
        return f"to_tsvector({self.config}, {text})"

    async def prepare(self, connection: Connection, text: str) -> Prepared | None:
        tokens = words(text)
        if self.max_terms and len(tokens) > self.max_terms:
            tokens = await self._chosen(connection, tokens)
        if not tokens:
            return None
        # Word characters only: none is an operator or a quote of the query language.
        query: str = await connection.fetchval(
            f"select to_tsquery({self.config}, $1)::text",
            " | ".join(f"'{word}'" for word in tokens),
        )
        return query or None

    async def _chosen(self, connection: Connection, tokens: Sequence[str]) -> list[str]:
        """The rarest words, in reading order; the first ones where statistics do not help."""
        first = list(tokens[: self.max_terms])
        if not self.selective:
            return first
        try:
            async with connection.transaction():
                rows = await connection.fetch(
                    _RAREST.format(config=self.config), list(tokens), self.table, self.max_terms
                )
        except asyncpg.PostgresError:
            return first
        return [tokens[place] for place in sorted(row[0] for row in rows)] or first

    def match(self, bank: str, kind: str) -> str:
        return f"{super().match(bank, kind)} and search_vector @@ $2::tsquery"

    async def doctor_more(self, connection: Connection) -> list[BackendFinding]:
        known = await connection.fetchval(
            "select exists (select from pg_ts_config where cfgname = $1)", self.language.lower()
        )
        return [
            BackendFinding(
                known,
                f"text search configuration {self.language} exists",
                f"create it, or choose one of \\dF for the language (now {self.language})",
            )
        ]
