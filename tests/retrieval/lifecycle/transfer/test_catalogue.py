"""Every table that knows a bank is carried by an archive, or listed with the reason why not."""

from __future__ import annotations

import pytest

from retrieval.lifecycle.transfer.contents import CARRIED, COPIED, COPIED_CONFIG, LEFT_BEHIND
from retrieval.store.database.pool import Pool, read

pytestmark = pytest.mark.integration


async def test_every_table_of_a_bank_is_spoken_for(pool: Pool) -> None:
    rows = await read(
        pool,
        lambda c: c.fetch(
            "select distinct c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid"
            " where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')"
            " and not c.relispartition and a.attname in ('bank', 'bank_id', 'file')"
            " and not a.attisdropped"
        ),
    )
    there = {row[0] for row in rows}
    spoken = CARRIED.keys() | LEFT_BEHIND.keys()
    assert there - spoken == set(), "add these to retrieval/lifecycle/transfer/contents.py"
    assert spoken - there == set(), "these are no tables with a bank"
    assert not CARRIED.keys() & LEFT_BEHIND.keys()
    assert all(LEFT_BEHIND.values())


def test_a_clone_copies_what_an_archive_carries() -> None:
    elsewhere = {
        "banks",
        "operations",
        "llm_requests",
        "webhooks",
        "audit_logs",
    }  # copied with care, not as they are
    assert {*COPIED, *COPIED_CONFIG} - {"tombstones"} == CARRIED.keys() - elsewhere
