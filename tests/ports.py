"""Free ports for processes that cannot choose their own."""

from __future__ import annotations

import socket
from contextlib import closing


def free_ports() -> int:
    """A port that is free, as the next one is."""
    while True:
        with closing(socket.socket()) as first, closing(socket.socket()) as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
