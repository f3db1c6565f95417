"""Writes what this version sends: run it when a release is made, and keep what is there."""

from __future__ import annotations

import pickle

from retrieval.messages import PROTOCOL
from tests.golden.messages import FOLDER, every

if __name__ == "__main__":
    path = FOLDER / f"protocol-{PROTOCOL}-1.pickle"
    while path.exists():
        stem, _, number = path.stem.rpartition("-")
        path = path.with_name(f"{stem}-{int(number) + 1}.pickle")
    path.write_bytes(pickle.dumps(every(), 5))
    print(path)
