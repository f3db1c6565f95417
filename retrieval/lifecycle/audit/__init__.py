"""Who read or changed what, noted without what was said unless the operator wants that."""
