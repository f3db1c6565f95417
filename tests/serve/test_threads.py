"""Long work in threads, and who gets the interpreter meanwhile."""

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from serve.opening.threads import SWITCH_S, YieldingThreads, open_threads

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield 0.005
    sys.setswitchinterval(before)


def test_the_interpreter_changes_hands_often_while_any_of_them_works(usual: float) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> float:
        begun.set()
        end.wait(60)
        return sys.getswitchinterval()

    with YieldingThreads(2) as threads:
        first = threads.submit(work)
        assert begun.wait(60)
        assert threads.submit(sys.getswitchinterval).result(60) == pytest.approx(SWITCH_S)
        end.set()
        assert first.result(60) == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_what_fails_leaves_nothing_behind(usual: float) -> None:
    with YieldingThreads(1) as threads, pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_a_loop_has_them_once() -> None:
    async def names() -> set[str]:
        open_threads()
        open_threads()
        return {await asyncio.to_thread(lambda: threading.current_thread().name) for _ in range(3)}

    assert all(name.startswith("long-work") for name in asyncio.run(names()))
