"""``stampede replay``: prints every event of a run. A simulated run is repeated, a live one is read from its folder.

A simulated run is first repeated without output and compared with its digests, so that the printed events are those of
the recorded run. Entries are not stored: a replay needs no more memory than a run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final, TextIO

from cluster.commands.rerun.entries import KINDS, Entry
from cluster.commands.rerun.live_events import LIVE_KINDS, read_live
from cluster.commands.rerun.player import Filter, Player
from cluster.commands.rerun.recorded_run import RecordedRun, read_recorded, was_live
from cluster.commands.rerun.step import Stepper
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.suggestions import unknown
from cluster.scenario import Scenario
from cluster.simulation.course import CHECKPOINT_DIGITS
from cluster.simulation.driver import Simulation

SHOWN_DIGITS: Final = CHECKPOINT_DIGITS


class DoesNotRepeat(HarnessError):
    """Raised if the repetition of a run, or of its loop, differs from what is recorded."""

    exit_code = ExitCode.FAIL


def check_repeats(run: RecordedRun, checkpoint: Callable[[], None]) -> str | None:
    """Repeat a run without output; returns the first difference from the recorded run, or ``None``."""
    simulation = Simulation(run.scenario, run.seed, "")
    simulation.begin()
    known, below = simulation.record.checkpoints, 0
    while simulation.clock.events < run.events and simulation.advance():
        checkpoint()
        for height in range(below + 1, max(known, default=0) + 1):
            if run.checkpoints and known.get(height) != run.checkpoints.get(height):
                return f"the runs differ before height {height} is final, at {simulation.clock.now_ms:,.3f} ms"
            below = height
    digest = simulation.clock.digest()
    if digest != run.digest:
        return f"its digest is {digest[:SHOWN_DIGITS]}…, the recorded one {run.digest[:SHOWN_DIGITS]}…"
    return None


def replay(folder: Path, shown: Filter, validators: Sequence[str], is_forced: bool, is_stepped: bool) -> ExitCode:
    """Print the events of the run in a folder, or step through those of a simulated one.

    Raises :class:`HarnessError` if the folder has no run, or, unless ``is_forced``, if a simulated run no longer
    repeats, or the record of a live one does not follow from its journal.
    """
    if was_live(folder):
        return _replay_live(folder, shown, validators, is_forced, is_stepped)
    run = read_recorded(folder)
    check_kinds(shown, KINDS.keys(), f"{folder}: was a simulated run")
    shown = replace(shown, validators=indexes(run.scenario, validators))
    with Interrupts() as interrupts:
        problem = check_repeats(run, interrupts.checkpoint)
        if problem is not None:
            _tell_problem(run.difference(problem), is_forced)
        player = Player(run, interrupts.checkpoint)
        if is_stepped:
            Stepper(player, shown, sys.stdout).run(sys.stdin)
        else:
            print_entries(player.entries(shown), sys.stdout)
    return ExitCode.PASS


def _replay_live(folder: Path, shown: Filter, validators: Sequence[str], is_forced: bool, is_stepped: bool) -> ExitCode:
    if is_stepped:
        raise BadInput(f"{folder}: was a live run: --step is for simulated runs, which are run again")
    check_kinds(shown, LIVE_KINDS, f"{folder}: was a live run")
    run = read_live(folder)
    shown = replace(shown, validators=indexes(run.record.scenario, validators))
    if run.problem:
        _tell_problem(run.problem, is_forced or run.follows)
    until_us = shown.until_us
    entries = takewhile(lambda entry: until_us is None or entry.at_us <= until_us, run.entries())
    print_entries(filter(shown.takes, entries), sys.stdout)
    return ExitCode.PASS


def _tell_problem(line: str, goes_on: bool) -> None:
    if not goes_on:
        raise DoesNotRepeat(f"{line} (--force prints it nevertheless)")
    print(f"stampede: {line}", file=sys.stderr)


def check_times(shown: Filter) -> None:
    """Raise :class:`BadInput` if no time is selected."""
    if shown.until_us is not None and shown.until_us < shown.from_us:
        raise BadInput("--until is before --from")


def check_kinds(shown: Filter, known: Set[str], whose: str) -> None:
    """Raise :class:`BadInput` for a kind that ``whose`` events do not have."""
    if wrong := sorted(shown.kinds - known):
        raise BadInput(f"--kind: {whose}, which has no events of kind {wrong[0]}; it has {', '.join(sorted(known))}")


def indexes(scenario: Scenario, validators: Sequence[str]) -> frozenset[int]:
    """The indexes of validators by name. Raises :class:`BadInput`."""
    names = scenario.validators.names
    for name in validators:
        if name not in names:
            raise BadInput(f"--validator: no validator is named {name!r}; there are {', '.join(names)}")
    return frozenset(names.index(name) for name in validators)


def print_entries(entries: Iterable[Entry], output: TextIO) -> bool:
    """Write a line for each entry, until the reader of the output is gone. Returns whether it is there."""
    for entry in entries:
        output.write(entry.line() + "\n")
        if getattr(output, "is_gone", False):
            return False
    output.flush()
    return True


def parse_kinds(text: str) -> list[str]:
    """Parse kinds of entries that are separated by commas. Raises :class:`ValueError` for an unknown kind."""
    kinds = [kind.strip() for kind in text.split(",")]
    for kind in kinds:
        if kind not in LIVE_KINDS | KINDS.keys():
            raise ValueError(unknown("kind", kind, LIVE_KINDS | KINDS.keys()))
    return kinds
