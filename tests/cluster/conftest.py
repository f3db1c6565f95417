"""Ray Serve is imported before any test module does it."""

from tests.support import quiet_ray

__all__ = ["quiet_ray"]
