"""What Ray opens of its own on a single machine listens on loopback.

Ray takes a loopback address for its node only where clusters are switched off; a replica's port for
calls between deployments is open on all interfaces even then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ENVIRONMENT: Mapping[str, str] = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "serve.local.loopback.keep_inside",
}
"""For every process of Ray. The first has its effect on Linux too; the second names what a worker
runs before anything else, without a runtime environment, which would cost a start."""


def keep_inside() -> None:
    """From now on, ports of this process's gRPC servers are opened on 127.0.0.1."""
    from ray._common import tls_utils

    bind: Callable[[Any, str], Any] = tls_utils.add_port_to_grpc_server

    def inside(server: Any, address: str) -> Any:
        return bind(server, address.replace("[::]:", "127.0.0.1:"))

    tls_utils.add_port_to_grpc_server = inside

    from serve.local import node

    node.import_serve()  # only now: it takes the function by its name
