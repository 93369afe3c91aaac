"""``stampede runs --follow`` and ``replay --follow``: the events of a live run as they come, read from its journal.

A driver appends to the journal, so its last frame may be incomplete for a moment. A driver that takes a run over goes
on from a checkpoint, which may lack the last frames: then the entries from the first other one on are shown again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cluster.commands.rerun.entries import Entry
from cluster.commands.rerun.live_events import LIVE_KINDS, Decided, beginning, reading
from cluster.commands.rerun.replay import Filter, check_kinds, indexes, print_entries
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.live.processes.cleanup_watchdog import can_be_taken_over
from cluster.live.processes.driver_lock import is_driven
from cluster.record.folder import JOURNAL_FILE, RESULT_FILE, is_locked, read_result
from cluster.run.events import Begun, Seen
from cluster.run.journal import read_journal
from cluster.scenario.code.gate import code_of, pass_gate
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme

POLL_S: Final = 0.5
PATIENCE: Final = 60
"""Polls without a driver after which the run has ended: what cleans up after a dead one takes some seconds."""

Wait = Callable[[float], object]


class Tail:
    """The entries of a journal that grows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / JOURNAL_FILE
        self._known = b""
        """The whole frames that were read."""
        self._entries: list[Entry] = []
        self._decided: Decided | None = None
        self.begun: Begun | None = None
        """How the run began, once the journal has that."""

    def news(self) -> list[Entry]:
        """The entries that came since the last call. Raises :class:`BadInput`."""
        with reading(self._path):
            content = self._path.read_bytes()
            is_same = content.startswith(self._known)
            if not is_same:
                self._known, self._decided = b"", None
            told, whole = read_journal(content, len(self._known))
            self._known = content[:whole]
            new = self._take(told)
        before, first = self._entries, len(self._entries)
        if is_same:
            self._entries += new
        else:
            self._entries = new
            pairs = enumerate(zip(before, new, strict=False))
            first = next((place for place, (one, other) in pairs if one != other), min(first, len(new)))
        return self._entries[first:]

    def _take(self, told: Sequence[Seen]) -> list[Entry]:
        if told and self._decided is None:
            self.begun = begun = beginning(told)
            scenario, seed = begun.scenario, begun.seed
            pass_gate(code_of(scenario), str(self._folder))
            self._decided = Decided(
                begun, build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
            )
        return [] if self._decided is None else list(self._decided.entries(told))


def follow(folder: Path, shown: Filter, validators: Sequence[str] = (), wait: Wait | None = None) -> ExitCode:
    """Print the events of a live run as they come, until it has ended. Returns its verdict's exit code.

    A signal, the filter's end and a reader of the output that is gone end it before, with the exit code of a pass.
    Raises :class:`BadInput` for a folder without a journal, and for a run whose driver died without a verdict.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder: expected that of a live run")
    if not (folder / JOURNAL_FILE).exists():
        raise BadInput(f"{folder}: has no {JOURNAL_FILE} to follow: a live run writes one, a simulated run has none")
    check_kinds(shown, LIVE_KINDS, f"{folder}: is a live run")
    with Interrupts() as interrupts:
        try:
            return _follow(folder, shown, validators, wait or interrupts.wait)
        except KeyboardInterrupt:
            return ExitCode.PASS


def _follow(folder: Path, shown: Filter, validators: Sequence[str], wait: Wait) -> ExitCode:
    tail, patience, until_us = Tail(folder), PATIENCE, shown.until_us
    while True:
        has_ended = (folder / RESULT_FILE).exists()  # before the last look at the journal
        new = tail.news()
        if tail.begun is not None:
            shown = replace(shown, validators=indexes(tail.begun.scenario, validators))
        in_time = [entry for entry in new if until_us is None or entry.at_us <= until_us]
        if not print_entries(filter(shown.takes, in_time), sys.stdout) or len(in_time) < len(new):
            return ExitCode.PASS
        if has_ended:
            return _tell_verdict(folder)
        patience = PATIENCE if _lives(folder) else patience - 1
        if not patience:
            raise BadInput(f"{folder}: has no driver any more, and no verdict")
        wait(POLL_S)


def _lives(folder: Path) -> bool:
    """Whether a run has a driver, or may get another one."""
    return is_locked(folder) or is_driven(folder) or can_be_taken_over(folder)


def _tell_verdict(folder: Path) -> ExitCode:
    verdict = read_result(folder).get("verdict")
    if verdict not in list(Outcome):
        raise BadInput(f"{folder / RESULT_FILE}: no result of a run: its verdict is not one")
    print(f"verdict {verdict}", flush=True)
    return ExitCode[Outcome(verdict).name]
