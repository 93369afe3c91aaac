"""A Ray node's dashboard agent that does nothing: ``python -I -S idle_agent.py --session-dir=DIR …``.

A raylet does not run without a dashboard agent, and waits for the ports that its agent writes into files. Without the
packages of Ray's dashboard, Ray's own agent writes that it has no ports, and then only watches the raylet. It takes
half a processor second to start, since it imports all of Ray. This one does the same, and imports hardly anything.
"""

from __future__ import annotations

import os
import sys
import time

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
NO_PORT = "-1"
SESSION_OPTION = "--session-dir="
LOOK_EVERY_S = 1.0


def write_ports(folder: str, node: str) -> None:
    """Write the files of a node that say that its agent has no ports."""
    for name in PORTS:
        path = f"{folder}/{name}_{node}"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(NO_PORT)
        os.replace(f"{path}.new", path)


def main() -> None:
    """Entry of the process. It ends with its raylet."""
    raylet = os.getppid()
    (folder,) = (each.removeprefix(SESSION_OPTION) for each in sys.argv if each.startswith(SESSION_OPTION))
    write_ports(folder, os.environ["RAY_NODE_ID"])
    while os.getppid() == raylet:
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main()
