"""The log file: its owner's alone, and bounded."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from serve import logs, processes

pytestmark = pytest.mark.unit


def test_only_its_owner_reads_it_and_it_is_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 10)
    file = tmp_path / "server.log"
    logs.rotate(file)  # there is none yet
    handler = logs.PrivateFile(str(file), delay=True)

    def say(text: str) -> None:
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, text, None, None))

    for number in range(6):
        say(f"line number {number}")
        logs.rotate(file)
    say("short")
    handler.close()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == "short\n"
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["server.log", "server.log.1", "server.log.2", "server.log.3"]
    assert (tmp_path / "server.log.1").read_text() == "line number 5\n"
    logs.rotate(file)
    assert file.exists()


def test_the_data_folder_is_its_owners(tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "data", tmp_path / "old"):
        if folder.name == "old":
            folder.mkdir(mode=0o755)
        with processes.owned(folder):
            assert folder.stat().st_mode & 0o777 == 0o700
