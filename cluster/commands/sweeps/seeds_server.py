"""The HTTP server of a sweep or a fuzz that goes on: its dashboard, and the reports of seeds that did not pass.

Everything is read-only: there is nothing to steer, and no token. The state is read a few times a second, and only while
a client waits for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cluster.common.limits import MAX_SEED
from cluster.live.web.addresses import Served
from cluster.live.web.dashboard.pages import HTML, SEEDS, Feed, dashboard_table
from cluster.live.web.server import LoopThread, Page, Rate, build_application
from cluster.record.folder import REPORT_FILE, TRACEBACK_FILE, seed_folder
from validator.primitives.types import parse_decimal

CLIENT_RATE: Final = Rate(50, 100)
LOOK_EVERY_S: Final = 0.25


class SeedsView(Protocol):
    """The state of a sweep. It is read by the server's thread while the sweep changes it."""

    def update(self) -> Page: ...

    def snapshot(self) -> Page: ...


class SeedsServer:
    """Serves a sweep's dashboard on a thread, until :meth:`close`."""

    def __init__(self, view: SeedsView, folder: Path, served: Served) -> None:
        """``folder`` holds the folders of seeds that did not pass. Raises :class:`OSError`."""
        self._view = view
        self._folder = folder
        self._thread = LoopThread("sweep dashboard")
        self._feed = Feed(self._thread.loop)
        table = [*dashboard_table(SEEDS, self._feed), ("GET", "/seeds/{seed}", self._report)]
        self._server = self._thread.serve(build_application(table, Counter(), CLIENT_RATE), served)
        self._looking = asyncio.run_coroutine_threadsafe(self._look(), self._thread.loop)

    @property
    def url(self) -> str:
        return self._server.url

    def close(self) -> None:
        """Publish the last state, end every stream, and end the server."""
        self._looking.cancel()
        self._publish()
        self._feed.close()
        self._thread.close(self._server)

    async def _look(self) -> None:
        while True:
            if self._feed.is_wanted:
                self._publish()
            await asyncio.sleep(LOOK_EVERY_S)

    def _publish(self) -> None:
        self._feed.publish(self._view.update(), self._view.snapshot() if self._feed.is_snapshot_wanted else None)

    async def _report(self, request: Request) -> Response:
        """The report of a seed that did not pass, or the traceback of one that crashed."""
        seed = parse_decimal(request.path_params["seed"], MAX_SEED)
        if seed is None:
            raise HTTPException(404, "expected the number of a seed")
        left = self._folder / seed_folder(seed)
        for file, media_type in ((REPORT_FILE, HTML), (TRACEBACK_FILE, "text/plain; charset=utf-8")):
            if (left / file).is_file():
                data = await asyncio.to_thread((left / file).read_bytes)
                return Response(data, media_type=media_type, headers={"x-content-type-options": "nosniff"})
        raise HTTPException(404, f"seed {seed} left no report")
