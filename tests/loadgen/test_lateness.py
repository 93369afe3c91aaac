"""What late transactions of real Locust processes are put down to. Each cause is planted alone."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from loadgen.runplan import LateCause, Statistics
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.loadgen.own_workloads import acting, group
from tests.loadgen.test_run import LoadProcess, write_plan

pytestmark = pytest.mark.slow

SLOW_S = 0.3
TAKEN = 40


class SlowPages(FakePages):
    """A validator that takes its time to answer."""

    async def submit(self, transactions: list[bytes]) -> Any:
        answer: asyncio.Future[None] = asyncio.Future()
        answer.get_loop().call_later(SLOW_S, answer.set_result, None)
        await answer
        return await super().submit(transactions)


def statistics(folder: Path, pages: FakePages, users: list[dict[str, Any]]) -> Statistics:
    """Of an open load that ends after :data:`TAKEN` transactions."""
    opened = [user | {"arrival": "open"} for user in users]
    with (
        ServerThread(pages) as server,
        LoadProcess(write_plan(folder, [server.url], load={"processes": 1, "users": opened})) as load,
    ):
        assert pages._chain.wait_for_taken(TAKEN, HANGS_AFTER_S)
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0
        return load.statistics()


def main_cause(found: Statistics) -> LateCause:
    assert sum(found.late_by_cause.values()) == found.sends.late > 10
    return max(found.late_by_cause, key=lambda cause: found.late_by_cause[cause])


def test_a_process_that_is_behind(tmp_path: Path) -> None:
    """Its turns take more time than there is, one user's after the other's."""
    busy = ["import time", "end = time.monotonic() + 0.02", "while time.monotonic() < end: pass"]
    users = [group(acting(*busy, "return [self.pay()]"), count=8, interval_ms=100)]
    assert main_cause(statistics(tmp_path, FakePages(FakeChain(), 0), users)) is LateCause.LOOP


def test_a_validator_that_answers_late(tmp_path: Path) -> None:
    users = [{"workload": "transfer", "count": 8, "interval_ms": 80}]
    assert main_cause(statistics(tmp_path, SlowPages(FakeChain(), 0), users)) is LateCause.ANSWERS


def test_users_with_as_much_under_way_as_they_may_have(tmp_path: Path) -> None:
    users = [{"workload": "transfer", "count": 2, "interval_ms": 15}]
    assert main_cause(statistics(tmp_path, FakePages(FakeChain(), 0), users)) is LateCause.UNCONFIRMED
