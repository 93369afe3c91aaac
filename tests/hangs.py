"""The bound of each wait for an event. It ends a test that hangs, and says nothing of how fast a machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

HANGS_AFTER_S: Final = 300.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on an event loop, within the bound."""

    async def bounded() -> None:
        async with asyncio.timeout(HANGS_AFTER_S):
            await test()

    asyncio.run(bounded())
