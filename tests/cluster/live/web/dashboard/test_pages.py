"""The pages of a dashboard as they are served: complete, without anything from elsewhere, and read-only."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import urllib3

from cluster.common.files import STYLE_FILE, THEME_FILE
from cluster.live.driver.control_server import ControlServer
from cluster.live.web.dashboard import pages
from cluster.live.web.dashboard.pages import FILES, LAST_MESSAGE, MAX_READERS, POLICY, Feed
from cluster.live.web.shares import NoShare
from tests.cluster.live.web.dashboard.states import snapshot, update
from tests.hangs import HANGS_AFTER_S

PUBLISHED = 400
MAX_PUBLISHING_S = 5.0
"""For all of :data:`PUBLISHED` updates, of 40 KB each, while a reader reads nothing. It takes some 0.1 s."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    running = ControlServer(tmp_path)
    yield running
    running.close()


def get(server: ControlServer, path: str, method: str = "GET") -> urllib3.BaseHTTPResponse:
    return urllib3.request(method, server.url + path, retries=False, timeout=HANGS_AFTER_S)


def test_the_page_and_its_files_are_served(server: ControlServer) -> None:
    page = get(server, "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == POLICY
    named = re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page.data.decode())
    assert len(named) == 5
    for name in named:
        file = get(server, f"/{name}")
        assert file.status == 200 and file.data, name
        assert file.headers["x-content-type-options"] == "nosniff"


def test_a_pages_policy_lets_nothing_in_from_elsewhere() -> None:
    allowed = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert allowed["default-src"] == "'none'"
    assert {sources for name, sources in allowed.items() if name != "img-src"} <= {"'none'", "'self'"}
    assert allowed["img-src"] == "data:"


def references(text: str) -> list[str]:
    """What a page, a style or a script names that is not on its own server."""
    found = re.findall(r"""(?:https?:|wss?:)?//[\w.-]+|@import[^;]*|url\((?!["']?data:)[^)]*\)""", text)
    return [each for each in found if each != "http://www.w3.org"]  # the name of SVG, which nobody fetches


@pytest.mark.parametrize(
    "path", [STYLE_FILE, THEME_FILE, *sorted(FILES.glob("*.[hcj][ts]*"))], ids=lambda path: path.name
)
def test_a_file_has_no_external_reference(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = "\n".join(re.sub(r"(?<![:\"'`])//\s.*", "", line) for line in text.splitlines())
    assert references(code) == []
    assert " style=" not in text and "onclick=" not in text, "the policy would refuse it"


@pytest.mark.parametrize(
    "text",
    ["<script src='https://a.b/c.js'>", "@import 'x.css';", "a { background: url(//a.b/c.png) }", "fetch('//a.b')"],
)
def test_an_external_reference_is_found(text: str) -> None:
    assert references(text)


def test_a_snapshot_and_the_updates_after_it(server: ControlServer) -> None:
    feed, is_done = server.dashboard, threading.Event()

    def drive() -> None:
        number = 0
        while not is_done.wait(0.01):
            if feed.is_wanted:
                number += 1
                feed.publish(update(number), snapshot(number) if feed.is_snapshot_wanted else None)

    with ThreadPoolExecutor(1) as driver:
        driving = driver.submit(drive)
        try:
            first = json.loads(get(server, "/dashboard").data)["now"]["height"]
            answer = urllib3.request(
                "GET", f"{server.url}/dashboard/updates", preload_content=False, retries=False, timeout=HANGS_AFTER_S
            )
            heights: list[int] = []
            for line in answer:
                if line.startswith(b"data: "):
                    heights.append(json.loads(line.removeprefix(b"data: "))["height"])
                if len(heights) == 3:
                    break
            answer.release_conn()
        finally:
            is_done.set()
        driving.result(HANGS_AFTER_S)
    assert first < heights[0] and heights == sorted(set(heights))


def test_no_update_is_made_for_nobody_and_head_is_no_stream(server: ControlServer) -> None:
    assert not server.dashboard.is_wanted
    assert get(server, "/dashboard/updates", "HEAD").status == 200
    assert not server.dashboard.is_wanted


def test_a_reader_that_reads_nothing_delays_nobody(server: ControlServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with socket.socket() as reader, ThreadPoolExecutor(1) as driver:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(HANGS_AFTER_S)
        reader.connect(("127.0.0.1", port))
        reader.sendall(b"GET /dashboard/updates HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reader.recv(16).startswith(b"HTTP/1.1 200")
        big = [update(number, count=64, per_update=12, notices=["x" * 1_000] * 32) for number in range(PUBLISHED)]

        def publish() -> None:
            for each in big:
                server.dashboard.publish(each)

        driver.submit(publish).result(MAX_PUBLISHING_S)
        assert get(server, "/status").status == 200
        reader.settimeout(HANGS_AFTER_S)
        received = b""
        while b'"at_ms":%d,' % big[-1]["at_ms"] not in received[-100_000:]:
            received += reader.recv(1 << 20)
        assert received.count(b"data: ") < PUBLISHED, "what it missed is not sent later"


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
    monkeypatch.setattr(pages, "SNAPSHOT_TIMEOUT_S", 0.01)

    async def work(feed: Feed) -> None:
        assert await feed.snapshot() == b"{}"
        feed.publish({"height": 1}, {"now": {"height": 1}})
        assert json.loads(await feed.snapshot()) == {"now": {"height": 1}}
        assert not feed.is_wanted

    on_a_loop(work)


def test_a_stream_without_news_has_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "HEARTBEAT_S", 0.01)

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
