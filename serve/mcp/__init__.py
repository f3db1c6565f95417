"""The Model Context Protocol: the routes of the HTTP API as tools, for agents that speak it."""
