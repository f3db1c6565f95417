"""Shared by the tests of serve/."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():  # Ray's own modules warn while they are imported
    warnings.simplefilter("ignore")
    import ray.serve
    import ray.serve.schema

__all__ = ["ray"]
