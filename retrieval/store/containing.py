"""The `q` of lists: a part of a text, folded as recall folds words, whatever the database's locale.

A plain ASCII text is folded by the database itself. What it cannot fold is read in pages and folded
here; in a bank of ASCII texts that is nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from retrieval.store.database.pool import Pool, read
from retrieval.store.edge import like
from retrieval.text.language import ACCENTS, LETTERS, fold

_PAGE = 200
_PIECE = 5_000
"""Characters that are folded in one pass of the event loop."""
_FOLDED_AWAY = "''`"
"""What `fold` drops of an ASCII text besides its capitals, as SQL quotes it."""

Bind = Callable[[Any], str]


def _key(text: str) -> str:
    return " ".join(fold(text).split())


def bare(column: str) -> str:
    """The SQL of `retrieval.text.language.bare` for a column that holds folded names."""
    plain = f"normalize(regexp_replace(normalize({column}, NFD), '{ACCENTS}', '', 'g'), NFC)"
    for letter, typed in LETTERS.items():
        quoted = letter.replace("'", "''")
        plain = f"replace({plain}, '{quoted}', '{typed}')"
    ascii = f"octet_length({column}) = length({column})"
    return f"(case when {ascii} then replace({column}, '''', '') else {plain} end)"


async def condition(
    pool: Pool,
    q: str,
    *,
    table: str,
    key: str,
    columns: Sequence[str],
    where: Sequence[str],
    values: Sequence[Any],
    bind: Bind,
) -> str:
    """The SQL test for rows of which one of the `columns` contains `q`.

    `table` with its alias, `key` its unique column; `where` and `values`: the other tests, from
    which $1 on, of the rows that matter. Case, accents, width, invisible characters, apostrophes
    and the kind of white space make no difference.
    """
    wanted = _key(q)
    if not wanted:  # only signs that folding drops: as they stand
        pattern = bind(f"%{like(q)}%")
        return f"({' or '.join(f'{column} like {pattern}' for column in columns)})"
    found = await _folded_here(pool, wanted, table, key, columns, where, values)
    tests = [f"{key} = any({bind(found)})"] if found else []
    if wanted.isascii():
        pattern = bind(f"%{like(wanted)}%")
        tests += [
            f"({_is_ascii(column)} and {_folded_there(column, ' ' in wanted)} like {pattern})"
            for column in columns
        ]
    return f"({' or '.join(tests)})" if tests else "false"


async def _folded_here(
    pool: Pool,
    wanted: str,
    table: str,
    key: str,
    columns: Sequence[str],
    where: Sequence[str],
    values: Sequence[Any],
) -> list[Any]:
    """Keys of the rows that contain `wanted` in a text that is not ASCII."""
    last = f"${len(values) + 1}"
    foreign = " or ".join(f"not {_is_ascii(column)}" for column in columns)
    statement = (
        f"select {', '.join([key, *columns])} from {table}"
        f" where {' and '.join([*where, f'({foreign})'])}"
    )
    found: list[Any] = []
    after: Any = None
    while True:
        test = "" if after is None else f" and {key} > {last}"
        more = [] if after is None else [after]
        page = await read(
            pool,
            lambda connection, test=test, more=more: connection.fetch(  # type: ignore[misc]
                f"{statement}{test} order by {key} limit {_PAGE}", *values, *more
            ),
        )
        spent = 0
        for row, *texts in page:
            for piece in (p for text in texts if text for p in _pieces(text, len(wanted))):
                spent += len(piece)
                if spent > _PIECE:
                    spent = 0
                    await asyncio.sleep(0)
                if wanted in _key(piece):
                    found.append(row)
                    break
        if len(page) < _PAGE:
            return found
        after = page[-1][0]


def _pieces(text: str, length: int) -> Iterator[str]:
    """The text in pieces that overlap by more than what is looked for, marks included."""
    overlap = 4 * length + 32
    for start in range(0, max(1, len(text) - overlap), _PIECE):
        yield text[start : start + _PIECE + overlap]


def _is_ascii(column: str) -> str:
    return f"(octet_length(convert_to({column}, 'UTF8')) = length({column}))"


def _folded_there(column: str, blanks: bool) -> str:
    folded = f"translate(lower({column} collate \"C\"), '{_FOLDED_AWAY}', '')"
    return f"regexp_replace({folded}, '\\s+', ' ', 'g')" if blanks else folded
