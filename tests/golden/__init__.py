"""Messages as earlier releases sent them, and how they are made: `python -m tests.golden`."""
