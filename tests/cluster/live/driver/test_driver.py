"""Signals while a run is collected, and what a user's file raised."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.live.driver.live_run import Notices
from cluster.live.processes.last_words import LastWords
from tests.cluster.live.driver.test_take_over import FollowedRun
from validator.primitives.user_file import UserFileError


def collecting(run: FollowedRun, signals: int) -> list[str]:
    """Collect a run whose load takes a while to end, and send signals meanwhile. Returns what was said."""
    said: list[str] = []
    run.notice = Notices(said.append)

    def finish(checkpoint: Callable[[], None]) -> Any:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
            checkpoint()
        said.append("the load has ended")
        return run.record.load

    load: Any = SimpleNamespace(finish=finish, was_told_to_stop=True)
    run.testnet.load, run.testnet.hosts = load, None
    with run.interrupts:
        run.driver._go(lambda: None)
    run.is_killed()
    return said


@pytest.mark.parametrize("signals", [0, 1, 2])
def test_the_first_signal_while_a_run_is_collected_ends_nothing(tmp_path: Path, signals: int) -> None:
    run = FollowedRun(tmp_path)
    said = collecting(run, signals)
    assert run.record.interrupted == bool(signals)
    if signals < 2:
        assert "the load has ended" in said and run.record.problems == []
    else:
        assert "the load has ended" not in said
        assert run.record.problems == ["interrupted again: not everything was collected"]


def test_what_a_users_file_raised_ends_the_run(tmp_path: Path) -> None:
    """Each process that came in its place would end in the same way."""
    host: Any = SimpleNamespace(number=0, validators=[0], is_held_down=False)
    run = FollowedRun(tmp_path)
    run.stage = None
    said = "file mine.py, line 3: ValueError: no"
    with pytest.raises(UserFileError, match=f"^{said}$"):
        run.host_was_lost(host, "it ended", LastWords(7, 0, said, is_users=True))
    run.host_was_lost(host, "it ended", LastWords(7, 0, said))
    (problem,) = run.record.problems
    assert said in problem
    run.is_killed()
