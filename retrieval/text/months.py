"""English month names, whatever the locale: models read them in dates."""

from __future__ import annotations

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
"""In the order of the year; month m is MONTHS[m - 1]."""
