"""The log file: private, of bounded size, shared by processes."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from serve.local.logs import SharedFile, TextLines
from serve.local.processes import owned

pytestmark = pytest.mark.unit


def handler(path: Path, most: int = 4096, kept: int = 2) -> SharedFile:
    made = SharedFile(path, most, kept)
    made.setFormatter(TextLines())
    return made


def say(target: SharedFile, text: str) -> None:
    target.emit(logging.LogRecord("serve", logging.INFO, "", 0, text, None, None))


def test_a_log_is_its_owners_and_an_old_one_becomes_so(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("before\n")
    path.chmod(0o644)
    target = handler(path)
    say(target, "after")
    target.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("before\n")
    assert "after" in path.read_text()


def test_a_full_log_is_put_away_and_few_are_kept(tmp_path: Path) -> None:
    target = handler(tmp_path / "server.log")
    for number in range(400):
        say(target, f"line {number} " + "x" * 90)
    target.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["server.log", "server.log.1", "server.log.2"]
    assert all(path.stat().st_size < 5000 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    text = "".join((tmp_path / name).read_text() for name in reversed(files))
    numbers = [int(line.split("line ")[1].split()[0]) for line in text.splitlines()]
    assert numbers == list(range(numbers[0], 400))  # the newest, none lost, in order


def test_two_handlers_of_one_file_follow_each_other(tmp_path: Path) -> None:
    one, two = handler(tmp_path / "server.log", kept=9), handler(tmp_path / "server.log", kept=9)
    for number in range(100):
        say(one, f"one {number} " + "x" * 90)
        say(two, f"two {number} " + "x" * 90)
    one.close()
    two.close()
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    for who in ("one", "two"):
        assert sum(f"{who} {n} " in text for n in range(100)) == 100


def test_processes_lose_no_line(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.serve.test_logs import handler, say\n"
        "h = handler(Path(sys.argv[1]), 20000, 99)\n"
        "for n in range(500): say(h, f'{sys.argv[2]} {n} ' + 'x' * 90)\n"
    )
    path = str(tmp_path / "server.log")
    running = [
        subprocess.Popen([sys.executable, "-c", program, path, who]) for who in ("a", "b", "c")
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == 1500
    assert all(line.endswith("x" * 90) for line in lines)


def test_a_data_folder_is_made_and_kept_private(tmp_path: Path) -> None:
    new = tmp_path / "a" / "data"
    with owned(new):
        assert new.stat().st_mode & 0o777 == 0o700
    new.chmod(0o755)  # as a version before left it
    with owned(new):
        assert new.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "project"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    (shared / "notes.txt").touch()
    with owned(shared):
        assert shared.stat().st_mode & 0o777 == 0o755
