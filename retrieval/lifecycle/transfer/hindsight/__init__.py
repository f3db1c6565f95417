"""The peer's archive, schema_version 1: a JSON file for each document with its chunks and facts,
observations that name their sources by document and place, rows of what is kept beside them. It has
no ids that last and no vectors, so memories get new ids where they arrive."""
