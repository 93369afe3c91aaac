"""An external validator as its host sees it: its status page, how long that counts, and why it is not ready."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.live.host import host as host_module
from cluster.live.host.external import STALE_S, ExternalWatch
from cluster.live.host.host import ValidatorHost
from cluster.live.host.observations import HeightSeen, ViewSeen
from cluster.scenario import Scenario
from tests.cluster.records import OUTSIDER_KEY
from tests.hangs import bounded

URL = "http://192.0.2.7:7001"
PAGE = {"chain_id": "chain", "index": 3, "height": 5, "view": 8}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> ExternalWatch:
    return ExternalWatch(URL, 3, "chain", clock)


def test_its_state_is_that_of_the_last_page(watch: ExternalWatch) -> None:
    assert not watch.state.ready and "was not asked yet" in watch.state.why_not_ready
    watch.take(PAGE)
    state = watch.state
    assert (state.ready, state.height, state.view, state.diverged, state.why_not_ready) == (True, 5, 8, False, "")
    watch.take({**PAGE, "height": 6, "view": 9, "diverged": {"height": 6}})
    assert (watch.state.height, watch.state.view, watch.state.diverged) == (6, 9, True)


def test_views_are_noted_once_and_heights_with_each_page(watch: ExternalWatch) -> None:
    for page in ({**PAGE, "height": 0}, PAGE, PAGE, {**PAGE, "view": 9}, {**PAGE, "height": 7, "view": 9}):
        watch.take(page)
    notes = watch.drain()
    assert [each.height for each in notes if isinstance(each, HeightSeen)] == [5, 5, 5, 7]
    assert [each.view for each in notes if isinstance(each, ViewSeen)] == [8, 9]
    assert watch.drain() == []


def test_a_page_that_is_missed_once_changes_nothing_and_an_old_one_does_not_count(
    watch: ExternalWatch, clock: Clock
) -> None:
    watch.miss("connection refused")
    assert watch.state.why_not_ready == "connection refused"
    watch.take(PAGE)
    watch.miss("timeout")
    clock.now_s += STALE_S
    assert watch.state.ready
    clock.now_s += 0.1
    assert not watch.state.ready and "does not answer any more" in watch.state.why_not_ready
    watch.take(PAGE)
    assert watch.state.ready


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"chain_id": "another"}, "chain_id: expected 'chain', got 'another'"),
        ({"index": 2}, "index: expected 3, got '2'"),
        ({"height": "5"}, "height: expected an integer"),
        ({"height": -1}, "height: expected an integer"),
        ({"view": True}, "view: expected an integer"),
        ({"view": 2**64}, "view: expected an integer"),
    ],
)
def test_a_page_that_is_not_of_this_validator_is_a_reason(
    watch: ExternalWatch, changes: dict[str, Any], problem: str
) -> None:
    watch.take({**PAGE, **changes})
    assert not watch.state.ready and problem in watch.state.why_not_ready


@bounded
async def test_a_host_watches_it_and_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host reads the page of a node that serves one, and reports the node as a validator."""

    for name in ("_log_to", "logging.shutdown"):
        monkeypatch.setattr(f"{host_module.__name__}.{name}", lambda *_: None)

    async def serve(port: asyncio.Future[int], ended: asyncio.Event) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = json.dumps({**PAGE, "chain_id": "stampede-outsider-3", "index": 0}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.set_result(server.sockets[0].getsockname()[1])
        await ended.wait()
        server.close()

    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    serving = asyncio.create_task(serve(port, ended))
    external = {"public_key": OUTSIDER_KEY, "address": "127.0.0.1:7", "http": f"127.0.0.1:{await port}"}
    scenario = Scenario.model_validate({"name": "outsider", "validators": [{"external": external}, None]})
    made = (str(tmp_path), scenario.model_dump_json(), 3, 0, "127.0.0.1")
    host = await asyncio.to_thread(ValidatorHost, *made)
    (address,) = await asyncio.to_thread(host.start)
    assert (address.index, address.peers, address.url) == (0, ("127.0.0.1", 7), f"http://127.0.0.1:{await port}")
    while not (view := (await asyncio.to_thread(host.observe)).validators[0]).state.ready:
        await asyncio.to_thread(int)
    assert (view.state.height, view.state.view, view.use is None or view.disk_bytes == 0) == (5, 8, True)
    assert not (tmp_path / "data" / "validator-0").exists()
    await asyncio.to_thread(host.set_peers, {})
    await asyncio.to_thread(host.allow_pruning, {0: 3})
    await asyncio.to_thread(host.freeze)
    await asyncio.to_thread(host.stop)
    ended.set()
    await serving
