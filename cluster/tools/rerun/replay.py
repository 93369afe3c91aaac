"""``stampede replay``: repeats a recorded run and prints every event.

The run is first repeated without output and compared with its digests, so that the printed events are those of the
recorded run. Entries are not stored: a replay needs no more memory than a run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.suggestions import unknown
from cluster.simulation.driver import CHECKPOINT_DIGITS, Simulation
from cluster.tools.rerun.player import Filter, Player
from cluster.tools.rerun.recorded_run import RecordedRun, read_recorded
from cluster.tools.rerun.step import Stepper
from cluster.tools.rerun.watched_simulation import KINDS, Entry

SHOWN_DIGITS: Final = CHECKPOINT_DIGITS


class DoesNotRepeat(HarnessError):
    """Raised if the repetition of a run differs from the recorded run."""

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
    """Repeat the run in a folder and print its events, or step through them.

    Raises :class:`HarnessError` if the folder has no run, or if the run no longer repeats, unless ``is_forced``.
    """
    if shown.until_us is not None and shown.until_us < shown.from_us:
        raise BadInput("--until is before --from")
    run = read_recorded(folder)
    shown = Filter(shown.from_us, shown.until_us, _indexes(run, validators), shown.kinds)
    with Interrupts() as interrupts:
        problem = check_repeats(run, interrupts.checkpoint)
        if problem is not None and not is_forced:
            raise DoesNotRepeat(f"{run.difference(problem)} (--force prints it nevertheless)")
        if problem is not None:
            print(f"stampede: {run.difference(problem)}", file=sys.stderr)
        player = Player(run, interrupts.checkpoint)
        if is_stepped:
            Stepper(player, shown, sys.stdout).run(sys.stdin)
        else:
            _print(player.entries(shown), sys.stdout)
    return ExitCode.PASS


def _indexes(run: RecordedRun, validators: Sequence[str]) -> frozenset[int]:
    names = run.scenario.validators.names
    for name in validators:
        if name not in names:
            raise BadInput(f"--validator: no validator is named {name!r}; there are {', '.join(names)}")
    return frozenset(names.index(name) for name in validators)


def _print(entries: Iterator[Entry], output: TextIO) -> None:
    """Write a line for each entry, until the reader of the output is gone."""
    for entry in entries:
        output.write(entry.line() + "\n")
        if getattr(output, "is_gone", False):
            return
    output.flush()


def parse_kinds(text: str) -> list[str]:
    """Parse kinds of entries that are separated by commas. Raises :class:`ValueError` for an unknown kind."""
    kinds = [kind.strip() for kind in text.split(",")]
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(unknown("kind", kind, KINDS))
    return kinds
