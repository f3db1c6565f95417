"""Stands in for Ray's dashboard agent where there is no dashboard: a program of its own.

Without a dashboard that agent does two things: it notes that none of its ports is in use, and it
ends with the raylet, which does not start without it. For that it imports 65 MB. This one does the
same in 8, as it imports nothing of Ray: `node.bare` puts it in the agent's place, with its
arguments.
"""

import os
import sys
import time

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
"""What the raylet waits for, each in a file of the session's folder; -1 says that it is unused."""

WATCH_S = 1.0


def main(arguments: list[str], raylet: int) -> None:
    """Until the raylet, our parent, is gone."""
    told = dict(each[2:].split("=", 1) for each in arguments if each[:2] == "--" and "=" in each)
    for name in PORTS:
        file = os.path.join(told["session-dir"], f"{name}_{told['node-id']}")
        with open(f"{file}.part", "w") as part:
            part.write("-1")
        os.rename(f"{file}.part", file)
    while os.getppid() == raylet:
        time.sleep(WATCH_S)


if __name__ == "__main__":
    main(sys.argv[1:], os.getppid())
