"""Whole runs on Ray: a small scenario with a killed host, signals at any moment, a host that dies, somebody else's Ray.

All of them are in this one module, so that they run one after the other: each has a Ray of its own, and its hosts.
"""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import urllib3
import yaml

from cluster.audit.chains import longest_chain
from cluster.audit.reexecution import MODULE
from cluster.checks.run import check_run
from cluster.common import errors
from cluster.common.outcome import Outcome
from cluster.live.driver import load_process, ray_session
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.load_process import LoadProcess
from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from cluster.record.run import RunObserver, RunRecord, RunRequest, Sample
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.watches.live.audited_testnet import run_live
from kits.tracing.tracer import Tracer
from tests.cluster.live.scenarios import PAIR, SCENARIO
from tests.cluster.live.soak_handover import KILL, MOMENTS, Driver, left
from tests.hangs import HANGS_AFTER_S
from tests.kits.tracing.collector import GotSpan, collecting
from tests.kits.tracing.span_rules import problems_of, traces_of
from validator.primitives.user_file import UserFileError

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[3]
KILLED = 1
JOINS_AT = 9
LOOKS_HELD = 40
FAILING_POLICY = """\
from validator.policies.fifo import FifoPhase
class Mine(FifoPhase):
    def count_fires(self):
        1 // (self.terms.height < 6)
"""
FAULTS = [{"kind": "kill", "target": f"validator-{KILLED}", "at_height": 5, "down_ms": 1_500}]


def scenario(**changes: Any) -> Scenario:
    return Scenario.model_validate({**SCENARIO, **changes})


@dataclass
class LiveRun:
    """A run that has ended, and what it was made of while it lasted."""

    record: RunRecord
    folder: Path
    temporary: Path
    notices: list[str] = field(default_factory=list)
    seen: set[Process] = field(default_factory=set)
    """Every process that descended from this one at a sample."""
    niceness: set[int] = field(default_factory=set)
    """Of all of them, but for what executes the chain again."""
    shown: list[Any] = field(default_factory=list)
    """What the dashboard showed, from its first snapshot to the end of its stream."""
    spans: list[GotSpan] = field(default_factory=list)
    """What a collector of OpenTelemetry got."""
    traced: str = ""
    """What was said of the spans."""


def watch_dashboard(run_folder: Path) -> list[Any]:
    """The snapshot of a run's dashboard, its updates until the stream ends, and the text of the last event."""
    url = json.loads((run_folder / "endpoints.json").read_text(encoding="utf-8"))["testnet"]["url"]
    shown = [urllib3.request("GET", f"{url}/dashboard", timeout=HANGS_AFTER_S).json()]
    stream = urllib3.request("GET", f"{url}/dashboard/updates", preload_content=False, timeout=HANGS_AFTER_S)
    lines = [line.decode().strip() for line in stream]
    shown += [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return [*shown, *[line for line in lines if line.startswith("event: ")]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(scope="module")
def live_run(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> LiveRun:
    """The small scenario with its fault, run once for all tests that look at it."""
    run_folder = tmp_path_factory.mktemp("live")
    notices: list[str] = []
    seen: set[Process] = set()
    niceness: set[int] = set()
    watching: list[Future[list[Any]]] = []

    def on_sample(sample: Sample) -> None:
        if not watching:
            watching.append(reader.submit(watch_dashboard, run_folder))
        myself = processes.find(os.getpid())
        assert myself is not None
        family = processes.with_descendants([myself]) - {myself}
        seen.update(family)
        for process in family - processes.with_argument(MODULE):
            with suppress(ProcessLookupError):
                niceness.add(os.getpriority(os.PRIO_PROCESS, process.pid))

    wanted = scenario(faults=FAULTS)
    with ThreadPoolExecutor(1) as reader, collecting() as collector:
        tracer = Tracer(collector.url, run_folder, wanted, "live")
        observer = RunObserver(on_sample, notices.append, tracer.on_step, tracer.on_look)
        record = run_live(RunRequest(wanted, 5, "test", run_folder), observer)
        shown = watching[0].result(HANGS_AFTER_S)
        early = len(collector.spans)
        traced, _ = tracer.finish(record, longest_chain(record.lives))
    assert early, "none came while the run went on"
    return LiveRun(record, run_folder, temporary, notices, seen, niceness, shown, collector.spans, traced)


@dataclass
class LateRun:
    """A run in which a validator joins late, and the load generator takes its time."""

    record: RunRecord
    heights_held: list[int]
    """At every look before the first at which validators were to be started."""


@pytest.fixture(scope="module")
def late_run(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> LateRun:
    """The small scenario with a validator that joins late, and a load generator that is not ready for many looks."""
    validators = {"count": 4, "nodes": [{}, {}, {}, {"joins_at_height": JOINS_AT}]}
    held: list[int] = []
    begun: set[int] = set()
    looked, is_ready = Hosts.look, vars(LoadProcess)["is_ready"].fget
    assert is_ready is not None

    def look(hosts: Hosts, height: int = 0, starts: bool = True) -> None:
        if starts:
            begun.add(height)
        elif not begun:
            held.append(height)
        looked(hosts, height, starts)

    def is_ready_late(load: LoadProcess) -> bool:
        return len(held) > LOOKS_HELD and bool(is_ready(load))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hosts, "look", look)
        patch.setattr(LoadProcess, "is_ready", property(is_ready_late))
        record = run_live(RunRequest(scenario(validators=validators), 9, "test", tmp_path_factory.mktemp("late")))
    return LateRun(record, held)


# --- a run to its end -------------------------------------------------------------------------------------------------


def test_it_passes(live_run: LiveRun) -> None:
    verdict = check_run(live_run.record)
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert live_run.record.problems == []
    assert not live_run.record.interrupted


def test_each_step_of_the_start_is_told(live_run: LiveRun) -> None:
    steps = (
        "own endpoint",
        "genesis",
        "starting Ray",
        "Ray is up",
        "hosts of validators",
        "load begins",
        "hosts are up",
    )
    begins = [next(place for place, notice in enumerate(live_run.notices) if step in notice) for step in steps]
    assert begins == sorted(begins)


def test_validators_are_as_urgent_as_whoever_loads_them(live_run: LiveRun) -> None:
    """Ray nices its workers, which beside busy processes takes them nearly all their time."""
    assert live_run.niceness == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_the_killed_host_came_back_as_another_process(live_run: LiveRun) -> None:
    fault = live_run.record.faults[0]
    assert fault.took_effect
    assert fault.begun_ms is not None and fault.ended_ms is not None
    assert fault.ended_ms - fault.begun_ms >= FAULTS[0]["down_ms"]  # type: ignore[operator]
    statuses = [validator.status for validator in live_run.record.validators]
    assert [status and status["starts"] for status in statuses] == [1, 2, 1, 1]
    killed = statuses[KILLED]
    assert killed is not None
    assert killed["recovered_height"] >= 4
    assert str(killed["pid"]) in fault.evidence
    assert len({status["hash_seed"] for status in statuses if status is not None}) == 4


def test_the_record_is_whole(live_run: LiveRun) -> None:
    record = live_run.record
    assert {seen.validator for seen in record.finalizations} == {0, 1, 2, 3}
    assert all(0 < seen.at_ms <= record.duration_ms for seen in record.finalizations)
    first_final = {seen.height: seen.at_ms for seen in reversed(record.finalizations)}
    assert all(record.proposals[height] <= at_ms for height, at_ms in first_final.items())
    assert any(sample.heights[KILLED] is None for sample in record.samples)
    assert [sample.fires for sample in record.samples] == sorted(sample.fires for sample in record.samples)
    assert record.load.process_exit == 0
    assert record.load.transactions_sent > 0
    for validator in record.validators:
        assert len(validator.balances) > 4
        assert validator.pending_timers
    assert {"startup_seconds", "messages_sent", "bytes_sent"} <= record.metrics.keys()
    may_be_zero = {"deepest_reorg", "messages_dropped", "steal_share", "load_average_max"}
    assert may_be_zero <= record.metrics.keys()
    assert [name for name, value in record.metrics.items() if value < 0] == []
    assert {name for name, value in record.metrics.items() if value == 0} <= may_be_zero


def test_messages_views_and_resources_are_recorded(live_run: LiveRun) -> None:
    record = live_run.record
    reasons = "; ".join(window.reason for window in record.trace.windows)
    assert reasons.startswith("the beginning")
    assert f"kill validator-{KILLED} begins" in reasons
    kept = [message for window in record.trace.windows for message in window.messages]
    whole = [message for message in kept if message.sent_ms is not None and message.received_ms is not None]
    assert len(whole) > len(kept) / 2
    assert {"proposal", "notarize", "finalize"} <= {message.kind for message in whole}
    assert {seen.validator for seen in record.trace.views} == set(range(4))
    for validator in range(4):
        looks = [look for look in record.resources if look.validator == validator]
        assert looks[-1].disk_bytes > 10_000
        assert looks[-1].memory_bytes and looks[-1].memory_bytes > 1_000_000
        assert looks[-1].cpu_seconds and looks[-1].open_files
    assert record.metrics["load_average_max"] > 0
    assert {lag.host for lag in record.lags} <= {None, 0, 1, 2, 3}
    assert all(0 < lag.lag_ms <= 1.01 * (lag.until_ms - lag.at_ms) for lag in record.lags)


@pytest.mark.slow
def test_no_validator_starts_before_the_load_generator_is_ready(late_run: LateRun) -> None:
    assert len(late_run.heights_held) > LOOKS_HELD and not any(late_run.heights_held)
    assert late_run.record.load.transactions_sent > 0


@pytest.mark.slow
def test_a_load_generator_that_cannot_start_is_one_line(
    temporary: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_process, "MODULE", "loadgen.nothing")
    with pytest.raises(errors.TestnetError) as caught:
        run_live(RunRequest(Scenario.model_validate(PAIR), 7, "test", folder))
    log = folder / "logs" / "locust.log"
    assert str(caught.value) == f"the load generator ended with exit code 1 before there was a block (see {log})"
    assert "No module named loadgen.nothing" in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_validator_that_joins_late_takes_a_snapshot(late_run: LateRun) -> None:
    verdict = check_run(late_run.record)
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    (join,) = late_run.record.joins
    assert join.begun_ms is not None and join.ended_ms is not None
    assert JOINS_AT <= join.height_when_begun <= (join.height_when_ended or 0)
    assert sum(join.chunks.values()) > 0
    late = late_run.record.validators[3]
    assert 8 <= late.first_height - 1 <= late.tip - 10
    assert late.status is not None and late.status["starts"] == 1


def test_the_folder_holds_data_logs_and_endpoints(live_run: LiveRun) -> None:
    endpoints = json.loads((live_run.folder / "endpoints.json").read_text(encoding="utf-8"))["validators"]
    statuses = [validator.status or {} for validator in live_run.record.validators]
    assert [entry["pid"] for entry in endpoints] == [status["pid"] for status in statuses]
    for host in range(4):
        log = (live_run.folder / "logs" / f"host-{host}.log").read_text(encoding="utf-8")
        assert "start 1" in log
        assert re.search(r"recovered at height 0; \d{5,} objects are set apart", log)
        assert (live_run.folder / "data" / f"validator-{host}" / "blocks" / "archive").stat().st_size > 0
    assert (live_run.folder / "logs" / "locust.log").exists()
    assert any("kill of validator-1 begins" in notice for notice in live_run.notices)
    assert any("kill of validator-1 is over: down from height" in notice for notice in live_run.notices)


def test_its_dashboard_showed_it_from_the_first_blocks_to_the_end(live_run: LiveRun) -> None:
    snapshot, *updates, _, last = live_run.shown
    assert last == "event: end"
    assert [each["name"] for each in snapshot["run"]["validators"]] == [f"validator-{index}" for index in range(4)]
    heights = [each["height"] for each in updates]
    assert heights == sorted(heights) and heights[-1] >= 25
    assert {"running", "ending"} <= {each["stage"] for each in updates} and updates[-1]["stage"] == "ending"
    assert {state for each in updates for state, *_ in each["validators"]} > {"up"}, "the killed one was not"
    assert all(votes[0] and votes[2] for _, _, _, *votes in updates[-1]["validators"]), "notarized and finalized"
    begun = [each["faults"][0]["begun_ms"] is not None for each in updates]
    assert begun[-1] and updates[-1]["faults"][0]["took_effect"]
    assert updates[-1]["audit"]["compared"] > 0 and not any(updates[-1]["audit"]["violations"].values())
    assert any("kill of validator-1 is over" in line for line in updates[-1]["notices"])
    assert updates[-1]["load"] in ("running", "stopped")
    assert max(sum((each["tiers"] or {}).values()) for each in updates) > 0, "the books have pending timers"


def test_its_transactions_and_timers_are_traced_while_it_goes_on(live_run: LiveRun) -> None:
    spans, record = live_run.spans, live_run.record
    assert problems_of(spans) == []
    assert live_run.traced.startswith(f"{len(spans):,} spans of {len(traces_of(spans)):,} traces to ")
    parts = {"mempool", "block", "build", "execute", "notarize", "finalize", "finality", "schedule", "wait", "fire"}
    assert {span.name for span in spans} >= parts
    assert {span.service for span in spans} == {"stampede", *record.scenario.validators.names}
    sent = [span for span in spans if not span.parent and span.name.startswith("transaction")]
    for span in sent:
        final_ms = record.first_finalizations[span.attributes["stampede.block.height"]]
        assert span.end / 1e6 == pytest.approx(record.began_epoch_ms + final_ms, abs=0.01)
    waits = [span for span in spans if span.name == "mempool"]
    (kill,) = record.faults
    assert kill.begun_ms is not None and kill.ended_ms is not None
    reported = {span.parent for span in waits}
    looks_ms = [sample.at_ms for sample in record.samples if sample.at_ms < kill.begun_ms]
    for span in sent:  # the killed one took with it what it had not reported; a look is answered within the next two
        began_ms = span.start / 1e6 - record.began_epoch_ms
        assert span.span in reported or looks_ms[-3] <= began_ms <= kill.ended_ms, "hosts reported all"
    execution = [span for span in spans if span.name == "execute"]
    assert any(span.end > span.start for span in execution) and any(span.end > span.start for span in waits)


def test_nothing_is_left(live_run: LiveRun) -> None:
    pids = {(validator.status or {})["pid"] for validator in live_run.record.validators}
    assert pids <= {process.pid for process in live_run.seen}
    assert [process for process in live_run.seen if process.is_running] == []
    assert list(live_run.temporary.iterdir()) == []


# --- somebody is killed -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("moment", [pytest.param("start", marks=pytest.mark.soak), "faults"])
def test_a_driver_that_is_killed_leaves_a_result_and_nothing_else(folder: Path, temporary: Path, moment: str) -> None:
    scenario_file = folder.with_suffix(".yaml")
    scenario_file.write_text(yaml.safe_dump({**SCENARIO, "validators": 2, "faults": [KILL]}), encoding="utf-8")
    driver = Driver(temporary, "", "run", str(scenario_file), "--out", str(folder))
    driver.kill_at(MOMENTS[moment], 0.0)
    driver.end()
    ended = r"stampede: the driver was killed: \d+ processes of the run were ended; see "
    assert re.fullmatch(f"{ended}{folder}/result.json\n", driver.said[-1]), driver.said
    assert left(folder, temporary) == []
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert (result["verdict"], result["checks"][0]["detail"]) == ("inconclusive", "the driver was killed")
    assert {"commit", "version", "scenario_hash", "date"} <= result.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "told"),
    [
        pytest.param(
            "gcs_server", "the driver failed: Ray broke down: its gcs_server, process", marks=pytest.mark.soak
        ),
        ("raylet", "the driver failed: Ray broke down: its raylet, process"),
        ("loadgen.run", "the load generator ended early with exit code -9"),
    ],
)
def test_whoever_is_killed_the_run_ends_with_a_result(
    run_command: Callable[..., Command], program: str, told: str
) -> None:
    command = run_command(height=30)
    command.wait_for(rb" height [3-9]/")
    os.kill(command.process_of(program).pid, signal.SIGKILL)
    command.read_to_the_end()
    is_ray = program != "loadgen.run"
    result = command.check_nothing_is_left(errors.ExitCode.INCONCLUSIVE)
    details = {check["name"]: check["detail"] for check in result["checks"]}
    assert told in details["no_problems"]
    assert max(tip["height"] for tip in result["validators"]) >= (0 if is_ray else 30)


@pytest.mark.soak
def test_two_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    scenario_file = tmp_path / "small.yaml"
    scenario_file.write_text(yaml.safe_dump({**SCENARIO, "stop": {"height": 15, "timeout_s": 90}}))
    command = [sys.executable, "-m", "cluster.commands.cli.main", "run", str(scenario_file), "--out"]
    folders = [tmp_path / name for name in ("one", "two")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ExitStack() as logs:
        running = []
        for folder in folders:
            said = logs.enter_context(folder.with_suffix(".log").open("wb"))
            running.append(subprocess.Popen([*command, str(folder)], cwd=tmp_path, env=environment, stdout=said))
        for each in running:
            each.wait(HANGS_AFTER_S)
    for folder in folders:
        result = json.loads((folder / "result.json").read_text())
        wrong = [check for check in result["checks"] if check["verdict"] != "pass"]
        assert not wrong, [wrong, folder.with_suffix(".log").read_text()]
    served = [json.loads((folder / "endpoints.json").read_text())["validators"] for folder in folders]
    assert not {each["url"] for each in served[0]} & {each["url"] for each in served[1]}


# --- signals to the command -------------------------------------------------------------------------------------------

COMMAND = """
import os, signal, sys
from pathlib import Path
from cluster.commands.run import ending
from cluster.commands.cli.main import main
from cluster.live.driver import driver, ray_session

ray_session.SHORT_TEMPORARY_FOLDER = Path(sys.argv.pop(1))
moment = sys.argv.pop(1)
judge_run = ending.judge_run

def interrupted_judge_run(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return judge_run(*arguments)

def crash(driver, hosts):
    if driver._run.watch.height >= 3:
        raise KeyError("planted")

if moment == "late":
    ending.judge_run = interrupted_judge_run
if moment == "crash":
    driver.Driver._sample = crash
sys.exit(main())
"""


class Command:
    """``stampede run``, or ``up``, at a terminal of its own, whose foreground it is."""

    def __init__(
        self,
        folder: Path,
        temporary: Path,
        moment: str = "",
        height: int = 99,
        name: str = "run",
        options: Sequence[str] = (),
    ) -> None:
        self.folder, self.temporary, self.family = folder, temporary, set[Process]()
        scenario_file = folder.with_suffix(".yaml")
        scenario_file.write_text(yaml.safe_dump({**PAIR, "stop": {"height": height}}))
        command = [sys.executable, "-c", COMMAND, str(temporary), moment, name, str(scenario_file), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pid, self.terminal = pty.fork()
        if pid == 0:  # the child, which is about to be another program
            os.chdir(folder.parent)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.execvpe(sys.executable, [*command, "--out", str(folder)], environment)
        self.pid, self.said = pid, b""
        self.code: int | None = None

    def read(self, patience_s: float = HANGS_AFTER_S) -> bool:
        """Read what the terminal says next; false at its end, or where it says nothing for so long."""
        if not select.select([self.terminal], [], [], patience_s)[0]:
            return False
        try:
            said = os.read(self.terminal, 65_536)
        except OSError:  # what Linux gives at the end of a terminal
            said = b""
        self.said += said
        return bool(said)

    def wait_for(self, pattern: bytes, least: int = 7) -> None:
        """Read until something is said. There are ``least`` processes then."""
        while not re.search(pattern, self.said):
            assert self.read(), self.said.decode()
        myself = processes.find(self.pid)
        assert myself is not None
        self.family = processes.with_descendants([myself])
        assert len(self.family) >= least, "driver, watchdog, GCS, raylet with two agents, and the host at least"

    def process_of(self, program: str) -> Process:
        """The one process of the run whose command line names a program, and not its parent's.

        A worker that starts has the raylet's name among its arguments.
        """
        named = {process.pid: process for process in self.family & processes.with_argument(program)}
        (found,) = (process for pid, process in named.items() if psutil.Process(pid).ppid() not in named)
        return found

    def press_ctrl_c(self) -> None:
        os.write(self.terminal, b"\x03")

    def read_to_the_end(self) -> None:
        while self.read():
            pass
        self.close_terminal()

    def close_terminal(self) -> None:
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def check_end(self) -> dict[str, Any]:
        """It ended as an interrupted run does, and left nothing behind; returns its result."""
        result = self.check_nothing_is_left(errors.ExitCode.INCONCLUSIVE)
        assert result["verdict"] == "inconclusive"
        return result

    def check_nothing_is_left(self, code: errors.ExitCode) -> dict[str, Any]:
        """It ended with that exit code, and wrote its files; returns its result."""
        assert self.wait() == code, self.said.decode()
        assert [process for process in self.family if process.is_running] == []
        assert processes.with_argument(str(self.temporary)) == set()
        assert list(self.temporary.iterdir()) == []
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        assert (self.folder / "report.html").exists()
        return result


@pytest.fixture
def run_command(folder: Path, temporary: Path) -> Iterator[Callable[..., Command]]:
    """Starts the command; where a test fails in its middle, it is ended here."""
    started: list[Command] = []

    def start(**options: Any) -> Command:
        started.append(Command(folder, temporary, **options))
        return started[-1]

    yield start
    for command in started:
        command.close_terminal()  # which hangs up
        command.wait()


@pytest.mark.slow
def test_a_signal_after_the_collection_loses_nothing(run_command: Callable[..., Command]) -> None:
    command = run_command(moment="late", height=5)
    command.wait_for(b"hosts are up")
    command.read_to_the_end()
    result = command.check_end()
    assert all(tip["height"] >= 5 for tip in result["validators"])
    assert "interrupted" in {check["detail"] for check in result["checks"]}


@pytest.mark.slow
def test_a_crash_of_the_driver_keeps_what_is_known_and_leaves_nothing_running(
    run_command: Callable[..., Command],
) -> None:
    command = run_command(moment="crash")
    command.wait_for(b"hosts are up")
    command.read_to_the_end()
    result = command.check_nothing_is_left(errors.ExitCode.CRASH)
    assert b"crashed, without a verdict: KeyError: 'planted' (<string>:" in command.said
    assert result["verdict"] == "inconclusive"
    assert all(tip["height"] >= 3 for tip in result["validators"])
    details = {check["name"]: check["detail"] for check in result["checks"]}
    assert details["no_problems"].startswith("interrupted; the driver crashed: KeyError: 'planted'")
    assert "planted" in (command.folder / "traceback.txt").read_text(encoding="utf-8")


def ask(url: str, method: str = "GET", token: str = "", body: str = "") -> tuple[int, bytes]:
    answer = urllib3.request(
        method, url, headers={"Authorization": f"Bearer {token}"}, body=body, retries=False, timeout=HANGS_AFTER_S
    )
    return answer.status, answer.data


@pytest.mark.slow
def test_a_testnet_that_is_up_runs_until_it_is_stopped(run_command: Callable[..., Command]) -> None:
    least = ("heights_compared=8", "transactions=1", "fires=1")
    little = (*(word for each in least for word in ("--set", f"success.{each}")), "--bind", "127.0.0.2")
    command = run_command(height=5, name="up", options=little)
    command.wait_for(rb" height ([89]|\d\d+) \S+ \S+ blocks/s \S+ [1-9]")  # beyond its own end, and timers fire
    endpoints = json.loads((command.folder / "endpoints.json").read_text(encoding="utf-8"))
    testnet = endpoints["testnet"]["url"]
    status = json.loads(ask(f"{testnet}/status")[1])
    assert status["height"] >= 8
    assert [one["url"] for one in status["validators"]] == [one["url"] for one in endpoints["validators"]]
    told = [testnet, *(f"{one[of]}" for one in endpoints["validators"] for of in ("url", "peers"))]
    assert all("127.0.0.2:" in address for address in told), "it listens where it was asked to"
    _, metrics = ask(f"{testnet}/metrics")
    assert metrics.count(b"\nstampede_height{") == PAIR["validators"]["count"]
    assert f"dashboard  {testnet}/".encode() in command.said
    for order, body in (("stop", ""), ("load", '{"on": false}'), ("faults", '{"kind": "kill", "target": "leader"}')):
        assert ask(f"{testnet}/{order}", "POST", "wrong", body)[0] == 401
    token = (command.folder / endpoints["testnet"]["token_file"]).read_text(encoding="utf-8").strip()
    assert b"validator-0: start 1" in ask(f"{testnet}/logs/host-0", token=token)[1]
    assert ask(f"{testnet}/load", "POST", token, '{"on": false}') == (202, b'{"load":"stopped"}')
    while (answer := ask(f"{testnet}/load", "POST", token, '{"on": true}'))[0] == 400:
        assert b"has not ended yet" in answer[1] and command.read()  # it says something every two seconds
    assert answer[0] == 202
    command.wait_for(b"the load is started again")
    assert ask(f"{testnet}/stop", "POST", token)[0] == 202
    command.read_to_the_end()
    result = command.check_nothing_is_left(errors.ExitCode.PASS)
    assert result["verdict"] == "pass"
    assert min(tip["height"] for tip in result["validators"]) >= 8 + 5, "it drained"
    assert command.said.count(b"wrong") == 0 and b"added" not in command.said, "what was refused did nothing"


@pytest.mark.slow
def test_a_testnet_that_does_not_pass_is_kept_up_where_that_is_wanted(run_command: Callable[..., Command]) -> None:
    command = run_command(height=5, options=("--keep", "--set", "success.stall_ms=1"))
    command.wait_for(rb"kept ")
    assert json.loads((command.folder / "result.json").read_text(encoding="utf-8"))["verdict"] == "fail"
    endpoints = json.loads((command.folder / "endpoints.json").read_text(encoding="utf-8"))
    heights = [json.loads(ask(f"{one['url']}/status")[1])["height"] for one in endpoints["validators"]]
    assert min(heights) >= 5
    os.kill(command.pid, signal.SIGINT)
    command.read_to_the_end()
    assert command.check_nothing_is_left(errors.ExitCode.FAIL)["verdict"] == "fail"


@pytest.mark.slow
def test_ctrl_c_while_it_starts_leaves_nothing_behind(run_command: Callable[..., Command]) -> None:
    command = run_command()
    command.wait_for(b"starting Ray", least=1)
    command.press_ctrl_c()
    command.read_to_the_end()
    command.check_end()
    assert b"Traceback" not in command.said


@pytest.mark.soak
@pytest.mark.parametrize(
    "more", [(), (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGINT)], ids=["once", "many"]
)
def test_ctrl_c_tells_what_is_known_and_more_signals_force_nothing(
    run_command: Callable[..., Command], more: Sequence[signal.Signals]
) -> None:
    command = run_command()
    command.wait_for(rb" height ([3-9]|\d\d+)/")
    command.press_ctrl_c()
    for number in more:
        command.read(patience_s=0.15)
        os.kill(command.pid, number)
    command.read_to_the_end()
    result = command.check_end()
    assert b"Traceback" not in command.said
    details = {check["name"]: check["detail"] for check in result["checks"]}
    assert details["no_problems"].startswith("interrupted")
    if not more:
        assert details["no_problems"] == "interrupted"
        assert min(tip["height"] for tip in result["validators"]) >= 3
        assert re.search(r"[1-9]\d* served balances", details["conservation"]), details


def blocks(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return bool(int(re.findall(r"SigBlk:\s*(\w+)", status)[0], 16) >> number - 1 & 1)


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_a_run_like_ctrl_c(run_command: Callable[..., Command]) -> None:
    command = run_command()
    command.wait_for(rb" height [1-9]\d*/")
    group = [one.pid for one in command.family if one.pid != command.pid and os.getpgid(one.pid) == command.pid]
    assert group
    assert all(blocks(pid, signal.SIGHUP) for pid in group), "Ray would go before the hosts were asked"
    command.close_terminal()
    os.killpg(command.pid, signal.SIGHUP)  # what a shell does
    result = command.check_end()
    assert max(tip["height"] for tip in result["validators"]) >= 1, "the hosts were still there to be asked"
    assert "no_problems: inconclusive: interrupted" in {
        f"{check['name']}: {check['verdict']}: {check['detail']}" for check in result["checks"]
    }


TWICE = """
import sys
from pathlib import Path
from cluster.live.driver import ray_session
from cluster.watches.live.audited_testnet import run_live
from cluster.record.run import RunRequest
from cluster.scenario.files import load_scenario

ray_session.SHORT_TEMPORARY_FOLDER = Path(sys.argv[3])
for number in range(2):
    record = run_live(RunRequest(load_scenario(Path(sys.argv[1])), 1, "test", Path(sys.argv[2]) / str(number)))
    assert min(len(validator.blocks) for validator in record.validators) >= 3, record.problems
    assert list(Path(sys.argv[3]).iterdir()) == []
"""


@pytest.mark.soak
def test_two_runs_in_one_process_leave_no_folder(folder: Path, temporary: Path) -> None:
    folder.mkdir()
    scenario_file = folder / "scenario.yaml"
    tiny = {"name": "tiny", "consensus": {"block_interval_ms": 50}, "stop": {"height": 3, "drain_blocks": 0}}
    scenario_file.write_text(yaml.safe_dump(tiny), encoding="utf-8")
    command = [sys.executable, "-c", TWICE, str(scenario_file), str(folder), str(temporary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(temporary.iterdir()) == []


def test_what_ray_does_about_a_signal_while_it_starts_is_an_interrupt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_the_process(*_: Any) -> None:
        raise SystemExit(1)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "_start_own", ends_the_process)
    assert run_live(RunRequest(scenario(), 8, "test", folder)).interrupted


def test_a_ray_that_does_not_answer_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(
            errors.BadInput, match=f"^RAY_ADDRESS={address}: no Ray answers there: .*refused.*; expected "
        ):
            run_live(RunRequest(scenario(), 8, "test", folder))


# --- somebody else's Ray ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign_ray(temporary: Path) -> Iterator[None]:
    """A Ray that somebody else started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_AUTH_TOKEN", ray_session._token)
        try:
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=80 * 1024 * 1024,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(temporary / "foreign"),
                _system_config={"prestart_worker_first_driver": False},
            )
            yield
        finally:  # a Ray that is not up in time leaves its processes behind
            ray.shutdown()
            assert processes.end_and_remove(temporary / "foreign", ray_session.SHUTDOWN_PATIENCE_S)


@pytest.mark.slow
def test_a_host_that_dies_is_a_problem_and_comes_back(foreign_ray: None, folder: Path) -> None:
    killed: list[int] = []

    def kill_once(sample: Sample) -> None:
        if not killed and min(height or 0 for height in sample.heights) >= 3:
            entry = json.loads((folder / "endpoints.json").read_text(encoding="utf-8"))["validators"][2]
            killed.append(entry["pid"])
            os.kill(entry["pid"], signal.SIGKILL)

    faults = [  # on nodes that may be others', signals are sent by an actor there
        {"kind": "pause", "target": "validator-0", "at_height": 9, "until_height": 12},
        {"kind": "kill", "target": "validator-3", "at_height": 15, "how": "process", "down_ms": 200},
    ]
    record = run_live(RunRequest(scenario(faults=faults), 6, "test", folder), RunObserver(kill_once))
    assert killed
    assert [fault.took_effect for fault in record.faults] == [True, True]
    assert "stood still (state T)" in record.faults[0].evidence
    assert len(record.problems) == 1
    assert "host 2 (validator-2) was lost" in record.problems[0]
    verdict = check_run(record)
    assert [check.name for check in verdict.checks if check.verdict is Outcome.FAIL] == ["no_problems"]
    # within 200 ms a busy machine may finalise nothing
    assert {check.name for check in verdict.checks if check.verdict is Outcome.INCONCLUSIVE} <= {"faults"}
    status = record.validators[2].status
    assert status is not None
    assert (status["starts"], status["pid"] != killed[0]) == (2, True)
    assert all(processes.find((validator.status or {})["pid"]) is None for validator in record.validators)
    assert ray.is_initialized()
    assert ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()) == 7


@pytest.mark.slow
def test_an_exception_of_a_users_policy_ends_the_run(foreign_ray: None, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.py").write_text(FAILING_POLICY, encoding="utf-8")
    (folder / "mine.yaml").write_text(yaml.safe_dump({**PAIR, "chain": {"policy": "./mine.py"}}), encoding="utf-8")
    with pytest.raises(UserFileError, match=r"^file mine\.py, line 4: ZeroDivisionError: "):
        run_live(RunRequest(load_scenario(folder / "mine.yaml"), 7, "test", folder / "run"))


@pytest.mark.slow
def test_hosts_that_cannot_start_are_one_line(foreign_ray: None, folder: Path) -> None:
    folder.mkdir()
    (folder / "data").write_text("in the way", encoding="utf-8")
    with pytest.raises(errors.TestnetError, match=r"^host \d cannot be started: .*File exists") as caught:
        run_live(RunRequest(Scenario.model_validate(PAIR), 7, "test", folder))
    assert "\n" not in str(caught.value)
    assert ray.is_initialized()
