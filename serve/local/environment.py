"""What Ray and the libraries under it are told by variables, in one table: on one machine by the
launcher, on a cluster by the pods. Read when Ray is imported.
"""

from __future__ import annotations

from collections.abc import Mapping

SHARED: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray runs whatever it is sent: nobody without the token may send it anything.
    "RAY_AUTH_MODE": "token",
    # Autoscaling looks at what was reported last, so reports come faster than it acts.
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "2",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "2",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # Between stages: vectors of 3,000 memories, or what a range of some 100,000 says to a question,
    # pass the 4 MiB that are the default.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
    # Arrays are small: a second thread doubles the cost of a search. Models set their own.
    "OMP_NUM_THREADS": "1",
    # A model's threads that wait must not spin on a core that another thread needs.
    "OMP_WAIT_POLICY": "passive",
}

HAPROXY: Mapping[str, str] = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
}
"""Where HAProxy stands in front of the replicas (serve/local/haproxy.py)."""

ONE_MACHINE: Mapping[str, str] = {
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # Ray's would abort the launcher at a SIGTERM, and leave behind what it has started.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    "RAY_SERVE_PROXY_GRACEFUL_SHUTDOWN_TIMEOUT_S": "1",
    # What an idle server spends is part of every recall's bill: fewer rounds of bookkeeping.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.25",
}

DRAIN_S, HARD_STOP_S = 30, 120
"""Of a pod: how long a proxy's replicas go on after they left its list, and how long connections
through a configuration that was replaced may last. With `drain_s`, a pod's grace is above their
sum."""

POD: Mapping[str, str] = {
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(DRAIN_S),
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(HARD_STOP_S),
    # A head that comes back finds its nodes: they wait for it.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}
