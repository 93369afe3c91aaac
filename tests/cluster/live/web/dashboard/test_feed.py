"""The feed of a dashboard: the newest state for each reader, and no reader that holds up whoever publishes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from cluster.live.web.dashboard import feed as feeds
from cluster.live.web.dashboard.feed import LAST_MESSAGE, MAX_READERS, Feed
from cluster.live.web.shares import NoShare
from tests.hangs import HANGS_AFTER_S

Work = Callable[[Feed], Coroutine[Any, Any, None]]


def on_a_loop(work: Work) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANGS_AFTER_S):
            await work(Feed(asyncio.get_running_loop()))

    asyncio.run(main())


async def next_state(messages: AsyncIterator[bytes]) -> Any:
    """The next update; comments are skipped."""
    while True:
        message = await anext(messages)
        if not message.startswith(b":"):
            return json.loads(message.removeprefix(b"data: ").strip())


def test_a_reader_gets_each_state_that_it_is_in_time_for() -> None:
    async def work(feed: Feed) -> None:
        messages = feed.messages()
        assert (await anext(messages)).startswith(b":")
        for height in range(3):
            feed.publish({"height": height})
            assert await next_state(messages) == {"height": height}

    on_a_loop(work)


def test_a_slow_reader_misses_states_and_gets_the_newest() -> None:
    async def work(feed: Feed) -> None:
        slow, quick = feed.messages(), feed.messages()
        for reader in (slow, quick):
            await anext(reader)
        for height in range(1_000):
            feed.publish({"height": height})  # it returns at once, though nobody reads
            if height % 100 == 0:
                assert await next_state(quick) == {"height": height}
        assert await next_state(slow) == {"height": 999}
        feed.publish({"height": 1_000})
        assert await next_state(slow) == {"height": 1_000}

    on_a_loop(work)


def test_what_was_published_before_a_stream_is_not_repeated_in_it() -> None:
    async def work(feed: Feed) -> None:
        feed.publish({"height": 1})
        messages = feed.messages()
        await anext(messages)
        feed.publish({"height": 2})
        assert await next_state(messages) == {"height": 2}

    on_a_loop(work)


def test_a_snapshot_is_made_for_whoever_asks_and_only_then() -> None:
    async def work(feed: Feed) -> None:
        assert not feed.is_wanted
        asked = asyncio.create_task(feed.snapshot())
        while not feed.is_wanted:
            await asyncio.wait([asked], timeout=0.001)
        assert feed.is_snapshot_wanted
        feed.publish({"height": 1}, {"run": {}, "now": {"height": 1}})
        assert json.loads(await asked) == {"run": {}, "now": {"height": 1}}
        assert not feed.is_wanted

    on_a_loop(work)


def test_a_snapshot_that_nobody_makes_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "SNAPSHOT_TIMEOUT_S", 0.01)

    async def work(feed: Feed) -> None:
        assert await feed.snapshot() == b"{}"
        feed.publish({"height": 1}, {"now": {"height": 1}})
        assert json.loads(await feed.snapshot()) == {"now": {"height": 1}}
        assert not feed.is_wanted

    on_a_loop(work)


def test_a_stream_without_news_has_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT_S", 0.01)

    async def work(feed: Feed) -> None:
        messages = feed.messages()
        await anext(messages)
        assert await anext(messages) == b": nothing new\n\n"

    on_a_loop(work)


def test_every_stream_ends_with_the_newest_state_and_a_last_message() -> None:
    async def work(feed: Feed) -> None:
        before = feed.messages()
        await anext(before)
        feed.publish({"height": 9})
        feed.close()
        assert await next_state(before) == {"height": 9}
        assert await anext(before) == LAST_MESSAGE
        with pytest.raises(StopAsyncIteration):
            await anext(before)
        after = feed.messages()
        assert [message async for message in after][-1] == LAST_MESSAGE

    on_a_loop(work)


def test_readers_are_bounded_and_no_client_takes_all() -> None:
    async def work(feed: Feed) -> None:
        def enter_all() -> None:
            while True:
                feed.stream("a")
                feed.enter("a")
                held.append("a")

        held: list[str] = []
        with pytest.raises(NoShare):
            enter_all()
        most = len(held)
        assert 1 < most < MAX_READERS
        feed.stream("b")
        for other in range(most, MAX_READERS):
            feed.enter(f"c{other}")
        with pytest.raises(NoShare):
            feed.stream("b")
        feed.leave("a")
        feed.stream("b")

    on_a_loop(work)
