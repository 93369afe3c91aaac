"""The bound of each wait for an event. It ends a test that hangs, and says nothing of how fast a machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

HANGS_AFTER_S: Final = 300.0

P = ParamSpec("P")


def bounded(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that runs on an event loop, within the bound."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        async def within_bound() -> None:
            async with asyncio.timeout(HANGS_AFTER_S):
                await test(*arguments, **named)

        asyncio.run(within_bound())

    return run
