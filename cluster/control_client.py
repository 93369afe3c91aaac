"""Asks a live testnet's own endpoint (:mod:`cluster.live.control`) for something, with the run's token."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import urllib3

from cluster.errors import HarnessError

TIMEOUT_S: Final = 10.0
ACCEPTED: Final = 202


class ControlError(HarnessError):
    """The testnet's endpoint did not do it: nobody answers, or it refuses."""


class ControlClient:
    """Talks to one testnet. Every method raises :class:`ControlError`."""

    def __init__(self, url: str, token_file: Path) -> None:
        self._url = url
        self._token_file = token_file

    def stop(self) -> None:
        """Have the run end as if its stop height was reached."""
        self._post("/stop")

    def _post(self, path: str) -> None:
        url = self._url + path
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}"}
            answer = urllib3.request("POST", url, headers=headers, retries=False, timeout=TIMEOUT_S)
        except OSError as error:
            raise ControlError(f"{self._token_file}: {error.strerror}") from None
        except urllib3.exceptions.HTTPError as error:
            raise ControlError(f"{url}: {' '.join(str(error).split())}") from None
        if answer.status != ACCEPTED:
            raise ControlError(f"{url}: status {answer.status}: {answer.data.decode('utf-8', 'replace')[:200]}")
