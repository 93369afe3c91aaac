"""One Locust process's part of a load: its users, their common data, and their counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gevent.event import Event  # type: ignore[import-untyped]
from locust.stats import StatsError

from loadgen.numbers import Numbers
from loadgen.runplan import LateCause, RunPlan, Statistics, bounded_reasons
from loadgen.signing import SigningPool
from loadgen.workloads import LoadUser
from loadgen.workloads.user import Outgoing

MAX_TOLD_APART: Final = 1_000
"""Maximum number of errors, or of reasons for rejections, that a process counts; further ones are not counted."""


class LoadClock:
    """A clock of the milliseconds since the load began. It does not jump when the machine's clock is set."""

    def __init__(self, elapsed_ms: int = 0) -> None:
        """A clock of a load that began ``elapsed_ms`` ago."""
        self.began_epoch_ms: Final = int(time.time() * 1_000) - elapsed_ms
        self._began_s = time.monotonic() - elapsed_ms / 1_000

    @classmethod
    def going_on_since(cls, began_epoch_ms: int | None) -> LoadClock:
        """The clock of a load that began at this time, in milliseconds since the epoch; with ``None`` it begins now."""
        return cls(0 if began_epoch_ms is None else max(0, int(time.time() * 1_000) - began_epoch_ms))

    def now_ms(self) -> int:
        return int((time.monotonic() - self._began_s) * 1_000)


class Client(NamedTuple):
    """A group of load users whose requests one Locust user makes."""

    number: int
    """Position among the plan's clients, from 0."""
    users: list[LoadUser]


class Share:
    """One Locust process's part of a load: the users that run here, what they know in common, and their counts."""

    def __init__(self, plan: RunPlan, numbers: Numbers) -> None:
        self._population = plan.population()
        self._signing = SigningPool(plan.seed, plan.load.signers) if plan.load.signers else None
        self._goes_on_since_ms = plan.began_epoch_ms
        self._numbers = numbers
        self._clients: dict[int, Client] = {}
        """Clients that run here, by number."""
        self.endpoints: list[str] = []
        """The validators' endpoints; empty while they are unknown."""
        self.turns = 0
        """Number of turns in progress."""
        self._is_started = False
        self.has_begun = Event()
        self.clock = LoadClock()
        self.chain: dict[str, Any] | None = None
        """Height, basefees and backlog of the newest final block that a validator has reported."""
        self.chain_asked_at = float("-inf")
        self._stats = Statistics()
        self._errors: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()

    def know(self, endpoints: list[str]) -> None:
        """Store the validators' endpoints. The first ones begin the load, if Locust has started it."""
        is_first, self.endpoints = not self.endpoints, endpoints
        if is_first and self._is_started:
            self.begin()

    def is_going_on(self) -> bool:
        """Whether the load has begun and has not ended."""
        return bool(self.has_begun.is_set())

    def start(self, **_: Any) -> None:
        """Handle the event that Locust has started: begin the load as soon as the validators' endpoints are known."""
        self._is_started = True
        if self.endpoints:
            self.begin()

    def begin(self, elapsed_ms: int = 0) -> None:
        """Begin the load in this process. In other processes it began ``elapsed_ms`` ago."""
        self.clock = LoadClock(elapsed_ms) if elapsed_ms else LoadClock.going_on_since(self._goes_on_since_ms)
        self.has_begun.set()

    def end(self, **_: Any) -> None:
        """End the load: turns that wait now will not be taken."""
        self._is_started = False
        self._end_users(*self._clients.values())
        self.has_begun.clear()

    # --- users ---

    def take_client(self) -> Client:
        """Build the next client; waits until the load has begun and the number of a client is free."""
        self.has_begun.wait()
        number, is_first = self._numbers.take()
        users = self._population.build_users_of(number)
        client = self._clients[number] = Client(number, users)
        for user in users:
            user.measure(self._stats.sends, self._population.titles[user.number], self.clock.began_epoch_ms)
            if not is_first or self._goes_on_since_ms is not None:
                user.begin(self.clock.now_ms())
        return client

    def has_client(self, client: Client) -> bool:
        """Whether this process holds a client."""
        return self._clients.get(client.number) is client

    def give_back(self, client: Client) -> None:
        """Return a stopped client; another process may take it."""
        if self.has_client(client):
            self._end_users(client)
            del self._clients[client.number]
            self._numbers.give_back(client.number)

    def revoke(self) -> None:
        """Drop all clients, which other processes have taken over."""
        self._end_users(*self._clients.values())
        self._clients.clear()

    def _end_users(self, *clients: Client) -> None:
        if self.has_begun.is_set():
            for client in clients:
                for user in client.users:
                    user.end(self.clock.now_ms())

    def sign(self, batch: Sequence[tuple[LoadUser, Outgoing]]) -> None:
        """Sign the users' transactions."""
        if self._signing is not None:
            self._signing.sign([outgoing for _, outgoing in batch])
            return
        for user, outgoing in batch:
            user.sign(outgoing)

    # --- counting ---

    def count_request(
        self, request_type: str, name: str, response_time: float, exception: Exception | None = None, **_: Any
    ) -> None:
        """Count a completed request."""
        at_ms = self.clock.began_epoch_ms + self.clock.now_ms()
        self._stats.requests += 1
        self._stats.timeline.requested(at_ms)
        if exception is None:
            self._stats.timeline.answered(at_ms, response_time)
        else:
            self._stats.failures += 1
            self._stats.timeline.failed(at_ms)
            _count(self._errors, f"{request_type} {name}: {StatsError.parse_error(exception)}")

    def count_answers(self, reasons: list[str | None]) -> None:
        """Count a validator's answers for transactions: accepted, or refused for a reason."""
        self._stats.transactions_sent += len(reasons)
        for reason in reasons:
            if reason is not None:
                self._stats.transactions_rejected += 1
                _count(self._rejections, reason)

    @property
    def late(self) -> int:
        """Number of transactions that were sent late."""
        return self._stats.sends.late

    def count_late(self, cause: LateCause, count: int) -> None:
        """Count ``count`` transactions that were late for this cause."""
        causes = self._stats.late_by_cause
        causes[cause] = causes.get(cause, 0) + count

    def statistics(self) -> Statistics:
        """All counts of this process so far."""
        self._stats.errors = bounded_reasons(self._errors)
        self._stats.rejections = bounded_reasons(self._rejections)
        return self._stats


def _count(counts: Counter[str], reason: str) -> None:
    if reason in counts or len(counts) < MAX_TOLD_APART:
        counts[reason] += 1
