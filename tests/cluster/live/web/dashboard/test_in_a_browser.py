"""The dashboard in headless Chromium: live, light and dark, desk and phone; it steers only with the run's token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.sweeps.seeds_server import SeedsServer
from cluster.common.errors import BadInput
from cluster.live.driver.control_server import AddFault, ControlServer, Order, SetLoad, StopRun
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.live.web.dashboard import pages
from tests.cluster.browser import DESK, PHONE, Browser, chromium, needs_chromium
from tests.cluster.live.web.dashboard.states import snapshot, update
from tests.hangs import HANGS_AFTER_S

SIZES = {"desk": DESK, "phone": PHONE}
WAIT_S = 0.02
HEIGHT = "Number(document.querySelector('#tiles dd').textContent.replaceAll(',', ''))"
"""The height that the page shows."""
BLOCKS_PER_SECOND = 50
UPDATES_MEASURED = 20
MAX_UPDATE_MS = 50.0
"""Processor time of the page's thread for an update, drawing included: a frame that takes longer is a stutter."""

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


class Driver:
    """Publishes the states of a testnet as a driver does, and performs what it is told."""

    def __init__(self, server: ControlServer, count: int, regions: int, wait_s: float) -> None:
        self.server = server
        self.performed: list[Order] = []
        self.changes: dict[str, Any] = {}
        self.number = 1
        self.is_stopped = threading.Event()
        self._count, self._regions, self._wait_s = count, regions, wait_s
        self._is_done = threading.Event()

    def drive(self) -> None:
        feed = self.server.dashboard
        while not self._is_done.wait(self._wait_s):
            while not self.server.orders.empty():
                self._perform(self.server.orders.get_nowait())
            if feed.is_wanted:
                self.number += 1
                now, blocks = (self.number, self._count), max(2, round(BLOCKS_PER_SECOND * self._wait_s))
                page = snapshot(*now, self._regions, blocks, **self.changes) if feed.is_snapshot_wanted else None
                feed.publish(update(*now, blocks, **self.changes), page)

    def end(self) -> None:
        self._is_done.set()

    def _perform(self, order: Order) -> None:
        self.performed.append(order)
        match order:
            case AddFault(fields, answer) if "target" in fields:
                answer.set_result({**fields, "at_ms": 1_500})
            case AddFault(_, answer):
                answer.set_exception(BadInput("target: expected a validator"))
            case SetLoad(is_on, answer):
                self.changes = {**self.changes, "load": "running" if is_on else "stopped"}
                answer.set_result({"load": self.changes["load"]})
            case StopRun():
                self.is_stopped.set()


@contextmanager
def driven(folder: Path, count: int = 4, regions: int = 0, wait_s: float = WAIT_S) -> Iterator[Driver]:
    server = ControlServer(folder)
    driver = Driver(server, count, regions, wait_s)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(driver.drive)
        try:
            yield driver
        finally:
            driver.end()
            server.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Driver]:
    with driven(folder) as running:
        yield running


def text(browser: Browser, ident: str) -> str:
    return str(browser.evaluate(f"document.getElementById({json.dumps(ident)}).textContent"))


def overflowing(browser: Browser) -> list[str]:
    """What sticks out of the page, apart from what scrolls."""
    found: list[str] = browser.evaluate(
        "[...document.querySelectorAll('main *')].filter((each) => !each.closest('.scroll')"
        " && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 200))"
    )
    return found


def covered(browser: Browser, selector: str, first: str = "") -> list[int]:
    """Numbers of the elements that lie upon an earlier one. ``first`` is done to ``each`` before."""
    boxes = browser.evaluate(
        f"[...document.querySelectorAll('{selector}')].map((each) => {{ {first} return each; }})"
        ".map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.top, box.right, box.bottom])"
    )
    return [
        number
        for number, (left, top, right, bottom) in enumerate(boxes)
        if any(left < r and right > x and top < b and bottom > y for x, y, r, b in boxes[:number])
    ]


def show(browser: Browser, driver: Driver, size: str = "desk", dark: bool = False, token: str = "") -> None:
    browser.open(driver.server.url + "/", f"#token={token}" if token else "", SIZES[size], dark)
    browser.until("document.querySelectorAll('#validators tr').length && document.querySelector('#tiles dd')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_lives_and_fits_without_complaint(browser: Browser, driver: Driver, size: str, dark: bool) -> None:
    show(browser, driver, size, dark)
    first = driver.number
    browser.until(f"{HEIGHT} > {2 * first + 5}")
    assert overflowing(browser) == []
    assert text(browser, "connection") == "Connected" and text(browser, "title") == "a-scenario"
    assert (
        browser.evaluate("document.querySelectorAll('#graph .node.up.finalize, #graph .node.up.notarize').length") == 4
    )
    assert browser.evaluate("document.querySelectorAll('#checks .pass').length") == 7
    assert browser.evaluate("document.querySelectorAll('#blocks .block').length") > 3
    assert "kill of validator-1" in text(browser, "faults") and "900 in the ring" in text(browser, "tiers")
    assert {each.removeprefix(driver.server.url).split("/")[1] for each in browser.requests if "://" in each} <= {
        "", "dashboard",
    }  # fmt: skip
    assert browser.errors == []


@pytest.mark.parametrize("size", SIZES)
def test_regions_are_drawn_with_their_latencies(browser: Browser, tmp_path: Path, size: str) -> None:
    with driven(tmp_path, 64, 4) as driver:
        show(browser, driver, size)
        assert overflowing(browser) == []
        shown = browser.evaluate("[...document.querySelectorAll('#graph .region')].map((each) => each.textContent)")
        assert shown == ["east", "west", "north", "south"]
        assert browser.evaluate("document.querySelectorAll('#graph .node').length") == 64
        labels = browser.evaluate("[...document.querySelectorAll('#graph .latency')].map((each) => each.textContent)")
        assert set(labels) == {"40 ms"} and len(labels) < 6, "there is not room for all"
        boxes = browser.evaluate(
            "[...document.querySelectorAll('#graph .body')].map((each) => each.getBoundingClientRect())"
            ".map((box) => [box.x, box.y, box.width])"
        )
    for place, (x, y, width) in enumerate(boxes):
        for other_x, other_y, _ in boxes[place + 1 :]:
            assert (x - other_x) ** 2 + (y - other_y) ** 2 >= width**2, "validators are not drawn upon each other"


def test_latencies_of_lines_that_cross_do_not_lie_upon_each_other(browser: Browser, tmp_path: Path) -> None:
    with driven(tmp_path, 64, 4) as driver:
        browser.open(driver.server.url + "/", size=(1280, 900))
        browser.until("document.querySelectorAll('#graph .latency').length === 6")
        assert covered(browser, "#graph .latency") == []
        planted = "each.setAttribute('x', 9); each.setAttribute('y', 9);"
        assert covered(browser, "#graph .latency", planted) == [1, 2, 3, 4, 5]
        hosts = browser.evaluate("[...document.getElementById('log-name').options].map((each) => each.text)")
        assert hosts[0] == "host 0: validator-0, validator-12, validator-24 and 3 more"


def update_ms(browser: Browser) -> float:
    """The processor time that the page's thread spends on an update, in milliseconds."""

    def spent_s() -> float:
        metrics = browser.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    seen = "new MutationObserver(() => window.drawn++).observe(document.querySelector('#tiles dd'), {childList: true})"
    browser.evaluate(f"'drawn' in window || {seen}; window.drawn = 0")
    before_s = spent_s()
    browser.until(f"window.drawn >= {UPDATES_MEASURED}")
    return 1_000 * (spent_s() - before_s) / float(browser.evaluate("window.drawn"))


@pytest.mark.slow
def test_64_validators_at_50_blocks_a_second_leave_the_page_time(browser: Browser, tmp_path: Path) -> None:
    browser.call("Performance.enable", timeDomain="threadTicks")
    try:
        with driven(tmp_path, 64, 4, wait_s=0.1) as driver:
            show(browser, driver)
            assert update_ms(browser) < MAX_UPDATE_MS
            busy = "let sum = 0; for (let step = 0; step < 2e8; step++) sum += step;"
            slow = f"requestAnimationFrame = (draw) => frame(() => {{ {busy} draw(); }});"
            browser.evaluate(f"(() => {{ const frame = requestAnimationFrame; {slow} }})()")
            assert update_ms(browser) > MAX_UPDATE_MS, "a page that is busy would be found"
    finally:
        browser.call("Performance.disable")


def test_violations_problems_and_what_validators_do_is_shown(browser: Browser, driver: Driver) -> None:
    violated = update(1)["audit"] | {"violations": {"timers": 2}, "told": ["timers: <b>a timer</b> fired twice"]}
    violated |= {"blocks": 3, "compared": 0}
    states = [
        ["down", None, None, 3, 3, 3],
        ["up", 1, 1, 1, 0, 0],
        ["up", 900, 901, 3, 901, 3],
        ["joining", None, 0, 0, 0, 0],
    ]
    driver.changes = {"audit": violated, "problems": ["host 1 was lost"], "validators": states, "height": 900}
    try:
        show(browser, driver, "phone")
        assert overflowing(browser) == []
        assert text(browser, "violations") == "timers: <b>a timer</b> fired twice", "texts are never markup"
        assert text(browser, "audited").startswith("3 blocks were fetched. Not every validator was asked")
        assert "2 violations" in text(browser, "checks") and text(browser, "problems") == "host 1 was lost"
        classes = browser.evaluate(
            "[...document.querySelectorAll('#graph .node')].map((e) => e.getAttribute('class').trim())"
        )
        assert classes == ["node down finalize", "node up notarize", "node up nullify", "node joining"]
        assert "−899" in text(browser, "graph"), "one that is behind says how far"
    finally:
        driver.changes = {}


def steer(browser: Browser, press: str) -> str:
    """The answer to a press of a button."""
    browser.evaluate("document.getElementById('answer').textContent = ''")
    browser.evaluate(press)
    browser.until("!['', '…'].includes(document.getElementById('answer').textContent)")
    return text(browser, "answer")


def test_without_the_token_every_button_is_refused_and_nothing_is_performed(browser: Browser, driver: Driver) -> None:
    show(browser, driver, token="wrong")
    before = list(driver.performed)
    presses = [
        "document.getElementById('load-off').click()",
        "document.getElementById('fault-form').requestSubmit()",
        "document.getElementById('stop').click(), document.getElementById('stop').click()",
    ]
    for press in presses:
        assert "needs the run's token" in steer(browser, press)
    browser.evaluate("document.getElementById('log-show').click()")
    browser.until("document.getElementById('log-note').textContent.includes('needs the run')")
    assert driver.performed == before


def test_with_the_token_the_testnet_is_steered(browser: Browser, driver: Driver, folder: Path) -> None:
    token = (folder / "token").read_text(encoding="utf-8").strip()
    (folder / "logs").mkdir()
    (folder / "logs" / "host-1.log").write_text("one line\n<b>another</b>\n", encoding="utf-8")
    show(browser, driver, token=token)
    assert browser.evaluate("location.href") == driver.server.url + "/", "the token is not left in the address"
    assert not any(token in each for each in browser.requests), "nor is it in an address that is asked for"
    driver.performed.clear()
    assert steer(browser, "document.getElementById('load-off').click()") == "The load stops."
    browser.until("!document.getElementById('load-on').disabled")
    assert steer(browser, "document.getElementById('load-on').click()") == "The load starts."
    choose = "const k = document.getElementById('fault-kind'); k.value = '1'; k.dispatchEvent(new Event('change'));"
    browser.evaluate(f"{{ {choose} }}")
    inject = "document.getElementById('fault-form').requestSubmit()"
    assert steer(browser, inject) == "Added: pause at 1.5 s."
    browser.evaluate("document.getElementById('fault-fields').value = '{\"kind\": \"kill\"}'")
    assert steer(browser, inject) == "target: expected a validator"
    browser.evaluate("document.getElementById('fault-fields').value = 'kill'")
    assert steer(browser, inject).startswith("No JSON")
    browser.evaluate("document.querySelectorAll('#validators button')[1].click()")
    browser.until("!document.getElementById('log').hidden")
    assert text(browser, "log") == "one line\n<b>another</b>\n"
    browser.evaluate("document.getElementById('stop').click()")
    assert text(browser, "stop") == "End the run now?", "it asks first"
    assert steer(browser, "document.getElementById('stop').click()").startswith("The run ends")
    assert driver.is_stopped.wait(HANGS_AFTER_S)
    performed: list[Any] = [type(order) for order in driver.performed]
    assert performed == [SetLoad, SetLoad, AddFault, AddFault, StopRun]
    fault = driver.performed[2]
    assert isinstance(fault, AddFault) and fault.fields == {"kind": "pause", "target": "leader", "for_ms": 3_000}
    assert [each for each in browser.errors if "400 (Bad Request)" not in each] == []


class Sweep:
    """A sweep with one failed seed, whose text looks like markup."""

    def update(self) -> dict[str, Any]:
        kept = [
            {"seed": 7, "word": "failed", "why": "timers: <b>late</b>", "again": "x", "has_report": True},
            {"seed": 9, "word": "undecided", "why": "too little happened", "again": "y", "has_report": False},
        ]  # fmt: skip
        return {
            "at_ms": 5_000, "done": 9, "passed": 7, "failed": 1, "undecided": 1, "added": 9, "heights": 400,
            "fires": 99, "faults": {"kill": 3, "one_way_partition": 1}, "reached": {"backlog": 4, "messages": 0},
            "kept": kept,
        }  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        about = {"title": "fuzz of a-scenario-with-a-long-name", "commit": "0123456789abcdef", "total": 20}
        return {"run": about, "now": self.update(), "history": []}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_a_sweep_is_shown_and_fits(browser: Browser, tmp_path: Path, size: str, dark: bool) -> None:
    server = SeedsServer(Sweep(), tmp_path, ON_THE_LOOPBACK)
    try:
        browser.open(server.url + "/", "", SIZES[size], dark)
        browser.until("document.querySelectorAll('#kept tr').length == 2 && connection.textContent == 'Connected'")
        assert overflowing(browser) == []
        assert text(browser, "stage-word") == "1 failed"
        assert "timers: <b>late</b>" in text(browser, "kept") and "too little happened" in text(browser, "kept")
        links = browser.evaluate("[...document.querySelectorAll('#kept a')].map((each) => each.getAttribute('href'))")
        assert links == ["seeds/7"], "only a failed seed left a report"
        assert text(browser, "reached-count") == "1 of 2 reached"
        assert text(browser, "reached").startswith("messages none yet")
        assert "one way partition 1" in text(browser, "faults")
        widths = browser.evaluate("[...document.querySelectorAll('#progress i')].map((each) => each.style.width)")
        assert widths == ["35%", "5%", "5%"]
        assert browser.errors == []
    finally:
        server.close()


def test_a_page_that_outlives_its_testnet_says_so(browser: Browser, tmp_path: Path) -> None:
    with driven(tmp_path) as driver:
        show(browser, driver)
    browser.until("document.getElementById('connection').textContent.startsWith('Over')")
    assert browser.evaluate("document.body.classList.contains('over')")


def test_a_page_of_a_testnet_that_shows_nothing_yet_waits(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SNAPSHOT_TIMEOUT_S", 0.05)
    server = ControlServer(tmp_path)
    try:
        browser.open(server.url + "/")
        browser.until("document.getElementById('connection').textContent.startsWith('Connected: nothing')")
    finally:
        server.close()
