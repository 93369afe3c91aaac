"""The load of a simulated run: users give validators their transactions as events of virtual time, without HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from cluster.common.errors import BadInput
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.record.run import RunRecord
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from loadgen.workloads import LoadUser, Observation, WorkloadError
from validator.node.assembly import Validator
from validator.node.events import Reply

CLIENT_DELAY_US: Final = 2 * MICROSECONDS_PER_MILLISECOND
"""Latency between a client and its validator."""
LOAD_STARTS_MS: Final = 500


class Load(Observer):
    """The users of a run. They use the validators that exist from the genesis on."""

    effects = frozenset({Reply})

    def __init__(self, record: RunRecord, machines: Sequence[Machine], clock: VirtualClock, random: Random) -> None:
        scenario, genesis = record.scenario, record.genesis
        self.is_running = True
        self._counts = record.load
        self._clock = clock
        self._random = random
        self._served = [machine for machine in machines if machine.index not in scenario.validators.late]
        with _one_line_errors():
            users = scenario.load.build_users(record.seed, genesis.chain_id, genesis.parameters)
        self._users = [] if scenario.load.external else users
        for user, title in zip(self._users, scenario.load.titles, strict=False):
            user.measure(self._counts.sends, title, LOAD_STARTS_MS)
        self._submissions: dict[int, tuple[LoadUser, tuple[bytes, ...], float]] = {}
        """The open requests, keyed by number: the user, its transactions, and the request's time in milliseconds."""
        self._request = 0

    def begin(self) -> None:
        """Schedule each user's first turn."""
        for user in self._users:
            self._schedule(user, LOAD_STARTS_MS + user.first_delay_ms)

    def stop(self) -> None:
        """Stop the load."""
        self.is_running = False
        for user in self._users:
            user.end(self._now_ms)

    def reseed(self, seed: int) -> None:
        """Reseed the random source of every user."""
        for user in self._users:
            user.reseed(seed)

    def performs(self, machine: Machine, effect: Reply) -> None:
        """Handle a validator's reply to a user: count the results, and tell which transactions were accepted."""
        if effect.request not in self._submissions:
            return  # it was another client's
        user, wires, begun_ms = self._submissions.pop(effect.request)
        answered_ms = self._clock.now_ms + CLIENT_DELAY_US / MICROSECONDS_PER_MILLISECOND
        self._counts.timeline.answered(answered_ms, answered_ms - begun_ms)
        taken: dict[bytes, bytes] = {}
        for wire, result in zip(wires, effect.results, strict=True):
            if result.error is None:
                taken[result.transaction_hash] = wire
            else:
                self._counts.transactions_rejected += 1
                with _one_line_errors():
                    user.rejected(wire)
        if taken:
            for takes in machine.listeners.takes:
                takes(machine, taken)

    def _schedule(self, user: LoadUser, delay_ms: int) -> None:
        delay_us = delay_ms * MICROSECONDS_PER_MILLISECOND
        self._clock.after(delay_us, f"user {user.number}", b"", lambda: self._turn(user))

    @property
    def _now_ms(self) -> int:
        """Milliseconds since the load began."""
        return self._clock.now_us // MICROSECONDS_PER_MILLISECOND - LOAD_STARTS_MS

    def _turn(self, user: LoadUser) -> None:
        if not self.is_running:
            return
        if not user.is_open:
            self._schedule(user, user.next_delay_ms(self._now_ms))
        self._act(user)
        if user.is_open:
            self._schedule(user, user.next_delay_ms(self._now_ms))

    def _act(self, user: LoadUser) -> None:
        has_due_turns = user.has_due_turns(self._now_ms)
        machine = self._served[(user.number + self._random.randrange(len(self._served))) % len(self._served)]
        if machine.validator is None or machine.is_paused:
            if has_due_turns:
                self._counts.requests += 1
                self._counts.timeline.requested(self._clock.now_ms)
                self._fail()
            return
        observation = _observation(machine.validator, user, machine.tally.backlog)
        with _one_line_errors():
            wires = tuple(user.next_transactions(observation, self._now_ms))
        if not wires:
            return
        self._counts.requests += 1
        self._counts.timeline.requested(self._clock.now_ms)
        self._request += 1
        request = self._request
        self._submissions[request] = user, wires, self._clock.now_ms
        label = f"submit {user.number}>{machine.index}"
        self._clock.after(CLIENT_DELAY_US, label, b"".join(wires), lambda: self._submit(machine, request))

    def _submit(self, machine: Machine, request: int) -> None:
        user, wires, _ = self._submissions[request]
        if machine.is_up:
            self._counts.transactions_sent += len(wires)
            machine.submit(request, wires)
        else:
            self._fail()
            user.undelivered(list(wires))

    def _fail(self) -> None:
        self._counts.failures += 1
        self._counts.timeline.failed(self._clock.now_ms)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn an exception of a user-defined workload into :class:`BadInput`, which ends the run."""
    try:
        yield
    except WorkloadError as error:
        raise BadInput(str(error)) from None


def _observation(validator: Validator, user: LoadUser, backlog: int) -> Observation:
    header, pages = validator.executor.final_header, validator.executor.pages
    account, watched = pages.account(user.address), pages.account(user.actor)
    return Observation(
        height=header.height,
        confirmed_nonce=account["nonce"],
        basefee_cycle=int.from_bytes(header.basefee_cycle, "big"),
        basefee_cell=int.from_bytes(header.basefee_cell, "big"),
        basefee_lane_timer=int.from_bytes(header.basefee_lane_timer, "big"),
        live_timers=watched["live_timers"],
        open_jobs=tuple(map(bytes.fromhex, watched["open_jobs"])),
        balance=account["balance"],
        actor_balance=watched["balance"],
        backlog=backlog,
    )
