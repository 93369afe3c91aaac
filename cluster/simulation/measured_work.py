"""The work of simulated machines that take the measured times of a profile
(:mod:`cluster.scenario.sections.measurements.profile`).

All machines share the profile's processors. Jobs that run at the same time share them evenly, as an operating system's
scheduler does; a job uses at most one. A job's effects on the state and the disk happen when it begins, and its result
is delivered when its processor time, and the syncs of the disk that it made, are over. The journal writes one batch
after the other: appends that come during a write are one batch, with one sync.

Not modelled: processor time of anything but jobs, the interpreter lock of a host with several validators, a load
generator and a driver on the same machine, and a crash in the middle of a job.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.scenario.sections.measurements.profile import ProfileSection, draw
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine, Work
from validator.node.executor.jobs import Build, Execute, Finalize, Job
from validator.storage.journal import JOURNAL_FILE

SHARES_PER_US: Final = 1 << 20
"""Resolution of the processor time that jobs have used, so that rounding does not add up."""


class _Running(NamedTuple):
    goal: int
    """The value of the processors' count of shares at which the job has had its processor time."""
    number: int
    owner: int
    done: Callable[[], None]


class Processors:
    """Processors shared evenly by all that run on them, in virtual time."""

    def __init__(self, clock: VirtualClock, count: int) -> None:
        self._clock = clock
        self._count = count
        self._running: list[_Running] = []
        """A heap: the job that is done first comes first."""
        self._shares = 0
        """Shares that a job which ran from the beginning would have had."""
        self._now_us = 0
        self._number = 0
        self._looks = 0

    def run(self, owner: int, work_us: int, done: Callable[[], None]) -> None:
        """Run work that takes this much time of one processor, and call ``done`` when it has had it."""
        self._advance()
        self._number += 1
        heapq.heappush(self._running, _Running(self._shares + work_us * SHARES_PER_US, self._number, owner, done))
        self._schedule()

    def cancel(self, owner: int) -> None:
        """Drop all work of an owner."""
        self._advance()
        left = [each for each in self._running if each.owner != owner]
        if len(left) < len(self._running):
            heapq.heapify(left)
            self._running = left
            self._schedule()

    def _advance(self) -> None:
        """Account for the time since the last change."""
        passed_us, self._now_us = self._clock.now_us - self._now_us, self._clock.now_us
        if self._running:
            self._shares += passed_us * SHARES_PER_US * self._count // max(self._count, len(self._running))

    def _schedule(self) -> None:
        """Plan to look when the next work is done. Every change of what runs replaces the plan."""
        self._looks += 1
        if not self._running:
            return
        missing, look = max(0, self._running[0].goal - self._shares), self._looks
        per_us = SHARES_PER_US * self._count
        delay_us = -(-missing * max(self._count, len(self._running)) // per_us)
        self._clock.after(delay_us, "processors", b"", lambda: self._look(look))

    def _look(self, look: int) -> None:
        if look != self._looks:
            return
        self._advance()
        ended: list[_Running] = []
        while self._running and self._running[0].goal <= self._shares:
            ended.append(heapq.heappop(self._running))
        self._schedule()
        for each in ended:
            each.done()


class MeasuredTimes:
    """The times of one run: a profile, the processors, and the random source from which durations are drawn."""

    def __init__(self, profile: ProfileSection, clock: VirtualClock, seed: int) -> None:
        self.profile = profile
        self.processors = Processors(clock, profile.processors)
        self.random = Random(f"{seed}/profile")
        self._owners = 0

    def work_of(self, machine: Machine) -> Work:
        """Create the work of a machine."""
        self._owners += 1
        return MeasuredWork(machine, self, self._owners)

    def draw_us(self, quantiles: Sequence[int]) -> int:
        """Draw one of the profile's times, in microseconds."""
        return draw(quantiles, self.random)

    def message_us(self) -> int:
        """Draw the additional delay of a message until it is handled, in microseconds."""
        return self.draw_us(self.profile.link_us) + self.draw_us(self.profile.message_us)

    def start_us(self) -> int:
        """Draw the time that a validator takes to start again, in microseconds."""
        return self.draw_us(self.profile.start_us)

    def job_us(self, job: Job, transactions: int, fires: int) -> int:
        """Draw the processor time of a job, in microseconds; 0 for one that only reads."""
        costs = {Build: self.profile.build, Execute: self.profile.execute, Finalize: self.profile.finalize}
        cost = costs.get(type(job))
        return 0 if cost is None else cost.draw_us(transactions, fires, self.random)


class MeasuredWork(Work):
    """The work of one machine, with measured durations. ``sync_ms`` and ``job_ms`` are added to them, as live."""

    def __init__(self, machine: Machine, times: MeasuredTimes, owner: int) -> None:
        super().__init__(machine)
        self._times = times
        self._owner = owner
        self._is_warm = False
        self._batch_begins_us = 0
        """When the sync that later appends still share begins."""

    def cancel_all(self) -> None:
        """Drop all work in progress. The next process recovers what the disk has, which warms it up."""
        super().cancel_all()
        self._times.processors.cancel(self._owner)
        self._batch_begins_us = 0
        self._is_warm = True

    def _write_journal(self, sync_us: int) -> int:
        """Plan a write of the journal that comes now, and return when it is done, in microseconds."""
        now_us = self._machine.clock.now_us
        if self._batch_begins_us <= now_us:  # it is under way, or over: the write begins the next batch
            self._batch_begins_us = max(now_us, self._journal_busy_until_us)
            self._journal_busy_until_us = self._batch_begins_us + sync_us
        return self._journal_busy_until_us

    def _draw_sync_us(self) -> int:
        return self._times.draw_us(self._times.profile.sync_us) + self.sync_ms * MICROSECONDS_PER_MILLISECOND

    def _append_takes_us(self) -> int:
        return self._write_journal(self._draw_sync_us()) - self._machine.clock.now_us

    def replace_journal(self, data: bytes) -> None:
        """Replace the journal. Later appends wait for it."""
        self._machine.disk.replace(JOURNAL_FILE, data)
        self._note_slow_syncs(1)
        self._write_journal(self._draw_sync_us())

    def _run_job(self) -> None:
        machine, job = self._machine, self.jobs[0]
        assert machine.validator is not None
        before = machine.disk.syncs
        result = machine.validator.executor.run(job)
        self._has_job_run = True
        syncs = machine.disk.syncs - before
        self._note_slow_syncs(syncs)
        wait_us = self._times.draw_us(self._times.profile.hand_over_us) + sum(
            self._draw_sync_us() for _ in range(syncs)
        )
        transactions, fires = machine.validator.executor.sizes_of(result)
        work_us = self._times.job_us(job, transactions, fires)
        if isinstance(job, Build | Execute) and fires and not self._is_warm:
            self._is_warm = True
            work_us += self._times.draw_us(self._times.profile.warm_up_us)
        label = f"syncs of job {type(job).__name__}"
        self._times.processors.run(
            self._owner, work_us, lambda: machine.later(wait_us, label, b"", lambda: self._end_job(result))
        )
