"""What the loop of a simulated run is told of its machines: votes, heights, joins, and how far each validator is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from cluster.faults.events import Voted
from cluster.record.run import CATCH_UP_SLACK_HEIGHTS
from cluster.run.events import JoinBegun, JoinEnded, NewHeight, Standing, Standings
from cluster.run.loop import Feed, RunLoop
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.simulation.recorder import Recorder
from cluster.simulation.simulated_stage import DurableSizes
from consensus.messages import Vote
from validator.node.events import BlockFinal, Diverged, Joined

CHECKPOINT_DIGITS: Final = 16
"""Hex digits of the digest that are kept for each height."""


class Course(Observer):
    """Tells the loop of a run what happens on its machines. It comes after all other observers."""

    effects = frozenset({BlockFinal, Diverged, Joined})

    def __init__(
        self,
        loop: RunLoop,
        feed: Feed,
        clock: VirtualClock,
        machines: Sequence[Machine],
        sizes: DurableSizes,
        recorder: Recorder,
    ) -> None:
        self.may_be_over = False
        """Whether an event since the last check may have ended the run."""
        self._loop = loop
        self._feed = feed
        self._clock = clock
        self._machines = machines
        self._sizes = sizes
        self._recorder = recorder
        self._late = dict(loop.record.scenario.validators.late)

    def votes(self, machine: Machine, vote: Vote) -> None:
        """Tell a vote, if a fault waits for it."""
        if self._loop.faults.is_listening:
            self._feed.see(Voted(machine.index, vote.view, vote.kind))

    def performs(self, machine: Machine, effect: BlockFinal | Diverged | Joined) -> None:
        """Tell what a validator has reached."""
        if isinstance(effect, Joined):
            self._feed.see(JoinEnded(self._clock.now_ms, machine.index, effect.height, machine.tally.chunks))
            self.is_back()
            return
        self.may_be_over = True
        if isinstance(effect, BlockFinal):
            self._sizes.on_final(machine)
        if self._loop.faults.is_upgrading:  # it may go on
            self._feed.look()
        if isinstance(effect, BlockFinal) and effect.height > self._loop.height:
            self._reach(effect.height)

    def _reach(self, height: int) -> None:
        self._loop.record.checkpoints[height] = self._clock.digest()[:CHECKPOINT_DIGITS]
        self._feed.see(NewHeight(height))
        self._recorder.look()
        for index in [index for index, at_height in self._late.items() if height >= at_height]:
            del self._late[index]
            self._clock.after(0, f"join {index}", b"", partial(self._begin_join, self._machines[index]))

    def _begin_join(self, machine: Machine) -> None:
        self._feed.see(JoinBegun(self._clock.now_ms, machine.index))
        machine.start()

    def is_back(self) -> None:
        """A validator is up that took time to start again, or to join."""
        self.may_be_over = True
        if self._loop.faults.have_begun:
            self._clock.after(0, "joined", b"", self._feed.look)

    def standings(self) -> Standings:
        """How far the honest validators are.

        One that commits blocks to catch up is not settled. Nor is one that joined until it has executed a block: a
        snapshot alone gives nothing to judge.
        """
        return Standings(tuple(self._standing(machine) for machine in self._machines if machine.byzantine is None))

    def _standing(self, machine: Machine) -> Standing:
        if machine.validator is None:
            return Standing(0, is_up=False)
        node, archive = machine.validator.node, machine.validator.executor.archive
        has_diverged = node.diverged is not None
        has_joined_only = not has_diverged and 0 < archive.joined_height == archive.height
        lags = node.height < self._loop.height - CATCH_UP_SLACK_HEIGHTS
        is_settled = not (has_joined_only or (machine.work.is_committing and lags))
        return Standing(node.height, True, is_settled, is_excused=has_diverged)
