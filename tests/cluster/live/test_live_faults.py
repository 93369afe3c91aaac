"""One live run that goes through every kind of fault, and ends with a rolling upgrade to code of another folder.

It is run once for all tests that look at it. All validators but one have a foreign executor, and each kind reaches one
that has. Faults come one after the other where they take validators away, and at
once where they do not.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from cluster.record.run import FaultRecord, RunObserver, RunRecord, RunRequest, Sample
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import SHIPPED
from cluster.watches.live.audited_testnet import run_live
from tests.cluster.faults.examples import others_than

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PACKAGES = ("cluster", "consensus", "spec", "validator", "loadgen")
EXECUTOR_ARGUMENT = "executor"
EXECUTOR = f"stampede {EXECUTOR_ARGUMENT}"
FOREIGN = (1, 2, 3)
"""The validators with a foreign executor."""
KERNEL = "kernels.choose_oldest-*"
"""What is compiled of one that only large states need."""


def faults(code: Path) -> list[dict[str, Any]]:
    """Those that last first, then those after which processes start anew, each at a distance in heights.

    With everybody up a height takes an eighth of a second, with one of four down twice or three times as long; a busy
    machine starts a process in ten seconds, and a disk with a bit flipped takes two starts. Bits rot where some final
    blocks were committed since the validator started: here chance hits validator-2, which was not down before.
    """
    lasting = {"at_height": 34, "for_ms": 2_000}
    listed = [
        {"kind": "partition", "groups": [["validator-3"]], "at_height": 5, "until_height": 11},
        {"kind": "one_way_partition", "from": ["validator-1"], "at_height": 16, "until_height": 22},
        {"kind": "pause", "target": "validator-2", "at_height": 25, "until_height": 30},
        {"kind": "degrade", "loss": 0.05, "duplication": 0.1, "reordering": 0.1, "latency_ms": 15, **lasting},
        {"kind": "slow_disk", "target": "validator-3", "sync_ms": 20, **lasting},
        {"kind": "slow_execution", "target": "leader", "job_ms": 20, **lasting},
        {"kind": "clock_skew", "target": "f", "clock_speed": 2.0, **lasting},
        {"kind": "leader_delay", "delay_ms": 40, **lasting},
        {"kind": "kill", "target": "validator-1", "at_height": 48, "how": "process", "down_ms": 1_000},
        {"kind": "wipe", "target": "validator-3", "at_height": 75, "down_ms": 300},
        {"kind": "disk_full", "target": "validator-1", "at_height": 102, "down_ms": 300},
        {"kind": "failed_sync", "target": "validator-3", "of": "state", "at_height": 135, "down_ms": 300},
        {"kind": "bit_rot", "target": "random", "at_height": 180, "down_ms": 300},
        {"kind": "pause", "target": "validator-1", "at_ms": 1_000_000, "for_ms": 10},
        {"kind": "cut", "from": ["validator-0"], "to": ["validator-1"], **lasting},
        {"kind": "upgrade", "at_height": 255, "version": "next", "code": str(code), "down_ms": 0, "heights_between": 1},
        {"kind": "slow_execution", "target": "validator-1", "job_ms": 20, "at_height": 25, "until_height": 30},
        {"kind": "clock_skew", "target": "validator-1", "clock_speed": 2.0, "at_height": 25, "until_height": 30},
    ]
    others = others_than([*listed, {"kind": "lose_node"}])
    return [*listed, *(each | {"at_height": 235} for each in others)]  # after the bits: chance goes by who began before


KINDS = set(SHIPPED) - {"lose_node"}
"""Those that need no cluster; :mod:`tests.cluster.live.test_lost_nodes` has the others."""
NEVER = 13
"""The fault whose time never comes."""
UPGRADE = 14


def scenario(code: Path) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "all-faults",
            "validators": [
                None,
                {"executor": EXECUTOR},
                {"executor": f"{EXECUTOR} --tree"},
                {"executor": EXECUTOR, "sync_ms": 2, "job_ms": 1, "clock_speed": 1.05},
            ],
            "consensus": {
                "block_interval_ms": 120,
                "leader_timeout_ms": 800,
                "advance_timeout_ms": 1_200,
                "rebroadcast_ms": 500,
            },
            "links": {"latency_ms": 3, "jitter_ms": 1, "topology": "ring"},
            "load": {
                "users": [
                    {"workload": "heartbeat", "count": 2, "interval_ms": 400},
                    {"workload": "flood", "count": 1, "interval_ms": 400, "options": {"timers": 4, "spread_blocks": 3}},
                ]
            },
            "faults": faults(code),
            "stop": {"height": 263, "drain_blocks": 3, "timeout_s": 1_100},
            "success": {"heights_compared": 15, "transactions": 3, "fires": 3},
        }
    )


@dataclass
class FaultyRun:
    record: RunRecord
    folder: Path
    code: Path
    temporary: Path
    seen: set[Process] = field(default_factory=set)
    """Every process that descended from this one at a sample."""
    executors: set[Process] = field(default_factory=set)
    """Those that are foreign executors."""
    stopped: set[int] = field(default_factory=set)
    """Those that were seen to stand still (state T)."""

    def fault(self, kind: str) -> FaultRecord:
        return next(fault for fault in self.record.faults if fault.kind == kind)

    def status(self, index: int) -> dict[str, Any]:
        status = self.record.validators[index].status
        assert status is not None
        return status

    def log(self, host: int) -> str:
        return (self.folder / "logs" / f"host-{host}.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another checkout, in which one thing is not compiled yet."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns(KERNEL, "*.pyc*", "*.tmp.*"))
    return folder


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory, temporary: Path, code: Path) -> FaultyRun:
    folder = tmp_path_factory.mktemp("faults")
    seen: set[Process] = set()
    stopped: set[int] = set()
    executors: set[Process] = set()

    def on_sample(sample: Sample) -> None:
        myself = processes.find(os.getpid())
        assert myself is not None
        family = processes.with_descendants([myself]) - {myself}
        seen.update(family)
        executors.update(family & processes.with_argument(EXECUTOR_ARGUMENT))
        stopped.update(process.pid for process in family if process.is_stopped)

    record = run_live(RunRequest(scenario(code), 3, "test", folder), RunObserver(on_sample, print))
    return FaultyRun(record, folder, code, temporary, seen, executors, stopped)


def test_every_kind_bites_and_the_network_goes_on(faulty_run: FaultyRun) -> None:
    record = faulty_run.record
    assert {fault.kind for fault in record.faults} == KINDS
    assert [fault.name for fault in record.faults if not fault.took_effect] == [record.faults[NEVER].name]
    verdict = check_run(record)
    wrong = [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert [check.name for check in wrong] == ["faults"], wrong
    assert wrong[0].verdict is Outcome.INCONCLUSIVE, wrong
    assert record.problems == []


def kinds_that_reached(record: RunRecord, names: set[str]) -> set[str]:
    """Kinds of faults that took effect on one of these validators, or on links, of which none is spared."""
    return {fault.kind for fault in record.faults if fault.took_effect and names & set(fault.targets or names)}


def test_each_kind_reaches_a_validator_with_a_foreign_executor(faulty_run: FaultyRun) -> None:
    record = faulty_run.record
    names = {record.validators[index].name for index in FOREIGN}
    assert kinds_that_reached(record, names) == KINDS
    assert kinds_that_reached(record, {"validator-0"}) < KINDS, "it has no executor, and no disk of its fails"


def test_an_executor_runs_for_each_start_of_its_validator(faulty_run: FaultyRun) -> None:
    """But for the start on a disk that is damaged, which ends before."""
    starts = sum(faulty_run.status(index)["starts"] for index in FOREIGN)
    damaged = faulty_run.fault("bit_rot").targets != ("validator-0",)
    assert starts - damaged <= len(faulty_run.executors) <= starts


def test_what_a_validator_serves_is_kept_before_its_disk_is_lost(faulty_run: FaultyRun) -> None:
    wiped, rotten = faulty_run.fault("wipe"), faulty_run.fault("bit_rot")
    lost = faulty_run.record.lost
    assert [each.name for each in lost] == [wiped.targets[0], rotten.targets[0]]
    assert lost[0].first_height == 1
    for each, fault in zip(lost, (wiped, rotten), strict=True):
        assert each.tip >= fault.height_when_begun - 1


def test_a_fault_that_never_begins_makes_a_live_run_inconclusive(faulty_run: FaultyRun) -> None:
    """And so does one that has no effect; without them the same run passes."""
    record = faulty_run.record
    never = record.faults[NEVER]
    assert check_run(record).check("faults").detail.startswith(f"{never.name} never began")
    record.faults.remove(never)
    planned = [plan for number, plan in enumerate(record.scenario.faults) if number != NEVER]
    whole, record.scenario = record.scenario, record.scenario.model_copy(update={"faults": planned})
    try:
        assert check_run(record).outcome is Outcome.PASS
        faulty_run.fault("partition").took_effect = False
        check = check_run(record).check("faults")
        assert check.verdict is Outcome.INCONCLUSIVE
        assert "had no observable effect" in check.detail
    finally:
        faulty_run.fault("partition").took_effect = True
        record.scenario = whole
        record.faults.insert(NEVER, never)


def test_each_says_by_what_it_bit(faulty_run: FaultyRun) -> None:
    said = {
        "kill": r"process \d+ gone, \d+ in its place, recovered height \d+",
        "partition": r"\d+ messages dropped",
        "pause": r"process \d+ stood still \(state T\) at \d+ looks within [\d,]+ ms: validator-2",
        "wipe": r"joined by the snapshot of height \d+",
        "disk_full": r"validator-1 stopped: \S+ offset \d+: (write|replace) failed: No space left on device",
        "failed_sync": r"validator-3 stopped: state/log-000001: offset \d+: sync failed: Input/output error",
        "bit_rot": r"a bit of (\S+) at offset \d+ of (\S+) flipped, \2 stopped: \1: ",
        "degrade": r"\d+ messages, of them \d+ with another latency, \d+ dropped, \d+ doubled, \d+ held back",
        "slow_disk": r"\d+ slow syncs of validator-3",
        "slow_execution": r"\d+ slow jobs of validator-\d",
        "clock_skew": r"\d+ timers at another speed of validator-\d",
        "leader_delay": r"\d+ sends of leaders 40 ms later",
        "one_way_partition": r"\d+ messages dropped",
        "cut": r"\d+ messages dropped",
        "upgrade": r"4 of 4 validators run version next now",
    }
    assert set(said) <= KINDS
    for kind in KINDS:
        pattern = said.get(kind, r"\d+ messages dropped")
        assert re.search(pattern, faulty_run.fault(kind).evidence), (kind, faulty_run.fault(kind).evidence)


def test_a_lasting_fault_lasts_as_long_as_it_was_to(faulty_run: FaultyRun) -> None:
    for kind in ("degrade", "slow_disk", "slow_execution", "clock_skew", "leader_delay"):
        fault = faulty_run.fault(kind)
        assert fault.begun_ms is not None and fault.ended_ms is not None
        assert fault.ended_ms - fault.begun_ms >= 2_000
    for kind, until_height in (("partition", 11), ("pause", 30), ("one_way_partition", 22)):
        fault = faulty_run.fault(kind)
        assert fault.height_when_begun < until_height <= (fault.height_when_ended or 0)


def test_who_was_cut_off_made_nothing_final_meanwhile(faulty_run: FaultyRun) -> None:
    record, cut = faulty_run.record, faulty_run.fault("partition")
    assert cut.begun_ms is not None and cut.ended_ms is not None
    # what had arrived of blocks from before the cut may become final in it, however long a busy machine takes
    during = [
        seen
        for seen in record.finalizations
        if cut.begun_ms < seen.at_ms < cut.ended_ms and record.proposals[seen.height] > cut.begun_ms
    ]
    assert during
    assert {seen.validator for seen in during} <= {0, 1, 2}


def test_a_paused_process_stood_still_and_goes_on(faulty_run: FaultyRun) -> None:
    (pid,) = re.findall(r"process (\d+) stood still", faulty_run.fault("pause").evidence)
    assert faulty_run.stopped <= {int(pid)}
    pause = faulty_run.fault("pause")
    assert pause.begun_ms is not None and pause.ended_ms is not None
    moments = [seen.at_ms for seen in faulty_run.record.finalizations if seen.validator == 2]
    assert not any(pause.begun_ms + 200 < at < pause.ended_ms for at in moments)
    assert max(moments) > pause.ended_ms


def test_the_upgraded_run_the_other_code(faulty_run: FaultyRun) -> None:
    assert [faulty_run.status(index)["version"] for index in range(4)] == ["next"] * 4
    upgrade = faulty_run.fault("upgrade")
    assert upgrade.targets == tuple(f"validator-{index}" for index in range(4))
    for host in range(4):
        log = faulty_run.log(host)
        versions = re.findall(r"version (\w+), hash seed \d+, code (.*)", log)
        assert (versions[0], versions[-1]) == (("1", str(ROOT)), ("next", str(faulty_run.code)))
        last_start = log.rindex("version next")
        assert "stopped\n" in log[:last_start], "the old process ended in good order"


def test_the_other_code_was_compiled_before_validators_ran_it(faulty_run: FaultyRun) -> None:
    (compiled,) = (faulty_run.code / "validator" / "state" / "engines").glob(f"__pycache__/{KERNEL}.nbi")
    first = min(line for host in range(4) for line in faulty_run.log(host).splitlines() if "version next" in line)
    begun = datetime.strptime(first[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
    assert compiled.stat().st_mtime < begun


def test_validators_were_started_as_often_as_they_were_down(faulty_run: FaultyRun) -> None:
    downs = [1] * 4  # the upgrade
    for kind in ("kill", "wipe", "disk_full", "failed_sync"):
        downs[int(faulty_run.fault(kind).targets[0][-1])] += 1
    downs[int(faulty_run.fault("bit_rot").targets[0][-1])] += 2
    assert [faulty_run.status(index)["starts"] for index in range(4)] == [1 + down for down in downs]


def test_what_was_lost_on_links_is_counted(faulty_run: FaultyRun) -> None:
    counted = faulty_run.record.metrics["messages_dropped"]
    assert counted > 0


def test_nothing_is_left(faulty_run: FaultyRun) -> None:
    assert len(faulty_run.seen) > 12
    assert [process for process in faulty_run.seen if process.is_running] == []
    assert list(faulty_run.temporary.iterdir()) == []
    assert processes.with_argument(str(faulty_run.folder)) == set()
