"""Live runs whose drivers are killed at any moment (``make soak-handover``), and what must be so afterwards.

    python -m tests.cluster.live.soak_handover 0:100 --out runs/soak-handover

Each number draws a scenario, the moment at which its driver is killed, and who comes then: nobody, another driver, or
one that is killed in its turn before a third one comes. Sometimes two come at once, the clock was changed meanwhile, or
the disk is full for the first seconds of a driver. The verdict must be that of the scenario when nobody disturbs it, or
*inconclusive* with its reason. A scenario with a planted violation must not pass. Afterwards no process, no port, no
folder of Ray, no lock and no checkpoint may be left.

``DIR/runs.jsonl`` has a line for each number that has ended, so an interrupted soak goes on where it was.
``DIR/table.md`` has a row for each. Exits with 1 if something was wrong in one.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import yaml

from cluster.commands.sweeps.commands import seed_range
from cluster.commands.sweeps.log import LineLog
from cluster.common.checkout import ROOT
from cluster.common.outcome import Outcome
from cluster.live.handover import checkpoint
from cluster.live.processes import processes
from cluster.live.processes.cleanup_watchdog import can_be_taken_over
from cluster.live.processes.driver_lock import LOCK_FILE
from cluster.record.folder import (
    CHECKPOINT_FILES,
    ENDPOINTS_FILE,
    RESULT_FILE,
)
from tests.cluster.live.scenarios import SCENARIO
from tests.cluster.live.soak import left_behind
from tests.hangs import HANGS_AFTER_S

LEASE_S: Final = 30
"""For how long a testnet waits for another driver."""
MAX_DELAY_S: Final = 2.0
"""A driver is killed up to so long after its moment."""
PATIENCE_S: Final = 5.0
FULL_FOR_S: Final = 5.0
STEP_S: Final = 3_600.0
KILL: Final = {"kind": "kill", "target": "validator-1", "at_height": 6, "down_ms": 1_500}
LOSS: Final = {"kind": "lose_node", "target": "validator-1", "disks": "kept", "at_height": 8}
VIOLATING: Final = {"count": 4, "nodes": [{"mutant": "wrong-balance"}]}
"""The state of validator-0 is another one from the first transfer on."""

MOMENTS: Final = {
    "start": "starting Ray",
    "faults": "kill of validator-1 begins",
    "lost node": "is lost with host 1",
    "ending": "the load stops, draining",
    "collecting": "for their blocks and accounts",
    "judging": "agreement",
}
"""By name, what a driver says then."""
LATE: Final = ("ending", "collecting", "judging")
"""Those that a driver that took over can come to."""
COMERS: Final = (0, 1, 1, 2)
"""How many other drivers come, one after the other."""
DISTURBANCES: Final = ("", "", "two at once", "clock", "disk")
LEFT_FILES: Final = (LOCK_FILE, *CHECKPOINT_FILES)
DRIVER: Final = """
import sys
from pathlib import Path
from cluster.live.driver import ray_session
from cluster.commands.cli.main import main
from tests.cluster.live.soak_handover import disturb

ray_session.SHORT_TEMPORARY_FOLDER = Path(sys.argv.pop(1))
disturb(sys.argv.pop(1))
sys.exit(main())
"""


@dataclass(frozen=True)
class Plan:
    """What happens in one run."""

    number: int
    moment: str
    comers: int
    disturbance: str
    is_violated: bool
    again: str
    """The moment at which the first one that came is killed, if two come."""
    delays_s: tuple[float, float]

    @classmethod
    def draw(cls, number: int) -> Plan:
        """The plan of a number: the same each time. The moments come in turn."""
        random = Random(number)
        moment = list(MOMENTS)[number % len(MOMENTS)]
        return cls(
            number,
            moment,
            random.choice(COMERS),
            random.choice(DISTURBANCES),
            moment not in ("start", "lost node") and random.random() < 0.3,
            random.choice(LATE),
            (random.uniform(0, MAX_DELAY_S), random.uniform(0, MAX_DELAY_S)),
        )

    @property
    def scenario(self) -> dict[str, Any]:
        """Fields of the scenario."""
        loses_node = self.moment == "lost node"
        sound = {"count": 2, "ray_nodes": 2} if loses_node else {"count": 2}
        return {
            **SCENARIO,
            "validators": VIOLATING if self.is_violated else sound,
            "faults": [LOSS] if loses_node else [KILL],
            "stop": {"height": 40, "drain_blocks": 3, "timeout_s": 300},
        }

    def __str__(self) -> str:
        comers = ("nobody comes", "another comes", f"another comes, and one more after a kill at {self.again}")
        violation = "; violated" if self.is_violated else ""
        disturbance = f"; {self.disturbance}" if self.disturbance else ""
        return f"killed at {self.moment}; {comers[self.comers]}{disturbance}{violation}"

    def problem(self, verdict: str, reasons: Sequence[str]) -> str:
        """What is wrong with a verdict; empty if nothing is. ``reasons`` say why it is not *pass*."""
        undisturbed = Outcome.FAIL if self.is_violated else Outcome.PASS
        if verdict == Outcome.INCONCLUSIVE and not reasons:
            return "inconclusive without a reason"
        if verdict == Outcome.INCONCLUSIVE and not self.is_violated:
            return ""
        return "" if verdict == undisturbed else f"{verdict}, expected {undisturbed}: {'; '.join(reasons)}"


def disturb(what: str) -> None:
    """Plant a disturbance in this process: a clock that was set forward, or a disk that is full at first."""
    if what == "clock":
        clock = time.time
        time.time = lambda: clock() + STEP_S
    elif what == "disk":
        write, first_s = checkpoint.write, list[float]()

        def write_on_full_disk(*arguments: Any) -> Any:
            first_s.append(time.monotonic())
            if time.monotonic() < first_s[0] + FULL_FOR_S:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments)

        vars(checkpoint)["write"] = write_on_full_disk


class Driver:
    """A driver, whose output can be waited for."""

    def __init__(self, temporary: Path, disturbance: str, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        self.said = list[str]()
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(temporary), disturbance, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment | {"PYTHONPATH": str(ROOT)},
        )

    def wait_for(self, text: str) -> bool:
        """Whether it says something before it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if text in line:
                return True
        return False

    def kill_at(self, text: str, delay_s: float) -> None:
        """Kill it so many seconds after it says something, unless it ends before."""
        if self.wait_for(text):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(delay_s)
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(HANGS_AFTER_S)

    def end(self) -> int:
        """Wait until everybody has ended who shares its output. Returns its exit code."""
        assert self.process.stdout is not None
        self.said += self.process.stdout
        return self.process.wait(HANGS_AFTER_S)


class Row(msgspec.Struct):
    """What came of one run."""

    number: int
    plan: str
    verdict: str
    why: str
    wrong: list[str]
    seconds: float


class RunLog(LineLog[Row]):
    """The rows of a soak, on disk."""

    def __init__(self, folder: Path) -> None:
        """Open or begin the folder's log. Raises :class:`BadInput` if it cannot be read."""
        self.rows: dict[int, Row] = {}
        super().__init__(folder / "runs.jsonl", Row, "soak", {"soak": "handover"})

    def _take(self, row: Row) -> None:
        self.rows[row.number] = row


def run(plan: Plan, folder: Path) -> Row:
    """Do what a plan says. ``folder`` is that of the run; it must not be there."""
    began_s = time.monotonic()
    temporary = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    try:
        drivers = _drive(plan, folder, temporary)
        verdict, why = verdict_of(folder)
        wrong = [text for text in (plan.problem(verdict, why), *left(folder, temporary)) if text]
        if wrong:
            said = [line for driver in drivers for line in driver.said]
            folder.with_suffix(".log").write_text("".join(said), encoding="utf-8")
    finally:
        processes.end(processes.using(folder) | processes.using(temporary), 0.0)
        shutil.rmtree(temporary)
    return Row(plan.number, str(plan), verdict, "; ".join(why), wrong, round(time.monotonic() - began_s, 1))


def _drive(plan: Plan, folder: Path, temporary: Path) -> list[Driver]:
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(plan.scenario), encoding="utf-8")
    command = ("run", str(file), "--out", str(folder), "--attachable", str(LEASE_S))
    drivers = [Driver(temporary, plan.disturbance if plan.disturbance == "disk" else "", *command)]
    drivers[0].kill_at(MOMENTS[plan.moment], plan.delays_s[0])
    if plan.comers == 0:
        drivers[0].end()
    for comer in range(max(plan.comers, 1)):
        if not can_be_taken_over(folder):
            break
        attaching = [Driver(temporary, plan.disturbance, "attach", str(folder))]
        if plan.disturbance == "two at once":
            attaching.append(Driver(temporary, "", "attach", str(folder)))
        drivers += attaching
        if comer + 1 < plan.comers:
            for driver in attaching:
                driver.kill_at(MOMENTS[plan.again], plan.delays_s[1])
        else:
            for driver in attaching:
                driver.end()
    for driver in drivers:
        driver.end()
    return drivers


def verdict_of(folder: Path) -> tuple[str, list[str]]:
    """The verdict of a run, and the details of the checks that did not pass."""
    if not (folder / RESULT_FILE).exists():
        return "none", []
    result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    bad = [check for check in result["checks"] if check["verdict"] in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    return result["verdict"], [f"{check['name']}: {check['detail']}" for check in bad]


def left(folder: Path, temporary: Path) -> list[str]:
    """Processes, ports, folders of Ray, locks and checkpoints that a run has left."""
    endpoints = folder / ENDPOINTS_FILE
    known = json.loads(endpoints.read_text(encoding="utf-8"))["validators"] if endpoints.exists() else []
    for process in processes.using(folder) | processes.using(temporary):
        processes.end_of(process, PATIENCE_S)  # a watchdog ends after it has said so
    found = left_behind(folder, [validator["url"] for validator in known])
    found += [f"process {each.pid} is left: {processes.command(each)}" for each in processes.using(temporary)]
    found += [f"{path} is left" for path in temporary.iterdir()]
    return found + [f"{name} is left" for name in LEFT_FILES if (folder / name).exists()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; 0 where all is as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", type=seed_range, metavar="A:B")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    log = RunLog(options.out)
    for number in options.numbers:
        if number in log.rows:
            continue
        folder = options.out / f"run-{number}"
        shutil.rmtree(folder, ignore_errors=True)  # of a soak that was interrupted
        row = run(Plan.draw(number), folder)
        log.add(row)
        wrong = "".join(f"\n  {each}" for each in row.wrong)
        print(f"{number}: {row.plan}: {row.verdict}, {row.seconds:.0f} s{wrong}")
        if not row.wrong:
            shutil.rmtree(folder)
    (options.out / "table.md").write_text(table(list(log.rows.values())), encoding="utf-8")
    bad = [row.number for row in log.rows.values() if row.wrong]
    print(f"{len(log.rows)} runs, {len(bad)} wrong" + (f": {', '.join(map(str, bad))}" if bad else ""))
    return 1 if bad else 0


def table(rows: Sequence[Row]) -> str:
    """A Markdown table with a row for each run."""
    lines = ["| run | what happened | verdict | why | wrong | seconds |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: row.number):
        why, wrong = (text.replace("|", "/") for text in (row.why[:200], "; ".join(row.wrong) or "nothing"))
        lines.append(f"| {row.number} | {row.plan} | {row.verdict} | {why} | {wrong} | {row.seconds:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
