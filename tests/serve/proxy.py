"""HAProxy as Ray Serve runs it, through our program and without a cluster, in a process of its own:
`python -m tests.serve.proxy FOLDER PORT REPLICA...`, with the variables of `haproxy.environment`.

Reads commands from its input, one a line, and answers each with HAProxy's process id: `start` (as a
proxy's actor does at its start, and again after HAProxy died), `reload REPLICA...` with the ports
of the replicas that there are then. Ends with its input, and HAProxy with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

APP = "fourfold"


def backends(ports: list[str]) -> dict[str, BackendConfig]:
    servers = [ServerConfig(f"replica-{port}", "127.0.0.1", int(port)) for port in ports]
    return {APP: BackendConfig(APP, "/", servers=servers, app_name=APP)}


async def main(folder: Path, port: str, replicas: list[str]) -> None:
    told = HAProxyConfig(
        http_options=HTTPOptions(host="127.0.0.1", port=int(port)),
        has_received_routes=True,
        has_received_servers=True,
        is_head=True,
    )
    proxy = HAProxyApi(told, backends(replicas), str(folder / "haproxy.cfg"))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, *ports = line.split()
            if command == "start":
                await proxy.start()
            else:
                proxy.set_backend_configs(backends(ports))
                await proxy.reload()
            assert proxy._proc is not None
            print(proxy._proc.pid, file=answers, flush=True)
    finally:
        await proxy.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
