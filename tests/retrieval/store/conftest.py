"""A migrated schema for the tests of a module; each test takes banks of its own."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from retrieval.store.database.pool import Pool
from tests.retrieval.store.servers import database

_SCHEMA = f"tests_{uuid4().hex[:8]}"


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with database(_SCHEMA) as opened:
        yield opened
