"""Settings: one frozen object, read once at start, from a file and the environment."""

from serve.settings.loading import SettingsError, load, load_file, parse
from serve.settings.model import Settings

__all__ = ["Settings", "SettingsError", "load", "load_file", "parse"]
