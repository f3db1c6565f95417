"""A Ray cluster of several nodes on this machine with the application on it, in a process of its
own: `python -m tests.cluster.ground FOLDER`.

Reads commands from its input, one JSON object a line, and answers each with one. A head without
CPUs and raylets with labels, everything on loopback and under FOLDER. Ends with its input, and
takes everything with it.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

STORE_BYTES = 80 * 2**20
ROLE = "fourfold-role"
NODE_S = 240.0


class Ground:
    def __init__(self, folder: Path) -> None:
        from ray import cluster_utils
        from ray._private import services, utils

        services.get_node = _patient(services.get_node)
        # Others' Ray on this machine goes by what this would write.
        utils.write_ray_address = lambda *_, **__: None
        self._common: dict[str, Any] = {
            "temp_dir": str(folder / "ray"),
            "object_store_memory": STORE_BYTES,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
        }
        self._cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**self._common, "num_cpus": 0}
        )
        self._nodes: dict[str, Any] = {}

    def add(self, name: str, role: str, cpus: int) -> dict[str, Any]:
        node = self._cluster.add_node(**self._common, num_cpus=cpus, labels={ROLE: role})
        self._nodes[name] = node
        return self.nodes()

    def nodes(self) -> dict[str, Any]:
        """The raylet of each node: workers are its children."""
        return {
            name: node.all_processes["raylet"][0].process.pid for name, node in self._nodes.items()
        }

    def drain(self, name: str, seconds: int) -> dict[str, Any]:
        """As a node that is to leave: nothing new comes to it, and what it has may end."""
        said = {
            "address": self._cluster.address,
            "node-id": self._nodes[name].node_id,
            "reason": "DRAIN_NODE_REASON_PREEMPTION",
            "reason-message": "a test",
            "deadline-remaining-seconds": seconds,
        }
        options = [f"--{option}={value}" for option, value in said.items()]
        command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", *options]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return {}

    def connect(self, port: int) -> dict[str, Any]:
        import ray
        from ray import serve

        ray.init(address=self._cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        serve.start(
            http_options={"host": "127.0.0.1", "port": port},
            proxy_location="HeadOnly",
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        return {}

    def deploy(
        self,
        tree: dict[str, Any],
        wait: bool = True,
        sources: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """`sources`: where stages have their program from, by name, if not from here."""
        from ray import serve

        from serve.cluster import deployments

        usual = deployments._deployed

        def deployed(name: str, *args: Any) -> Any:
            made = usual(name, *args)
            if (path := (sources or {}).get(name)) is None:
                return made
            own = {**(made.ray_actor_options or {})}
            own["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
            return made.options(ray_actor_options=own)

        with mock.patch.object(deployments, "_deployed", deployed):
            application = deployments.build(tree)
        run: Any = serve.run if wait else partial(serve._run, _blocking=False)
        run(application, name=deployments.APP, route_prefix="/")
        return {}

    def status(self) -> dict[str, Any]:
        from ray import serve

        found = serve.status().applications["fourfold"]
        return {
            "status": found.status.value,
            "running": {
                name: sum(n for state, n in each.replica_states.items() if state == "RUNNING")
                for name, each in found.deployments.items()
            },
        }

    def end(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]


def _patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """A busy machine takes longer than the half minute that Ray gives a node to come up."""

    def ask(*args: Any) -> Any:
        give_up = time.monotonic() + NODE_S
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.2)

    return ask


def main(folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray says goes where errors go
    ground = Ground(folder)
    try:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = getattr(ground, command.pop("do"))(**command)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        ground.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
