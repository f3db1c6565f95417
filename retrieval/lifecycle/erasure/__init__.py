"""Complete deletion: what is erased is in no table, segment, log or cache, and that is shown."""
