"""Imports Ray Serve, which warns while it is imported; warnings are errors in tests."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.serve
    import ray.serve.schema

__all__ = ["ray"]
