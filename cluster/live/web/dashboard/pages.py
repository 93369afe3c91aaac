"""The pages of a dashboard as a server's endpoints: a static page with its files, a snapshot, and a stream of updates.

All of them are read-only and need no token. A page asks for nothing but what this server serves; its content security
policy refuses the rest. The token that steering needs is typed by the user, or follows ``#token=`` in the address. No
browser sends that part of an address, so the token is in no request line and in no log.

Each update holds the whole current state, so only the newest one matters. A reader that is slower than the updates
misses those in between: nothing is queued for it, and whoever publishes never waits. A publisher need not build an
update while :attr:`Feed.is_wanted` is false. At most :data:`MAX_READERS` read at a time; no client (by address) has
more of them than its share (:mod:`cluster.live.web.shares`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cluster.common.files import STYLE_FILE, THEME_FILE
from cluster.common.wording import json_bytes
from cluster.live.web.connections import JSON
from cluster.live.web.server import Endpoint, EventStream, Page, client_of
from cluster.live.web.shares import NoShare, fits_share

MAX_READERS: Final = 32
HEARTBEAT_S: Final = 10.0
"""A stream without updates gets a comment this often, which detects dead connections."""
SNAPSHOT_TIMEOUT_S: Final = 2.0
"""How long a request for a snapshot waits for the publisher. Then it gets the newest state, however old."""
LAST_MESSAGE: Final = b"event: end\ndata: {}\n\n"


class Feed:
    """The newest state of a run, sent to every reader as server-sent events.

    :meth:`publish` and :meth:`close` may be called by any thread, all else by the loop's.

    A *snapshot* is all that a page needs to begin; an *update* is the part of it that changes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: Counter[str] = Counter()
        """Number of streams, keyed by client."""
        self._waiting = 0
        """Number of requests for a snapshot that wait for the publisher."""
        self._update: tuple[int, bytes] = (0, b"")
        """The newest update, with its number; 0 before there is one."""
        self._snapshot = b"{}"
        self._news = asyncio.Event()
        """Set, and replaced, at each change."""
        self._is_closed = False

    # --- publisher ----------------------------------------------------------------------------------------------------

    @property
    def is_wanted(self) -> bool:
        """Whether a client waits for an update or for a snapshot."""
        return bool(self._waiting or self._readers)

    @property
    def is_snapshot_wanted(self) -> bool:
        return bool(self._waiting)

    def publish(self, update: Page, snapshot: Page | None = None) -> None:
        """Publish a state. ``snapshot`` is needed only if :attr:`is_snapshot_wanted`."""
        self._update = (self._update[0] + 1, b"data: " + json_bytes(update) + b"\n\n")
        if snapshot is not None:
            self._snapshot = json_bytes(snapshot)
        self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End every stream, also those that begin later, after a last message."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # --- readers ------------------------------------------------------------------------------------------------------

    async def snapshot(self) -> bytes:
        """The next snapshot as JSON; the last one, or ``{}``, if there is none in time."""
        self._waiting += 1
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
        return self._snapshot

    def stream(self, client: str) -> EventStream:
        """A response with the updates from now on, for a client's address. Raises :class:`NoShare`."""
        held, own = self._readers.total(), self._readers[client]
        if held >= MAX_READERS or (own and not fits_share(MAX_READERS, held, own, 1)):
            raise NoShare("too many streams of updates")
        return EventStream(self.messages(), lambda: self.leave(client), lambda: self.enter(client))

    def enter(self, client: str) -> None:
        self._readers[client] += 1

    def leave(self, client: str) -> None:
        self._readers[client] -= 1
        if not self._readers[client]:
            del self._readers[client]

    async def messages(self) -> AsyncIterator[bytes]:
        """The messages of one reader's stream: whenever it can take one, the newest update that it does not have."""
        sent = self._update[0]
        yield b": updates\n\n"
        while True:
            news, (number, message) = self._news, self._update
            if number > sent:
                sent = number
                yield message
            elif self._is_closed:
                yield LAST_MESSAGE
                return
            else:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await news.wait()
                except TimeoutError:
                    yield b": nothing new\n\n"


FILES: Final = Path(__file__).parent
TESTNET: Final = "testnet"
SEEDS: Final = "seeds"
"""The pages, by the names of their files: that of a testnet, and that of a sweep or a fuzz."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
HTML, CSS, SCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"


def dashboard_table(page: str, feed: Feed) -> list[tuple[str, str, Endpoint]]:
    """The endpoints of a dashboard, for :func:`cluster.live.web.server.build_application`.

    ``page`` is :data:`TESTNET` or :data:`SEEDS`.
    """

    async def snapshot(_request: Request) -> Response:
        return Response(await feed.snapshot(), media_type=JSON, headers={"cache-control": "no-store"})

    async def updates(request: Request) -> Response:
        if request.method != "GET":  # a stream without a body would never notice that its client is gone
            return Response(media_type="text/event-stream")
        try:
            return feed.stream(client_of(request.scope))
        except NoShare as error:
            raise HTTPException(429, str(error)) from None

    return [
        ("GET", "/", _file(FILES / f"{page}.html", HTML)),
        ("GET", "/dashboard/style.css", _file(STYLE_FILE, CSS)),
        ("GET", "/dashboard/dashboard.css", _file(FILES / "dashboard.css", CSS)),
        ("GET", "/dashboard/theme.js", _file(THEME_FILE, SCRIPT)),
        ("GET", "/dashboard/connection.js", _file(FILES / "connection.js", SCRIPT)),
        ("GET", "/dashboard/page.js", _file(FILES / f"{page}.js", SCRIPT)),
        ("GET", "/dashboard", snapshot),
        ("GET", "/dashboard/updates", updates),
    ]


def _file(path: Path, media_type: str) -> Endpoint:
    async def serve(_request: Request) -> Response:
        return Response(_content(path), media_type=media_type, headers=HEADERS)

    return serve


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()
