"""The embedded server: it comes back from a kill, and keeps its folder to itself."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from retrieval.errors import Unavailable
from retrieval.store.database import embedded
from retrieval.store.database.embedded import EmbeddedPostgres
from tests.retrieval.store.servers import fresh

pytestmark = pytest.mark.integration

FAST = {"fsync": "off", "shared_buffers": "32MB"}


async def _ask(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_life_of_a_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    server = EmbeddedPostgres(data, settings=FAST)
    dsn = server.start()
    assert server.start() == dsn
    assert asyncio.run(_ask(dsn, "show data_checksums")) == "on"
    assert asyncio.run(_ask(dsn, "show listen_addresses")) == ""
    assert asyncio.run(_ask(dsn, "show synchronous_commit")) == "on"
    asyncio.run(_ask(dsn, "create table kept as select 7 as n"))

    with pytest.raises(Unavailable, match="another process uses"):
        EmbeddedPostgres(data).start()

    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    begin = time.monotonic()
    while True:
        try:
            assert asyncio.run(_ask(dsn, "select n from kept")) == 7
            break
        except (OSError, asyncpg.PostgresError):
            assert time.monotonic() - begin < 10
            time.sleep(0.05)
    assert server.pid not in (None, killed)

    pid = server.pid
    server.stop()
    assert pid is not None
    assert not _alive(pid)
    assert not (data / "run").exists()
    with EmbeddedPostgres(data, settings=FAST) as again:
        assert asyncio.run(_ask(again.dsn, "select n from kept")) == 7


def test_a_server_left_behind_is_replaced(tmp_path: Path) -> None:
    code = (
        "import sys, os; from retrieval.store.database.embedded import EmbeddedPostgres;"
        f"s = EmbeddedPostgres({str(fresh(tmp_path / 'd'))!r}, settings={FAST!r}); s.start();"
        "print(s.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    orphan = int(done.stdout)
    assert _alive(orphan)
    with EmbeddedPostgres(tmp_path / "d", settings=FAST) as server:
        assert server.pid != orphan
        assert not _alive(orphan)
        assert asyncio.run(_ask(server.dsn, "select 1")) == 1


def test_a_port_needs_a_password(tmp_path: Path, unused_tcp_port: int) -> None:
    with EmbeddedPostgres(fresh(tmp_path / "d"), port=unused_tcp_port, settings=FAST) as server:
        assert asyncio.run(_ask(server.dsn, "show listen_addresses")) == "127.0.0.1"
        bare = f"postgresql://fourfold:wrong@127.0.0.1:{unused_tcp_port}/fourfold"
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(_ask(bare, "select 1"))


def test_long_folder_names(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    with EmbeddedPostgres(fresh(deep), settings=FAST) as server:
        assert asyncio.run(_ask(server.dsn, "select 1")) == 1
        short = server.dsn
    assert "fourfold-" in short


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = EmbeddedPostgres(fresh(tmp_path / "d"), settings={"shared_buffers": "nonsense"})
    with pytest.raises(Unavailable, match="shared_buffers"):
        server.start()
    assert server.pid is None
    with EmbeddedPostgres(tmp_path / "d", settings=FAST) as again:  # the folder is free again
        assert again.pid is not None


def test_a_folder_of_before_is_shut_and_a_long_log_put_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fresh(tmp_path / "data")
    data.chmod(0o755)
    log = data / "postgres.log"
    log.write_text("old\n" * 1000)
    log.chmod(0o644)
    monkeypatch.setattr(embedded, "_LOG_BYTES", 2000)
    monkeypatch.setattr(embedded, "_LOG_CHECK_S", 0.05)
    with EmbeddedPostgres(data, settings=FAST) as server:
        assert data.stat().st_mode & 0o777 == 0o700
        assert log.stat().st_mode & 0o777 == 0o600
        first = data / "postgres.log.1"
        assert first.read_text().startswith("old")
        assert first.stat().st_mode & 0o777 == 0o600
        assert log.stat().st_size < 2000
        for _ in range(60):  # every complaint is a line of the log
            with pytest.raises(asyncpg.PostgresError):
                asyncio.run(_ask(server.dsn, "do $$ begin raise exception 'complaint'; end $$"))
        give_up = time.monotonic() + 20
        while not (data / "postgres.log.2").exists():
            assert time.monotonic() < give_up
            time.sleep(0.02)
        assert "complaint" in (data / "postgres.log.1").read_text()
        assert len(list(data.glob("postgres.log*"))) == 3
        assert asyncio.run(_ask(server.dsn, "select 1")) == 1
