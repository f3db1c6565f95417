"""Uploaded files: what they are, their text, and the operation that turns one into a retain."""
