"""A headless Chromium for the tests of pages, spoken to over the DevTools protocol by a pipe: no port, no library.

All waits are for answers of the browser, and bounded.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.hangs import HANGS_AFTER_S
from tests.tools import CHROMIUM, needs

END_S: Final = 10.0
READ_BYTES: Final = 1 << 20
PROTOCOL_DESCRIPTORS: Final = (3, 4)
"""Over which Chromium reads and writes the protocol."""
MIN_FREE_DESCRIPTOR: Final = 16

needs_chromium = needs(CHROMIUM)

DESK: Final = (1100, 900)
PHONE: Final = (360, 740)


class Browser:
    """One browser with one page."""

    def __init__(self, to_it: int, from_it: int) -> None:
        self.errors: list[str] = []
        """What the console and the page's scripts complained of."""
        self._to_it, self._from_it = to_it, from_it
        self._buffer = b""
        self._number = 0
        self._loaded: set[str] = set()
        """Loads that are done, by their ids."""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.requests: list[str] = []
        """Addresses that the page asked for."""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_it, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + HANGS_AFTER_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, page: Path | str, fragment: str = "", size: tuple[int, int] = DESK, dark: bool = False) -> None:
        """Show a file or an address, at a size of the screen, until it is loaded."""
        self.errors.clear()
        self.requests.clear()
        width, height = size
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._load("about:blank")
        self._load((page if isinstance(page, str) else page.as_uri()) + fragment)
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _load(self, address: str) -> None:
        load = self.call("Page.navigate", url=address)["loaderId"]
        deadline = time.monotonic() + HANGS_AFTER_S
        while load not in self._loaded:
            self._next(deadline)

    def evaluate(self, script: str) -> Any:
        """The value of an expression of the page's."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression of the page's is true."""
        look = f"const look = () => (({condition}) ? done(true) : setTimeout(look, 20)); look();"
        assert self.evaluate(f"new Promise((done) => {{ {look} }})")

    def screenshot(self, path: Path, full: bool = True) -> None:
        """Draw the page into a file, to its end or as far as the screen shows it."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, full: bool) -> dict[str, Any]:
        if not full:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._from_it], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, "the browser does not answer"
            data = os.read(self._from_it, READ_BYTES)
            assert data, "the browser ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        match method:
            case "Page.lifecycleEvent" if told["name"] == "load":
                self._loaded.add(told["loaderId"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.errors.append(str(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.errors.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser, until the end of the block; what it keeps goes into ``profile``."""
    child_in, to_it = os.pipe()
    from_it, child_out = os.pipe()
    process = _start(profile, child_in, child_out)
    try:
        yield Browser(to_it, from_it)
    finally:
        os.close(to_it)  # which ends it
        os.close(from_it)
        _end(process)


def _start(profile: Path, reads: int, writes: int) -> int:
    """Start it with the two ends of pipes that it speaks the protocol over; returns its process id."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--hide-scrollbars", f"--user-data-dir={profile}", "--remote-debugging-pipe",
    ]  # fmt: skip
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, MIN_FREE_DESCRIPTOR) for end in (reads, writes)]
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    placed = [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(ends, PROTOCOL_DESCRIPTORS, strict=True)]
    process = os.posix_spawn(command[0], command, os.environ, file_actions=[*quiet, *placed])
    for end in (reads, writes, *ends):
        os.close(end)
    return process


def _end(process: int) -> None:
    handle = os.pidfd_open(process)
    ended, _, _ = select.select([handle], [], [], END_S)
    os.close(handle)
    if not ended:
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
