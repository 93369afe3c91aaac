"""Traces one run: takes the steps that its driver reports, makes spans of its final blocks, and exports them.

Nothing here holds the driver up. It only appends to a queue: one thread makes spans, another one exports them. Blocks
of a live run have their spans a few blocks later, when slower validators have made them final, too. Those of a
simulation, which has no blocks before its end, are made at the end.

Times are those of the validators' machines: on one machine all processes share a clock
(:mod:`cluster.live.processes.steady_clock`), on several they differ as the machines' clocks do. The virtual time of a
simulation begins when the command does.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cluster.audit.figures import Failure
from cluster.common.checkout import version
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import counted
from cluster.record.archive import BlockRecord
from cluster.record.message_trace import choose_watched
from cluster.record.run import Backend, RunRecord, Step
from cluster.scenario import Scenario
from cluster.scenario.files import scenario_hash
from cluster.scenario.genesis import validator_set
from consensus.types import View
from kits.tracing.block_spans import Chain
from kits.tracing.otlp import Exported, SpanExport, is_disabled
from kits.tracing.sampler import Sampler
from kits.tracing.step_log import StepLog
from kits.tracing.ways import Ways

SETTLED_BLOCKS: Final = 4
"""A block of a run that goes on has its spans when this many more are final."""
QUEUE_STEPS: Final = 1 << 18
"""Bound for the steps that wait for the thread. The oldest are dropped beyond it."""
LOOK_EVERY_S: Final = 0.5


def tracer_of(url: str, folder: Path, scenario: Scenario, backend: Backend) -> Tracer | None:
    """The tracer of a run; ``None`` if OpenTelemetry's variable switches all export off. Raises as :class:`Tracer`."""
    return None if is_disabled() else Tracer(url, folder, scenario, backend)


class Tracer:
    """The tracing of one run, from its begin to :meth:`finish` or :meth:`close`."""

    def __init__(self, url: str, folder: Path, scenario: Scenario, backend: Backend) -> None:
        """``url`` is the collector's, for traces. Raises :class:`~cluster.common.errors.BadInput` if one of
        OpenTelemetry's variables is wrong."""
        self._sampler = Sampler.of(os.environ)
        self._url, self._name, self._is_simulated = url, folder.name, backend == "sim"
        facts = {
            "service.namespace": scenario.name,
            "service.version": version(),
            "service.instance.id": folder.name,
            "stampede.backend": backend,
            "stampede.scenario_hash": scenario_hash(scenario),
            "stampede.clock": "virtual" if backend == "sim" else "wall",
        }
        self._export = SpanExport(url, facts)
        self._steps = StepLog(scenario.validators.count)
        self._waiting: deque[Step] = deque(maxlen=QUEUE_STEPS)
        self._ways: Ways | None = None
        self._began_epoch_ms = time.time() * MILLISECONDS_PER_SECOND
        self._record: RunRecord | None = None
        """The record of a live run that goes on."""
        self._ending, self._is_over = threading.Event(), False
        self._thread: threading.Thread | None = None

    def on_step(self, step: Step) -> None:
        """Take a step (:attr:`~cluster.record.run.RunObserver.on_step`)."""
        if self._is_simulated:
            self._steps.note(step)
        else:
            self._waiting.append(step)

    def on_look(self, record: RunRecord) -> None:
        """Take the record of a run that goes on (:attr:`~cluster.record.run.RunObserver.on_look`)."""
        if self._thread is None:
            self._record = record
            self._thread = threading.Thread(target=self._follow, name="traces", daemon=True)
            self._thread.start()

    def finish(
        self, record: RunRecord, chain: Sequence[BlockRecord], reasons: Mapping[Failure, str] = {}
    ) -> tuple[str, bool]:
        """Export what is left of a run that is over. ``chain`` has all its blocks, from height 1 on.

        ``reasons`` are those of failed runs (:mod:`cluster.commands.run.reasons`). Returns a line that says what was
        exported, and whether that was everything.
        """
        self._stop()
        self._take_steps()
        ways = self._ways or self._begin(record)
        ways.reasons = reasons
        while ways.height < len(chain):
            self._export.add(ways.add(chain[ways.height]), self._began_epoch_ms)
            self._export.wait_for_room()
        self._export.add(ways.finish(record.duration_ms), self._began_epoch_ms)
        self._is_over = True
        found = self._export.close()
        return self._words(ways, found), not found.left_out

    def close(self) -> None:
        """End the tracing of a run that failed to start; does nothing after :meth:`finish`."""
        if not self._is_over:
            self._is_over = True
            self._stop()
            self._export.close(0.0)

    def _stop(self) -> None:
        """End the thread, which completes the block at hand."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        record = self._record
        assert record is not None
        while not self._ending.wait(LOOK_EVERY_S):
            self._take_steps()
            ways = self._ways or self._begin(record)
            settled = min(len(record.store), self._steps.height - SETTLED_BLOCKS)
            while ways.height < settled and not self._ending.is_set():
                try:
                    block = record.store.at(ways.height + 1)
                except OSError:  # a full disk, which ends the run by itself
                    break
                self._export.add(ways.add(block), self._began_epoch_ms)

    def _take_steps(self) -> None:
        while self._waiting:
            self._steps.note(self._waiting.popleft())

    def _begin(self, record: RunRecord) -> Ways:
        scenario = record.scenario
        if record.backend == "live":
            self._began_epoch_ms = record.began_epoch_ms
        validators = validator_set(record.scheme, scenario, record.seed)
        chain = Chain(
            f"{self._name}/{self._began_epoch_ms}".encode(),
            scenario.validators.names,
            frozenset(choose_watched(scenario)),
            frozenset(scenario.validators.byzantine),
            lambda view: validators.committee(View(view)).quorum,
        )
        self._ways = ways = Ways(chain, self._steps, self._sampler)
        if record.absences:  # another driver heard of these blocks
            ways.skip(max(record.finalizations.highest(absence.until_ms) for absence in record.absences))
        return ways

    def _words(self, ways: Ways, found: Exported) -> str:
        total = counted(found.exported + found.left_out, "span")
        left_out = f"; {counted(ways.timers_left_out, 'timer')} had no trace" if ways.timers_left_out else ""
        if not found.left_out:
            return f"{total} of {counted(ways.traces, 'trace')} to {self._url}{left_out}"
        reason = f": {found.reason}" if found.reason else ""
        return f"{found.left_out:,} of {total} were not exported to {self._url}{reason}{left_out}"
