from tests.retrieval.store.conftest import pool

__all__ = ["pool"]
