from tests.retrieval.consolidation.world import world
from tests.retrieval.store.conftest import pool

__all__ = ["pool", "world"]
