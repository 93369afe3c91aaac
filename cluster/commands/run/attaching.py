"""``stampede attach``: take over a live run whose driver has died, and bring it to its verdict."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from cluster.commands.console.outputs import TERMINAL_ONLY, Outputs
from cluster.commands.run.scenario_run import PlannedRun, run_in
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.live.processes.driver_lock import driving
from cluster.record.folder import RESULT_FILE, read_result
from cluster.record.run import RunObserver, RunRecord
from cluster.scenario.code.gate import code_of, pass_gate

NOBODY_CAME: Final = "nobody_came"
"""Name of the field by which a result shows that a cleanup watchdog has written it, not a driver."""


def attach_run(folder: Path, outputs: Outputs = TERMINAL_ONLY) -> ExitCode:
    """Take over the live run in a folder, show its progress and verdict, write its folder. Returns the exit code.

    Raises :class:`BadInput` if the run's driver is alive, if the run has ended, or if it has no checkpoint.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; expected the folder of a live run")
    refuse_ended(folder)
    from cluster.live.handover import checkpoint

    with Interrupts() as interrupts, driving(folder) as lived_until_s:
        failed = refuse_ended(folder)
        left = checkpoint.read(folder)
        _refuse_other_code(folder, left.commit)
        for check, words in failed.items():  # a full disk may have kept them out of the checkpoint
            left.record.seen_violations.setdefault(check, words)
        clock = replace(left.clock, written_epoch_s=max(lived_until_s, left.clock.written_epoch_s))
        found = replace(left, clock=clock)
        pass_gate([*code_of(found.scenario), *code_of(found.record.scenario)], str(folder))

        def perform(folder: Path, observer: RunObserver, interrupts: Interrupts) -> AbstractContextManager[RunRecord]:
            from cluster.watches.live.audited_testnet import attached_testnet

            return attached_testnet(found, folder, interrupts, observer)

        planned = PlannedRun(found.scenario, "live", perform, outputs=outputs)
        return run_in(planned, folder, interrupts).verdict.exit_code


def refuse_ended(folder: Path) -> dict[str, list[str]]:
    """Raise :class:`BadInput` if a run has ended with a verdict of its driver.

    If a cleanup watchdog has written the result, return the violations in it, keyed by check. The driver had reported
    them before.
    """
    if not (folder / RESULT_FILE).exists():
        return {}
    result = read_result(folder)
    if not result.get(NOBODY_CAME):
        raise BadInput(f"{folder}: that run has ended, with the verdict {result.get('verdict')}")
    return {check["name"]: [check["detail"]] for check in result["checks"] if check["verdict"] == Outcome.FAIL}


def _refuse_other_code(folder: Path, started_by: str) -> None:
    commit = checkout_commit()
    if started_by != commit:
        raise BadInput(f"{folder}: was started by commit {started_by}, this is {commit}; expected the same code")
