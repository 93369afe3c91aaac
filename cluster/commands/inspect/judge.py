"""``stampede judge``: judges the run in a folder again, from its record, with the checks of this code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.checks.run import Judge
from cluster.commands.console.outputs import TERMINAL_ONLY, Outputs
from cluster.commands.drills.command_line import drill_with
from cluster.commands.run.attaching import refuse_ended
from cluster.commands.run.scenario_run import PlannedRun, run_in
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.live.processes.cleanup_watchdog import can_be_taken_over
from cluster.live.processes.driver_lock import driving
from cluster.record.folder import RECORD_FILE, RESULT_FILE, claimed, expect_run_folder
from cluster.record.run import RunRecord
from cluster.record.saved import read_record
from cluster.scenario.code.gate import code_of, code_of_genesis, pass_gate
from cluster.scenario.files import change_scenario
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.overrides import Change, options_of
from consensus.keys import Ed25519Scheme

if TYPE_CHECKING:  # the live testnet takes a while to load
    from cluster.live.handover.left import LeftRun

CRITERIA: Final = "success"
"""The section of a scenario that a judge reads alone. All others say what ran."""


def judge_again(folder: Path, changes: Sequence[Change] = (), outputs: Outputs = TERMINAL_ONLY) -> ExitCode:
    """Judge the run in a folder, show the verdict, and write result and report again. Returns the verdict's exit code.

    ``changes`` apply to the criteria of this time: the folder's record stays as it is. A live run whose driver died is
    judged from its last checkpoint once its testnet has ended. Raises :class:`BadInput` if the folder has no such run.
    """
    expect_run_folder(folder)
    for change in changes:
        if re.split(r"[.\[]", change.path)[0] != CRITERIA:
            raise BadInput(f"{change.path}: cannot change once the run is over; expected a field of {CRITERIA}")
    with claimed(folder), driving(folder):  # a driver that attaches claims no folder
        is_again = (folder / RECORD_FILE).exists()
        if changes and not is_again:
            raise BadInput(
                f"{folder}: has no record yet, which keeps the criteria of the run: judge it once without changes first"
            )
        record = read_run_of(folder)
        what = f"{folder} with {options_of(changes)}"
        record.scenario = change_scenario(record.scenario, changes, what)
        if record.given is not None:
            record.given = change_scenario(record.given, changes, what)
        planned = PlannedRun(
            record.scenario,
            record.backend,
            lambda *_: nullcontext(record),
            judge=_judge_of_drill(record),
            outputs=outputs,
            is_again=is_again,
        )
        # a signal ends the judge, not the run: no handler is set
        return run_in(planned, folder, Interrupts()).verdict.exit_code


def read_run_of(folder: Path) -> RunRecord:
    """The record of a run that ended, or what is left of a live run whose driver died. Nothing is written.

    Its code has to pass the gate. Raises :class:`BadInput`.
    """
    return _recorded(folder) if (folder / RECORD_FILE).exists() else _left_behind(folder)


def _judge_of_drill(record: RunRecord) -> Judge | None:
    """The judge of the drill that a run was; ``None`` if it was none."""
    if record.drill is None:
        return None
    page = record.drill.page
    return drill_with(page["name"], [f"{name}={value}" for name, value in page["options"].items()]).judge


def _recorded(folder: Path) -> RunRecord:
    record = read_record(folder)
    pass_gate([*code_of(record.scenario), *code_of_genesis(record.genesis)], str(folder))
    return record


def _left_behind(folder: Path) -> RunRecord:
    """The record of a live run whose driver died. Raises :class:`BadInput`."""
    from cluster.live.handover import checkpoint

    if not can_be_taken_over(folder):
        raise BadInput(
            f"{folder}: has no record of a run: expected {RECORD_FILE}, which each finished run has,"
            " or the checkpoint of a run that was started with --attachable"
        )
    if not (folder / RESULT_FILE).exists():
        raise BadInput(f"{folder}: its testnet may still be up: stampede attach {folder} brings it to its verdict")
    failed = refuse_ended(folder)
    left = checkpoint.read(folder)
    for check, words in failed.items():
        left.record.seen_violations.setdefault(check, words)
    pass_gate([*code_of(left.scenario), *code_of(left.record.scenario)], str(folder))
    return _record_left(left, folder)


def _record_left(left: LeftRun, folder: Path) -> RunRecord:
    """What the driver and the validators had reported when the driver died. No validator is asked.

    Unless only the verdict was missing, the run counts as interrupted. Raises :class:`OSError`.
    """
    from cluster.live.handover.handover import COLLECTED, restore
    from cluster.watches.live.live_audit import LiveAudit

    scenario, seed = left.scenario, left.record.seed
    genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
    record = RunRecord(scenario, "live", seed, left.commit, genesis)
    _, sightings, told, rows = restore(left, record, folder)
    sightings.close()
    told.close()
    audit = LiveAudit(record)
    audit.take_over(left.audit, rows)
    audit.enter_unasked()
    if left.phase != COLLECTED:
        record.interrupted, record.duration_ms = True, left.clock.at_ms
        record.problems.append(f"the driver died at height {left.chain.height}, and no other took the run over")
    return record
