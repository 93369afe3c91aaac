"""The soak of a live testnet: its faults come round, and what grows or is left behind is named."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from cluster.live.processes import processes
from cluster.record.run import Resources, RunRecord
from cluster.scenario.sections.faults import SHIPPED
from tests.cluster.live.soak import (
    ALLOWED_BYTES,
    ALLOWED_FILES,
    FAULT_EVERY_MS,
    KINDS,
    grown,
    left_behind,
    restarted,
    soak_scenario,
    used,
)
from tests.cluster.records import make_record

MEMORY = 100_000_000


def test_every_kind_comes_round_on_every_validator() -> None:
    scenario = soak_scenario(60)
    faults = scenario.faults
    assert Counter(fault.kind_name for fault in faults).keys() == {str(kind["kind"]) for kind in KINDS} == set(SHIPPED)
    for place, kind in enumerate(KINDS):
        hit = {fault.model_dump_json(exclude={"at_ms", "version"}) for fault in faults[place :: len(KINDS)]}
        everybody = 3 if "down_ms" in kind else 4
        assert len(hit) == (1 if kind["kind"] in ("degrade", "leader_delay") else everybody), kind
        assert "down_ms" not in kind or not any("validator-3" in each for each in hit), "its process lives to the end"
    times = [fault.at_ms or 0 for fault in faults]
    assert {later - earlier for earlier, later in pairwise(times)} == {FAULT_EVERY_MS}
    assert times[-1] < 59 * 60_000
    assert scenario.live_problem is None


def looks(record: RunRecord, memory_bytes: int | None, open_files: int | None, since: float = 0.0) -> None:
    """Every validator was looked at a hundred times; from a share of the run on it used something else."""
    record.resources = [
        Resources(
            at_ms=record.duration_ms * number / 100,
            validator=validator,
            disk_bytes=0,
            messages_sent=0,
            memory_bytes=memory_bytes if number >= since * 100 and validator == 2 else MEMORY,
            open_files=open_files if number >= since * 100 and validator == 2 else 40,
        )
        for number in range(100)
        for validator in range(4)
    ]


def test_what_grows_is_named() -> None:
    record = make_record()
    looks(record, MEMORY + ALLOWED_BYTES, 40 + ALLOWED_FILES, since=0.7)
    assert grown(record) == []
    looks(record, MEMORY + ALLOWED_BYTES + 1_000_000, 41 + ALLOWED_FILES, since=0.7)
    assert grown(record) == [
        "validator-2: its memory grew from 100 to 135 MB",
        f"validator-2: its open files grew from 40 to {41 + ALLOWED_FILES}",
    ]
    looks(record, 2 * MEMORY, 40, since=0.1)
    assert grown(record) == [], "what it took at the start is no growth"


def test_a_validator_that_was_to_stay_and_did_not_is_named() -> None:
    record = make_record()
    status = record.validators[3].status
    assert status is not None
    record.validators[3].status = {**status, "starts": 1}
    assert restarted(record) == []
    record.validators[3].status = {**status, "starts": 2}
    assert restarted(record) == ["validator-3: started 2 times, expected once"]
    record.validators[3].status = None
    assert restarted(record) == ["validator-3: does not say how often it started"]


def test_what_was_used_is_told() -> None:
    record = make_record()
    looks(record, MEMORY + 5_000_000, 44, since=0.7)
    assert used(record)[2:] == [
        "validator-2: 100 MB, later 105 MB; 40 open files, later 44",
        "validator-3: 100 MB, later 100 MB; 40 open files, later 40",
    ]


def test_who_was_not_looked_at_is_named() -> None:
    record = make_record()
    looks(record, None, None)
    assert grown(record) == ["validator-2: too few looks at what it uses"]
    record.resources = []
    assert len(grown(record)) == 4


def test_what_is_left_behind_is_named(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert left_behind(tmp_path, [url]) == []
        listener.listen()
        assert left_behind(tmp_path, [url]) == [f"somebody still listens at {url}"]
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        try:
            assert left.stdout is not None
            assert left.stdout.readline(), "its arguments are there to be seen once it says something"
            starters = processes.with_argument(str(tmp_path))
            assert left_behind(tmp_path, []) == [f"process {left.pid} is left: {Path(sys.executable).name}"]
            assert left_behind(tmp_path, [], starters) == []
        finally:
            left.kill()
