"""A thread with an event loop, for an HTTP server of a process that does something else meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import uvloop
from starlette.types import ASGIApp

from cluster.live.web.addresses import Served
from cluster.live.web.server import HttpServer, serve

TIMEOUT_S: Final = 10.0
"""How long the start or the end of a server may take."""


class LoopThread:
    """A daemon thread that runs :attr:`loop` until :meth:`close`."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def serve(self, application: ASGIApp, served: Served) -> HttpServer:
        """Serve an application. Raises :class:`OSError` if the address cannot be bound; then the thread has ended."""
        started = serve(application, served.bind, served.port)
        try:
            return asyncio.run_coroutine_threadsafe(started, self.loop).result(TIMEOUT_S)
        except BaseException:
            self._end()
            raise

    def close(self, server: HttpServer) -> None:
        """End a server that :meth:`serve` started, and the thread."""
        asyncio.run_coroutine_threadsafe(server.close(), self.loop).result(TIMEOUT_S)
        self._end()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
