"""Timescale's pg_textsearch: BM25 on PostgreSQL pages."""

from __future__ import annotations

from retrieval.keyword.backends.backend import KeywordBackend


class PgTextsearch(KeywordBackend):
    """BM25 over text and context, English.

    The index takes a column, not an expression, so the text lies in a generated column that
    score, order and index all name.
    """

    name = "pg_textsearch"
    extensions = ("pg_textsearch",)
    preload = ("pg_textsearch",)
    columns = ("body text generated always as (text || ' ' || coalesce(context, '')) stored",)

    def index_ddl(self) -> str:
        return (
            f"create index if not exists {self.index} on {self.table} using bm25 (body)"
            " with (text_config = 'english')"
        )

    @property
    def _distance(self) -> str:
        return f"body <@> to_bm25query($2::text, '{self.index}')"

    @property
    def score(self) -> str:
        return f"-({self._distance})"

    @property
    def order(self) -> str:
        return self._distance
