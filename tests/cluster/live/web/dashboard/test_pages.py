"""The pages of a dashboard as they are served: complete, without anything from elsewhere, and read-only."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from cluster.common.files import STYLE_FILE, THEME_FILE
from cluster.live.driver.control.control_server import ControlServer
from cluster.live.web.dashboard.pages import FILES, POLICY
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
