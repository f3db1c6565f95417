"""Ray Serve is imported before any test module does it; and the cluster of all long tests."""

from collections.abc import Iterator

import pytest

from tests.cluster.common import BANKS, NODES, TREE
from tests.cluster.world import World, fill
from tests.support import quiet_ray

__all__ = ["quiet_ray"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("cluster"))
    try:
        world.start(NODES, TREE)
        fill(world.url, BANKS)
        yield world
    finally:
        world.end()
