"""The pages of a dashboard as a server's endpoints: a static page with its files, a snapshot, and a stream of updates.

All of them are read-only and need no token. A page asks for nothing but what this server serves; its content security
policy refuses the rest. The token that steering needs is typed by the user, or follows ``#token=`` in the address. No
browser sends that part of an address, so the token is in no request line and in no log.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cluster.common.files import STYLE_FILE, THEME_FILE
from cluster.live.web.connections import JSON
from cluster.live.web.dashboard.feed import Feed
from cluster.live.web.server import Endpoint, client_of
from cluster.live.web.shares import NoShare

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
