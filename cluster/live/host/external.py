"""An external validator as its host sees it: another party runs it, and the host reads its status page.

The host has neither its process nor its disk. So it reports height and view as the node's status page gives them
(``docs/peer-protocol.md``), and no votes, certificates or resources. The node counts as ready while the page answers,
and is of this chain. Everything else that the node is judged by, the driver asks over HTTP, as it asks all validators.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from cluster.live.host.observations import HeightSeen, Observation, ViewSeen
from cluster.live.host.validator_loop import LoopState
from cluster.live.processes.steady_clock import CLOCK
from loadgen.client import ClientError, ValidatorClient
from validator.primitives.types import HEIGHT_LIMIT

READ_EVERY_S: Final = 0.25
TIMEOUT_S: Final = 2.0
STALE_S: Final = 3.0
"""A node whose page was not read for this long is not ready any more."""
MAX_NOTES: Final = 10_000
MAX_REASON: Final = 200

Page = dict[str, Any]


class ExternalWatch:
    """Reads one external validator's status page again and again: :meth:`start`, finally :meth:`close`."""

    def __init__(self, url: str, index: int, chain_id: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        self._index = index
        self._chain_id = chain_id
        self._now_s = now_s
        self._client = ValidatorClient(url, TIMEOUT_S)
        self._state = LoopState(why_not_ready=f"{url} was not asked yet")
        self._read_s = float("-inf")
        self._notes: deque[Observation] = deque(maxlen=MAX_NOTES)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._client.close()

    @property
    def state(self) -> LoopState:
        """Its state by the last page; not ready if that is too old."""
        is_late = self._state.ready and self._now_s() - self._read_s > STALE_S
        return LoopState(why_not_ready=f"{self.url} does not answer any more") if is_late else self._state

    def drain(self) -> list[Observation]:
        """The views that it entered, and the final height of each page, since the last call."""
        notes = list(self._notes)
        self._notes.clear()
        return notes

    async def _run(self) -> None:
        while True:
            try:
                self.take(await asyncio.to_thread(self._client.status))
            except ClientError as error:
                self.miss(str(error))
            await asyncio.sleep(READ_EVERY_S)

    def take(self, page: Page) -> None:
        """Take a status page."""
        problem = self._problem(page)
        if problem:
            self.miss(problem)
            return
        height, view = page["height"], page["view"]
        if height:
            self._notes.append(HeightSeen(CLOCK.epoch_ms(), height))
        if view != self._state.view:
            self._notes.append(ViewSeen(CLOCK.epoch_ms(), view))
        self._read_s = self._now_s()
        self._state = LoopState(height=height, ready=True, view=view, diverged=page.get("diverged") is not None)

    def miss(self, why: str) -> None:
        """Take a failure to read the page. A node that was ready stays so until the last page is too old."""
        if not self._state.ready:
            self._state = LoopState(why_not_ready=why[:MAX_REASON])

    def _problem(self, page: Page) -> str:
        """What is wrong with a status page, in words; empty if nothing is."""
        for name in ("height", "view"):
            value = page.get(name)
            if type(value) is not int or not 0 <= value < HEIGHT_LIMIT:
                return f"{self.url}/status: {name}: expected an integer from 0 on"
        for name, expected in (("chain_id", self._chain_id), ("index", self._index)):
            if page.get(name) != expected:
                return f"{self.url}/status: {name}: expected {expected!r}, got {str(page.get(name))[:64]!r}"
        return ""
