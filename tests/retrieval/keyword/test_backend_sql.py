"""The SQL of the back-ends that no server here can run, word for word, and their settings."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.errors import InvalidInput
from retrieval.keyword.backends import NAMES, PGroonga, VChord, make
from retrieval.keyword.backends.tokenizer import tokenizer_cast
from retrieval.keyword.backends.tokens import pieces, words
from retrieval.types import FactType

pytestmark = pytest.mark.unit

TABLE = """create table if not exists keyword_{name} (
    bank bigint not null references banks on delete cascade,
    ordinal int not null,
    fact_type smallint not null,
    text text not null,
    context text,
    text_signals text,{column}
    primary key (bank, ordinal)
)"""


def test_vchord_ddl() -> None:
    extension, bm25, tokenizer, table, index = VChord().ddl()
    assert extension == "create extension if not exists pg_tokenizer cascade"
    assert bm25 == "create extension if not exists vchord_bm25 cascade"
    assert "create_tokenizer('llmlingua2', 'model = \"llmlingua2\"')" in tokenizer
    column = "\n    search_vector bm25_catalog.bm25vector not null,"
    assert table == TABLE.format(name="vchord", column=column)
    assert index == (
        "create index if not exists keyword_vchord_match on keyword_vchord"
        " using bm25 (search_vector bm25_catalog.bm25_ops)"
    )


def test_vchord_write() -> None:
    assert VChord().insert("select 1") == (
        "insert into keyword_vchord"
        " (bank, ordinal, fact_type, text, context, text_signals, search_vector)\n"
        "select w.bank, w.ordinal, w.fact_type, w.text, w.context, w.text_signals,"
        " tokenizer_catalog.tokenize(concat_ws(' ', w.text, w.context, w.text_signals),"
        " 'llmlingua2')::bm25_catalog.bm25vector\n"
        "from (select 1) w\n"
        "on conflict (bank, ordinal) do nothing"
    )


def test_vchord_query() -> None:
    query = "drop table '; kiln"
    statement = VChord().statement(7, query, (FactType.EXPERIENCE,), 30, 0.5)
    distance = (
        "search_vector operator(bm25_catalog.<&>)"
        " bm25_catalog.to_bm25query('keyword_vchord_match',"
        " tokenizer_catalog.tokenize($2::text, 'llmlingua2')::bm25_catalog.bm25vector)"
    )
    assert statement.sql == (
        "(select 1::smallint fact_type, ordinal, score from (\n"
        f"  select ordinal, -({distance}) score from keyword_vchord k\n"
        "  where bank = $1::bigint and fact_type = 1\n"
        f"  order by {distance} limit $3::int) best\n"
        "where score > 0 and ($4::float8 <= 0 or score >= $4))\n"
        "order by fact_type, score desc, ordinal"
    )
    assert statement.parameters == (7, query, 30, 0.5)
    assert statement.session == ("set local bm25_catalog.bm25_limit = -1",)


def test_pgroonga_ddl() -> None:
    extension, table, index = PGroonga().ddl()
    assert extension == "create extension if not exists pgroonga cascade"
    assert table == TABLE.format(name="pgroonga", column="")
    assert index == (
        "create index if not exists keyword_pgroonga_match on keyword_pgroonga using pgroonga"
        " ((text || ' ' || coalesce(context, '') || ' ' || coalesce(text_signals, '')))"
        " with (tokenizer = 'TokenBigram', normalizer = 'NormalizerNFKC150')"
    )


def test_pgroonga_query() -> None:
    allowed = np.array([3, 5], np.int32)
    statement = PGroonga().statement(
        7, ["kiln", "OR"], (FactType.WORLD, FactType.OBSERVATION), 30, 0.0, allowed
    )
    part = (
        "(select {kind}::smallint fact_type, ordinal, score from (\n"
        "  select ordinal, pgroonga_score(tableoid, ctid) score from keyword_pgroonga k\n"
        "  where (text || ' ' || coalesce(context, '') || ' ' || coalesce(text_signals, ''))"
        " &@~ (select string_agg(pgroonga_query_escape(piece), ' OR ')"
        " from unnest($2::text[]) piece)\n"
        "    and bank + 0 = $1::bigint and fact_type = {kind}"
        " and ordinal + 0 = any($5::int[])\n"
        "  order by score desc, ordinal limit $3::int) best\n"
        "where score > 0 and ($4::float8 <= 0 or score >= $4))"
    )
    assert statement.sql == (
        part.format(kind=0)
        + "\nunion all\n"
        + part.format(kind=2)
        + "\norder by fact_type, score desc, ordinal"
    )
    assert statement.parameters == (7, ["kiln", "OR"], 30, 0.0, [3, 5])
    assert statement.session == ("set local enable_seqscan = off",)


def test_the_indexed_expression_is_the_queried_one() -> None:
    backend = PGroonga()
    assert f"({backend.expression})" in backend.index_ddl()
    assert backend.match("$1", "0").startswith(f"{backend.expression} &@~ ")


def test_user_text_is_a_parameter_of_every_backend() -> None:
    for name in NAMES:
        statement = make(name).statement(7, "kiln' OR \"1", tuple(FactType), 9)
        assert "kiln" not in statement.sql
        assert statement.sql.count("limit $3") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The C++ & (Rust)", ["the", "c", "rust"]),
        ("snake_case e-mail", ["snake_case", "e", "mail"]),
        ("?! … ***", []),
        ("打印机", ["打印机"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("打印机的", ["打印", "印机", "机的"]),
        ("docker镜像 v2", ["docker", "镜像", "v2"]),
        ("茶 tea Tea", ["茶", "tea"]),
        ("학교에서", ["학교", "교에", "에서"]),
        ("OR kiln) -clay*", ["or", "kiln", "clay"]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    ("name", "cast"),
    [
        ("", ""),
        ("ICU", "pdb.icu"),
        ("jieba", "pdb.jieba"),
        ("source_code", "pdb.source_code"),
        ("chinese_compatible", "pdb.chinese_compatible"),
        ("lindera(japanese)", "pdb.lindera(japanese)"),
        ("Lindera_Korean", "pdb.lindera(korean)"),
        ("chinese_lindera", "pdb.lindera(chinese)"),
        ("ngram(2, 3)", "pdb.ngram(2,3)"),
        ("edge_ngram(1,1)", "pdb.edge_ngram(1,1)"),
    ],
)
def test_tokenizers(name: str, cast: str) -> None:
    assert tokenizer_cast(name) == cast


@pytest.mark.parametrize(
    "name",
    [
        *("klingon", "ngram", "ngram(3,2)", "ngram(0,2)", "ngram(1)", "ngram(-1,2)", "ngram(a,b)"),
        *("lindera(thai)", "lindera", "icu(1)", "jieba'); drop table banks", "edge_ngram(2,1)"),
    ],
)
def test_unknown_tokenizers_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="pg_search tokenizer"):
        tokenizer_cast(name)


def test_settings_are_checked() -> None:
    with pytest.raises(InvalidInput, match="use bm25 or one of native"):
        make("sphinx")
    for language in ("english'; --", "1st", "", "ger man"):
        with pytest.raises(InvalidInput, match="text search configuration"):
            make("native", native_language=language)
    with pytest.raises(InvalidInput, match="tokenizer"):
        make("pg_search", pg_search_tokenizer="klingon")
