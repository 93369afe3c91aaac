"""Interactive stepping through a recorded run, at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TextIO

from cluster.commands.rerun.entries import head
from cluster.commands.rerun.player import Filter, Player, parse_time_us
from cluster.simulation.machine import Machine
from validator.primitives.types import parse_decimal
from validator.storage.journal import JOURNAL_FILE

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
