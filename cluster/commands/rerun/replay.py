"""``stampede replay``: prints every event of a run. A simulated run is repeated, a live one is read from its folder.

A simulated run is first repeated without output and compared with its digests, so that the printed events are those of
the recorded run. Entries are not stored: a replay needs no more memory than a run. With ``--step`` the user steps
through the run at the terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final, TextIO

from cluster.commands.rerun.entries import KINDS, Entry, head, replayed
from cluster.commands.rerun.live_events import LIVE_KINDS, read_live
from cluster.commands.rerun.recorded_run import RecordedRun, read_recorded, was_live
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.suggestions import unknown
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.scenario import Scenario
from cluster.simulation.course import CHECKPOINT_DIGITS
from cluster.simulation.driver import Simulation
from cluster.simulation.machine import Machine
from validator.primitives.types import parse_decimal
from validator.storage.journal import JOURNAL_FILE


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects entries of a replay by time, validator and kind."""

    from_us: int = 0
    until_us: int | None = None
    validators: frozenset[int] = frozenset()
    """Indexes of validators; empty selects all."""
    kinds: frozenset[str] = frozenset()

    def takes(self, entry: Entry) -> bool:
        return (
            entry.at_us >= self.from_us
            and (not self.kinds or entry.kind in self.kinds)
            and (not self.validators or not entry.whom or not self.validators.isdisjoint(entry.whom))
        )


class Player:
    """Repeats a recorded run in the simulator, event by event, and collects the entries of each event."""

    def __init__(self, run: RecordedRun, checkpoint: Callable[[], None]) -> None:
        self.run = run
        self._entries: list[Entry] = []
        self.simulation = replayed(run.scenario, run.seed, self._entries.append)
        self._checkpoint = checkpoint
        self._is_begun = False

    def advance(self) -> list[Entry] | None:
        """Perform the next event; returns its entries, or ``None`` if the run is over."""
        self._checkpoint()
        self._entries.clear()
        if not self._is_begun:
            self._is_begun = True
            self.simulation.begin()
        elif self.simulation.clock.events >= self.run.events or not self.simulation.advance():
            return None
        return list(self._entries)

    def entries(self, shown: Filter) -> Iterator[Entry]:
        """Play the run up to the filter's end; yields the entries that the filter selects."""
        while shown.until_us is None or self.simulation.clock.next_us <= shown.until_us:
            found = self.advance()
            if found is None:
                return
            yield from (entry for entry in found if shown.takes(entry))


_TIME: Final = re.compile(r"(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?P<unit>ms|s|)")
MAX_TIME_CHARACTERS: Final = 16


def parse_time_us(text: str) -> int:
    """Parse a time in milliseconds, or in seconds with the suffix ``s``; returns microseconds. Raises
    :class:`ValueError`."""
    found = _TIME.fullmatch(text)
    if found is None or len(found["number"]) > MAX_TIME_CHARACTERS:
        raise ValueError(f"{text!r} is not a time: expected milliseconds such as 1500.25, or seconds such as 1.5s")
    scale = 1_000 if found["unit"] == "s" else 1
    return round(float(found["number"]) * scale * MICROSECONDS_PER_MILLISECOND)


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


HELP: Final = """\
n [COUNT]   run to the next printed event (also: an empty line)
h [HEIGHT]  run until that height, or the next one, is final somewhere
t TIME      run until that time
s [NAME]    print the state of a validator, or of all
q           quit"""


class Stepper:
    """One interactive session: it reads commands, steps through the run and prints entries."""

    def __init__(self, player: Player, shown: Filter, output: TextIO) -> None:
        self._player, self._shown, self._output = player, shown, output
        self._names = player.run.scenario.validators.names
        self._is_over = False

    def run(self, commands: TextIO) -> None:
        """Read and execute commands until the input ends, the user quits, or the run is over."""
        self._say(f"{self._player.run.folder}: {self._player.run.events:,} events; ? lists the commands")
        while not self._is_over:
            self._output.write("> ")
            self._output.flush()
            line = commands.readline()
            if not line or line.strip() in ("q", "quit"):
                return
            self._obey(*(line.split(maxsplit=1) or ["n"]))

    def _obey(self, command: str, argument: str = "") -> None:
        argument = argument.strip()
        known: dict[str, Callable[[str], None]] = {"n": self._next, "h": self._to_height, "t": self._to_time}
        known |= {"s": self._show_state, "?": lambda _: self._say(HELP)}
        obey = known.get(command)
        if obey is None:
            self._say(f"unknown command {command!r}; ? lists the commands")
            return
        try:
            obey(argument)
        except ValueError as error:
            self._say(str(error))

    def _next(self, argument: str) -> None:
        for _ in range(_number(argument, 1)):
            for shows in self._events():
                if shows:
                    break

    def _to_height(self, argument: str) -> None:
        reached = self._player.simulation.record.checkpoints
        height = _number(argument, max(reached, default=0) + 1)
        if max(reached, default=0) >= height:
            raise ValueError(f"height {height} is final already")
        for _ in self._events():
            if max(reached, default=0) >= height:
                break

    def _to_time(self, argument: str) -> None:
        until_us = parse_time_us(argument)
        while self._player.simulation.clock.next_us <= until_us and next(self._events(), None) is not None:
            pass

    def _events(self) -> Iterator[bool]:
        """Play the run event by event, and print the selected entries. Yields for each event whether it printed any."""
        while True:
            entries = self._player.advance()
            if entries is None:
                self._is_over = True
                self._say(f"the run is over at {self._player.simulation.clock.now_ms:,.3f} ms")
                return
            lines = [entry.line() for entry in entries if self._shown.takes(entry)]
            for line in lines:
                self._say(line)
            yield bool(lines)

    def _show_state(self, name: str) -> None:
        if name and name not in self._names:
            raise ValueError(f"no validator is named {name!r}; there are {', '.join(self._names)}")
        for machine in self._player.simulation.machines:
            if name in ("", machine.name):
                self._say(state_of(machine))

    def _say(self, text: str) -> None:
        self._output.write(text + "\n")


def state_of(machine: Machine) -> str:
    """The state of a simulated validator's machine, in one line of text."""
    if machine.joining is not None:
        return f"{machine.name}: joins by a snapshot"
    if machine.validator is None:
        return f"{machine.name}: is down, started {machine.tally.starts} times"
    node, final = machine.validator.node, machine.validator.executor.final_header
    still = "paused, " if machine.is_paused else ""
    diverged = f", diverged at height {node.diverged.height}" if node.diverged is not None else ""
    return (
        f"{machine.name}: {still}view {node.view} led by validator {node.leader}, final view {node.final_view},"
        f" height {node.height}, state {head(final.state_root)}, {len(node.mempool):,} transactions wait,"
        f" {machine.tally.pending_timers:,} timers pending, journal {machine.disk.size(JOURNAL_FILE):,} bytes{diverged}"
    )


def _number(text: str, default: int) -> int:
    if not text:
        return default
    if not (number := parse_decimal(text, 10**9 - 1)):
        raise ValueError(f"{text!r} is not a positive number")
    return number
