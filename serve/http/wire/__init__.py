"""What comes in over HTTP: pydantic models, and their translation into retrieval's types."""
