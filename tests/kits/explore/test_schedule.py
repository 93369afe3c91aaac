"""The schedule of a violation: it is performed again, from its file too, and breaks the same rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.common.errors import BadInput
from kits.explore.schedule import SchedulePage, lines_of, read_schedule, realise, replay
from kits.explore.scope import Scope
from kits.explore.search import Search


def schedule_of(protocol: str, mutant: str, **more: Any) -> SchedulePage:
    scope = Scope(protocol, mutant=mutant, **more)
    found = Search(scope).run(10_000).found
    assert found is not None
    return realise(scope, found)


@pytest.fixture(scope="module")
def schedule() -> SchedulePage:
    return schedule_of("simplex", "finalizes-after-nullify", views=1)


def test_a_schedule_is_replayed(schedule: SchedulePage, tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    file.write_bytes(msgspec.json.encode(schedule))
    replayed = replay(read_schedule(file))
    assert replayed.problem == schedule.problem == "own_votes: validator 0 finalizes view 1, which it gave up"
    assert list(replayed.steps) == schedule.steps


def test_a_schedule_reads_as_steps(schedule: SchedulePage) -> None:
    *_, before, last = lines_of(schedule.steps)
    assert before == "4. validator 0 sees its advance timer of view 1 expire: votes to nullify view 1"
    assert last.startswith("5. validator 0 receives a quorum's votes to notarize view 1 for block")
    assert last.endswith("holds the notarization of view 1, votes to finalize view 1, enters view 2")


def test_without_the_bug_the_schedule_breaks_no_rule(schedule: SchedulePage) -> None:
    sound = msgspec.structs.replace(schedule, scope=msgspec.structs.replace(schedule.scope, mutant=None))
    assert replay(sound).problem is None


def test_a_restart_and_a_late_write_are_replayed() -> None:
    crash = schedule_of("hotstuff", "forgets-timeouts", views=1, crashes=1)
    assert any("restarts" in step.text for step in crash.steps)
    assert replay(crash).problem == crash.problem
    late = schedule_of("simplex", "any-sync-releases-all", views=1, slow_disks=True)
    assert any("durable" in step.text for step in late.steps)
    assert replay(late).problem == late.problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"validator": 4}, "validator 4 is not an honest one"),
        ({"events": [{"type": "message", "sender": 1, "message": "zz"}]}, "step 1: "),
        ({"events": [{"type": "message", "sender": 1, "message": "c0"}]}, "step 1: undecodable message"),
        ({"events": [{"type": "sync"}]}, "no write of validator 0 waits"),
        ({"events": [{"type": "pause"}]}, "Invalid value 'pause'"),
    ],
)
def test_a_wrong_file_is_refused(change: dict[str, Any], problem: str, schedule: SchedulePage, tmp_path: Path) -> None:
    page = msgspec.to_builtins(schedule)
    page["steps"][0] |= change
    file = tmp_path / "schedule.json"
    file.write_bytes(msgspec.json.encode(page))
    with pytest.raises(BadInput, match=problem):
        replay(read_schedule(file))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"validators": 0}, "out of bounds"),
        ({"byzantine": 9}, "validator 9 is not one of 4"),
        ({"mutant": "wrong-balance"}, "no planted bug of the consensus engines"),
    ],
)
def test_a_wrong_scope_is_refused(change: dict[str, Any], problem: str, schedule: SchedulePage) -> None:
    wrong = msgspec.structs.replace(schedule, scope=msgspec.structs.replace(schedule.scope, **change))
    with pytest.raises(BadInput, match=problem):
        replay(wrong)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_schedule(tmp_path / "none.json")
