"""Webhooks: who is told what happens in a bank, without a way into the server's own network."""
