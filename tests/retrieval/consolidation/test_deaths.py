"""Consolidations whose process is killed: thrice at most, and nothing begins one again unasked."""

import asyncio
import signal
import sys

import pytest

from retrieval.consolidation import queue
from retrieval.store import operation_views, operations
from tests.retrieval.consolidation.world import TENANT, World, each
from tests.retrieval.store.servers import server

pytestmark = pytest.mark.integration

_DOOMED = """
import asyncio, os, signal, sys
from retrieval.store.database.pool import PoolSettings, open_pool
from tests.retrieval.consolidation.world import World

def die(_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(dsn, schema):
    pool = await open_pool(PoolSettings(dsn, schema=schema, min_size=1, max_size=4))
    world = World(pool)
    world.model.rule = die
    await world.worker().step()

asyncio.run(main(*sys.argv[1:]))
"""


async def _die(world: World) -> None:
    """Another process takes what waits, and does not survive it."""
    schema = await world.pool.fetchval("select current_schema()")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DOOMED, server().dsn, schema
    )
    assert await asyncio.wait_for(child.wait(), 120) == -signal.SIGKILL
    await world.pool.execute("update operations set leased_until = now()")  # as after a minute


async def _fail(world: World, deaths: int) -> None:
    await world.pool.execute("update operations set status = 'failed', deaths = $1", deaths)
    await world.pool.execute("delete from operation_lanes")


async def test_three_deaths_and_no_more(world: World) -> None:
    await world.add("Ann keeps bees.")
    for _ in range(3):
        (operation,) = await world.operations()
        assert operation["status"] != "failed"
        await _die(world)
    world.model.rule = each
    assert not await world.run()  # buried, and nobody takes it
    (operation,) = await world.operations()
    assert operation["status"] == "failed"
    assert "died 3 times" in operation["error_message"]
    # Neither time nor writes bring it back.
    await world.pool.execute("update operations set updated_at = now() - interval '1 day'")
    assert await queue.reconcile(world.pool, world.settings) == 0
    await world.add("Bob keeps hens.")
    assert not await world.run()
    assert await world.texts() == []
    assert await world.pending() == ["Ann keeps bees.", "Bob keeps hens."]  # the bank stays
    # Somebody's word does; and then all is as it was.
    await queue.submit(world.pool, TENANT, world.bank, world.settings)
    assert await world.run()
    assert await world.texts() == ["Ann keeps bees.", "Bob keeps hens."]
    await world.add("Eve keeps goats.")
    assert await world.run()
    assert len(await world.texts()) == 3


async def test_a_failed_one_is_tried_again_on_request(world: World) -> None:
    await world.add("Ann keeps bees.")
    (operation,) = await world.operations()
    await _fail(world, operations.DEATHS_MOST)
    await operation_views.retry(world.pool, TENANT, world.bank, operation["id"])
    world.model.rule = each
    assert await world.run()
    assert await world.texts() == ["Ann keeps bees."]


async def test_other_failures_do_not_stop_it(world: World) -> None:
    await world.add("Ann keeps bees.")
    await _fail(world, operations.DEATHS_MOST - 1)
    await world.add("Bob keeps hens.")
    world.model.rule = each
    assert await world.run()
    assert len(await world.texts()) == 2
