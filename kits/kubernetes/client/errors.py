"""The error of all that talks to a cluster, apart from the library that does."""

from __future__ import annotations

from cluster.common.errors import HarnessError


class ClusterError(HarnessError):
    """The cluster cannot be reached, or refuses a request."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the answer; 0 if there was no answer."""
