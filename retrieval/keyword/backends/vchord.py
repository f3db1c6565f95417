"""TensorChord's VectorChord-bm25, with pg_tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from retrieval.keyword.backends.backend import BackendFinding, Connection, KeywordBackend

_TOKENIZER: Final = "llmlingua2"


class VChord(KeywordBackend):
    """BM25 over model tokens; every language the tokenizer's model knows."""

    name = "vchord"
    extensions = ("pg_tokenizer", "vchord_bm25")
    preload = ("pg_tokenizer", "vchord_bm25")
    columns = ("search_vector bm25_catalog.bm25vector not null",)
    derived = "search_vector"
    # Without a limit of the index: it would cut to 100 rows before bank, type and filter.
    session = ("set local bm25_catalog.bm25_limit = -1",)

    def setup_ddl(self) -> Sequence[str]:
        return [
            *super().setup_ddl(),
            f"""do $$ begin
    perform tokenizer_catalog.tokenize('ready', '{_TOKENIZER}');
exception when others then
    perform tokenizer_catalog.create_tokenizer('{_TOKENIZER}', 'model = "{_TOKENIZER}"');
end $$""",
        ]

    def index_ddl(self) -> str:
        return (
            f"create index if not exists {self.index} on {self.table}"
            " using bm25 (search_vector bm25_catalog.bm25_ops)"
        )

    def derive(self, row: str) -> str:
        return (
            f"tokenizer_catalog.tokenize(concat_ws(' ', {row}.text, {row}.context,"
            f" {row}.text_signals), '{_TOKENIZER}')::bm25_catalog.bm25vector"
        )

    @property
    def _distance(self) -> str:
        return (
            f"search_vector operator(bm25_catalog.<&>) bm25_catalog.to_bm25query('{self.index}',"
            f" tokenizer_catalog.tokenize($2::text, '{_TOKENIZER}')::bm25_catalog.bm25vector)"
        )

    @property
    def score(self) -> str:
        return f"-({self._distance})"

    @property
    def order(self) -> str:
        return self._distance

    async def doctor_more(self, connection: Connection) -> list[BackendFinding]:
        try:
            async with connection.transaction():
                await connection.execute(
                    "select tokenizer_catalog.tokenize('ready', $1)", _TOKENIZER
                )
        except asyncpg.PostgresError as error:
            return [BackendFinding(False, f"tokenizer {_TOKENIZER}: {error}", self.setup_ddl()[-1])]
        return [BackendFinding(True, f"tokenizer {_TOKENIZER} works")]
