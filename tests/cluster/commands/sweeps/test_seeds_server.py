"""The server of a sweep's dashboard: its state while it changes, reports of seeds that failed, and its last words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from cluster.commands.sweeps import seeds_server
from cluster.commands.sweeps.seeds_server import SeedsServer
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.live.web.server import Page
from tests.hangs import HANGS_AFTER_S


class Counting:
    """A sweep of which one more seed is done at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def update(self) -> Page:
        self.looks += 1
        return {"done": self.looks}

    def snapshot(self) -> Page:
        return {"run": {"total": 9}, "now": self.update(), "history": []}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SeedsServer]:
    monkeypatch.setattr(seeds_server, "LOOK_EVERY_S", 0.01)
    running = SeedsServer(Counting(), tmp_path, ON_THE_LOOPBACK)
    yield running
    running.close()


def get(server: SeedsServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    answer = urllib3.request(method, server.url + path, retries=False, timeout=HANGS_AFTER_S)
    return answer.status, answer.headers["content-type"], answer.data.decode()


def test_it_is_looked_at_only_while_a_client_waits(server: SeedsServer) -> None:
    view = server._view
    assert isinstance(view, Counting)
    status, _, page = get(server, "/")
    assert status == 200 and "Seeds that did not pass" in page and view.looks == 0
    assert json.loads(get(server, "/dashboard")[2])["run"] == {"total": 9}
    assert view.looks > 0


def test_updates_come_until_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_server, "LOOK_EVERY_S", 0.01)
    view = Counting()
    server = SeedsServer(view, tmp_path, ON_THE_LOOPBACK)
    stream = urllib3.request(
        "GET", f"{server.url}/dashboard/updates", preload_content=False, retries=False, timeout=HANGS_AFTER_S
    )
    lines = iter(stream)
    seen: list[int] = []
    while len(seen) < 3:
        line = next(lines)
        if line.startswith(b"data: "):
            seen.append(json.loads(line.removeprefix(b"data: "))["done"])
    server.close()
    rest = [line for line in lines if line.strip()]
    assert rest[-2:] == [b"event: end\n", b"data: {}\n"]
    assert json.loads(rest[-3].removeprefix(b"data: ")) == {"done": view.looks} and seen == sorted(set(seen))


def test_the_report_of_a_failed_seed_is_served_or_its_traceback(server: SeedsServer, tmp_path: Path) -> None:
    for seed, file in ((7, "report.html"), (8, "traceback.txt")):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}" / file).write_text(f"<p>of {seed}")
    (tmp_path / "report.html").write_text("not of a seed")
    status, kind, text = get(server, "/seeds/7")
    assert (status, text) == (200, "<p>of 7") and kind.startswith("text/html")
    status, kind, text = get(server, "/seeds/8")
    assert (status, text) == (200, "<p>of 8") and kind.startswith("text/plain")
    for path in ("/seeds/9", "/seeds/-1", "/seeds/7x", "/seeds/٧", "/seeds/..%2f..", "/seeds/" + "1" * 99):
        assert get(server, path)[0] == 404
    assert get(server, "/seeds/7", "POST")[0] == 405
