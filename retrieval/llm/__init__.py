"""Asking a language model and reading what it says, whatever it says."""
