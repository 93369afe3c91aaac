"""Commands in a pod's container, over a websocket (protocol ``v4.channel.k8s.io``).

Each message begins with the number of its channel. The last message is on the error channel: a ``Status`` with the
result of the command. A connection that ends without it was broken.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from websocket import ABNF, WebSocket, WebSocketBadStatusException, WebSocketException, WebSocketTimeoutException

from kits.kubernetes.client.cluster import Cluster, Target
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.kinds import POD
from kits.kubernetes.library import create_websocket, get_websocket_url

STDOUT, STDERR, STATUS = 1, 2, 3
"""Channel numbers of the protocol. ``STATUS`` is its error channel, which carries the result of the command."""
MAX_STDERR_BYTES: Final = 2**16
SLICE_S: Final = 0.2
"""Interval between checks of the clock and of signals."""
CONNECT_TIMEOUT_S = 15.0
"""A connection that is not open after this time counts as refused."""
SILENCE_S: Final = 60.0
"""A command without output for this time counts as lost."""


class Ended(NamedTuple):
    """The result of a command: its exit code and standard error."""

    code: int
    errors: str
    """Standard error of the command."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod, in which commands can be executed."""

    cluster: Cluster
    namespace: str
    pod: str
    name: str

    def execute(
        self, command: Sequence[str], write: Callable[[bytes], object], checkpoint: Callable[[], None]
    ) -> Ended:
        """Run a command in the container; returns its result.

        ``write`` gets the command's standard output in pieces. ``checkpoint`` is called repeatedly, and may raise to
        cancel. Raises :class:`ClusterError` if the command cannot be run, or if the connection breaks.
        """
        what = f"{command[0]} in pod {self.pod}"
        connection = self._connect(command, checkpoint)
        errors, status = bytearray(), None
        silent_since = time.monotonic()
        connection.settimeout(SLICE_S)
        try:
            while True:
                checkpoint()
                try:
                    code, data = connection.recv_data()
                except WebSocketTimeoutException:
                    if time.monotonic() - silent_since > SILENCE_S:
                        raise ClusterError(f"{what}: silent for {SILENCE_S:g} s") from None
                    continue
                except (WebSocketException, OSError) as error:
                    if status is None:
                        raise ClusterError(f"{what}: the connection broke: {error}") from None
                    return _ended(status, errors)
                silent_since = time.monotonic()
                if code == ABNF.OPCODE_CLOSE:
                    if status is None:
                        raise ClusterError(f"{what}: the connection ended before the command did")
                    return _ended(status, errors)
                if data[:1] == bytes([STDOUT]):
                    write(data[1:])
                elif data[:1] == bytes([STDERR]):
                    errors += data[1 : 1 + MAX_STDERR_BYTES - len(errors)]
                elif data[:1] == bytes([STATUS]):
                    status = data[1:]
        finally:
            connection.shutdown()

    def _connect(self, command: Sequence[str], checkpoint: Callable[[], None]) -> WebSocket:
        target = Target("get", POD, self.namespace, self.pod, "exec")  # the verb of a websocket's request
        api = self.cluster.api
        headers: dict[str, str] = {}
        api.update_params_for_auth(headers, [], ["BearerToken"])
        asked = [("container", self.name), ("stdout", "true"), ("stderr", "true"), ("command", list(command))]
        url = get_websocket_url(api.configuration.host + target.path, asked)
        try:
            return _bounded(lambda: create_websocket(api.configuration, url, headers), checkpoint)
        except WebSocketBadStatusException as error:
            raise self.cluster.refusal(target, error.status_code, error.resp_body, error.status_message or "") from None
        except (WebSocketException, OSError) as error:
            raise ClusterError(f"{target}: {error}") from None


def _bounded(connect: Callable[[], WebSocket], checkpoint: Callable[[], None]) -> WebSocket:
    """Connect within :data:`CONNECT_TIMEOUT_S`, and call ``checkpoint`` meanwhile.

    ``connect`` runs in a separate thread, since it has no timeout and is not stopped by signals. Raises what
    ``connect`` and ``checkpoint`` raise, and :class:`TimeoutError`.
    """
    answers: queue.SimpleQueue[WebSocket | Exception] = queue.SimpleQueue()
    guard, is_given_up = threading.Lock(), False

    def run() -> None:
        try:
            answer: WebSocket | Exception = connect()
        except (WebSocketException, OSError) as error:
            answer = error
        with guard:
            if not is_given_up:
                answers.put(answer)
            elif isinstance(answer, WebSocket):
                answer.shutdown()

    threading.Thread(target=run, name="connecting", daemon=True).start()
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            checkpoint()
            with suppress(queue.Empty):
                answer = answers.get(timeout=SLICE_S)
                if isinstance(answer, Exception):
                    raise answer
                return answer
        raise TimeoutError(f"no connection after {CONNECT_TIMEOUT_S:g} s")
    finally:
        with guard:
            is_given_up = True
        with suppress(queue.Empty):
            if isinstance(late := answers.get_nowait(), WebSocket):
                late.shutdown()


def _ended(status: bytes, errors: bytearray) -> Ended:
    """The result of a command, parsed from the ``Status`` on the error channel and from its standard error."""
    said = errors.decode("utf-8", "replace").strip()
    try:
        page: dict[str, Any] = json.loads(status)
    except ValueError:
        raise ClusterError("the end of a command in a pod is not understood") from None
    if page.get("status") == "Success":
        return Ended(0, said)
    causes = (page.get("details") or {}).get("causes") or []
    codes = [int(each["message"]) for each in causes if each.get("reason") == "ExitCode"]
    if not codes:
        raise ClusterError(f"the command cannot be run in the pod: {page.get('message')}")
    return Ended(codes[0], said)
