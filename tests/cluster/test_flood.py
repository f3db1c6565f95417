"""One tenant sends much more than the others: `make cluster-test`."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import httpx

from tests.cluster.common import MARKS, NORMAL_S, judge, load_on, more, new_key, p99
from tests.cluster.world import BASE, World, bearer, client, fill, sentence

pytestmark = MARKS


def test_a_tenant_floods(world: World) -> None:
    """Recalls, lists, writes and statistics of one, many times as many as the others send."""
    key = new_key(world, "loud")
    fill(world.url, ["loud-bank"], key)
    stopping = threading.Event()
    got: Counter[int] = Counter()

    def flood(number: int) -> None:
        base = f"{BASE}/loud-bank"
        with client(world.url, bearer(key)) as http:
            while not stopping.is_set():
                with contextlib.suppress(httpx.TransportError):
                    match number % 4:
                        case 0:
                            ask = {"query": "a lantern?"}
                            answer = http.post(f"{base}/memories/recall", json=ask)
                        case 1:
                            answer = http.get(f"{base}/memories/list")
                        case 2:
                            told = {"memories": [{"key": "k", "text": sentence("loud-bank")}]}
                            answer = http.post(f"{base}/memories/import", json=told)
                        case _:
                            answer = http.get(f"{base}/stats")
                    got[answer.status_code] += 1

    with load_on(world) as quiet:
        more(quiet.seen, 80)
    threads = [threading.Thread(target=flood, args=(number,)) for number in range(16)]
    with load_on(world) as load:
        for thread in threads:
            thread.start()
        more(load.seen, 120)
        stopping.set()
        for thread in threads:
            thread.join()
    before, meanwhile = (p99(seen) for seen in (quiet.seen, load.seen))
    print(f"\nthe flood got {dict(got)}; p99 of the others {before:.2f} -> {meanwhile:.2f} s")
    judge("a flood", load.seen)
    assert not load.seen.hard
    assert not load.seen.degraded
    assert got.total() > len(load.seen.seconds)
    assert got[200]
    assert meanwhile < NORMAL_S
