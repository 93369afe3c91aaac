"""A client of a live testnet's endpoint (:mod:`cluster.live.driver.control_server`), with the run's token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import urllib3

from cluster.common.errors import BadInput, HarnessError
from cluster.record.folder import ENDPOINTS_FILE, FAUCET_TOKEN_FILE
from loadgen.client import json_object, reason_of

TIMEOUT_S: Final = 10.0
MAX_QUOTED: Final = 200


class ControlError(HarnessError):
    """The testnet's endpoint does not answer, or refuses."""


class ControlClient:
    """A client of one running testnet's endpoint.

    Every method raises :class:`ControlError`, and :class:`BadInput` for wrong arguments.
    """

    @classmethod
    def of_run(cls, folder: Path) -> ControlClient:
        """The client of a running testnet, by its folder. Raises :class:`BadInput` if there is none."""
        endpoints = folder / ENDPOINTS_FILE
        try:
            testnet = json.loads(endpoints.read_text(encoding="utf-8"))["testnet"]
            url, token_file = testnet["url"], folder / testnet["token_file"]
        except OSError as error:
            raise BadInput(f"{endpoints}: {error.strerror}: expected the folder of a live run that goes on") from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{endpoints}: does not say where the testnet's own endpoint is") from None
        if not token_file.exists():
            raise BadInput(f"{folder}: that run is over: expected the folder of a live run that goes on")
        return cls(url, token_file)

    def __init__(self, url: str, token_file: Path) -> None:
        self._url = url
        self._token_file = token_file

    def stop(self) -> None:
        """End the run as if its stop height was reached."""
        self._post("/stop")

    def add_fault(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Add a fault to the run, as in a scenario's ``faults``; at once if it states neither height nor time.

        Returns the fault as it will be performed.
        """
        return self._post("/faults", json.dumps(fields))

    def pay(self, to: str, amount: int) -> dict[str, Any]:
        """Have the faucet pay an address (``0x…``), in the smallest CBY unit. Returns the transfer that it sent."""
        file = self._token_file.with_name(FAUCET_TOKEN_FILE)
        if not file.exists():
            raise BadInput(f"{file.parent}: its testnet has no faucet: chain.faucet in the scenario asks for one")
        return self._post("/faucet", json.dumps({"to": to, "amount": amount}), file)

    def _post(self, path: str, body: str = "", token_file: Path | None = None) -> dict[str, Any]:
        url = self._url + path
        try:
            token = (token_file or self._token_file).read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}"}
            answer = urllib3.request("POST", url, body=body, headers=headers, retries=False, timeout=TIMEOUT_S)
        except OSError as error:
            raise ControlError(f"{self._token_file}: {error.strerror}") from None
        except urllib3.exceptions.HTTPError as error:
            raise ControlError(f"{url}: {reason_of(error)}") from None
        unreadable = {"error": answer.data.decode("utf-8", "replace")[:MAX_QUOTED]}
        page = json_object(answer.data) or unreadable
        if answer.status == HTTPStatus.BAD_REQUEST:
            raise BadInput(str(page.get("error")))
        if answer.status != HTTPStatus.ACCEPTED:
            raise ControlError(f"{url}: status {answer.status}: {page.get('error')}")
        return page
