"""A load that is distributed over several Locust processes: the messages that its master and workers exchange.

Locust's master decides how many users each worker runs, and decides again when a worker joins or leaves. This module
decides which users these are: a worker claims a number for each user that it starts, and the master gives no number to
two workers. The numbers of a lost worker become free. If that worker was only disconnected, the master tells it to
claim again.

Only the master has the plan and the endpoints. Each worker counts its own users and always sends its complete counts,
so that the last ones of a lost worker are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gevent  # type: ignore[import-untyped]
from gevent.queue import Queue  # type: ignore[import-untyped]
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from loadgen.numbers import Claim, NumberPool
from loadgen.runplan import MAX_REASONS, RunPlan, Statistics, dump_json, load_json
from loadgen.share import LoadClock, Share

ASK: Final = "stampede_ask"
"""Message to the master: a worker requests the plan."""
PLAN: Final = "stampede_plan"
BEGIN: Final = "stampede_begin"
"""Message to a worker: the load has begun. It has the validators' endpoints, and the milliseconds since then."""
MOVED: Final = "stampede_moved"
"""Message to the workers: the endpoints of validators have changed."""
CLAIM: Final = "stampede_claim"
"""Message to the master: a worker requests a number for a user that it starts."""
NUMBER: Final = "stampede_number"
"""Message to a worker: the number that answers its claim."""
RELEASE: Final = "stampede_release"
"""Message to the master: a worker's user has stopped, and its number is free."""
REVOKED: Final = "stampede_revoked"
"""Message to a worker that was considered lost: its users were given to other workers."""
END: Final = "stampede_end"
COUNTED: Final = "stampede_counted"
"""Message to the master: a worker's counts so far."""

WATCH_S: Final = 0.5
COUNT_S: Final = 5.0
"""Interval, in seconds, at which a worker sends its counts."""
LOOK_S: Final = 0.01
LAST_TURNS_S: Final = 2.0
"""Maximum time, in seconds, for which a worker waits for its turns in progress when the load ends."""
END_TIMEOUT_S: Final = 5.0
"""Maximum time, in seconds, for which the master waits for the workers' last counts when the load ends."""


class LoadMaster:
    """The master's side of a distributed load: sends the plan, gives numbers to workers, and sums up their counts."""

    def __init__(self, environment: Environment, plan: RunPlan, notice: Callable[[str], None]) -> None:
        runner = environment.runner
        assert isinstance(runner, MasterRunner)
        self._runner, self._notice = runner, notice
        self._plan_json = dump_json(plan, exclude_none=True)
        self._goes_on_since_ms = plan.began_epoch_ms
        self._pool = NumberPool(plan.load.client_count)
        self._endpoints: list[str] = []
        self._clock: LoadClock | None = None
        """Clock of the running load; ``None`` before it begins and after it ends."""
        self._is_started = False
        self._counted: dict[str, Statistics] = {}
        self._lost: set[str] = set()
        self._losses: list[str] = []
        self._unheard: set[str] = set()
        """Workers whose last counts have not arrived yet; empty until the load ends."""
        self.asked: set[str] = set()
        """Workers that have requested the plan."""
        for kind, handle in (
            (ASK, self._answer), (CLAIM, self._claim), (RELEASE, self._release), (COUNTED, self._count)
        ):  # fmt: skip
            runner.register_message(kind, handle)
        environment.events.test_start.add_listener(self._start)
        environment.events.test_stopping.add_listener(self._end)
        gevent.spawn(self._watch)

    def know(self, endpoints: list[str]) -> None:
        """Store the validators' endpoints. The first ones let the load begin; later ones are sent to the workers."""
        is_first, self._endpoints = not self._endpoints, endpoints
        if is_first:
            self._begin()
        else:
            self._runner.send_message(MOVED, {"endpoints": endpoints})

    def is_going_on(self) -> bool:
        """Whether the load has begun and has not ended."""
        return self._clock is not None

    def statistics(self) -> Statistics:
        """The sum of all workers' counts."""
        total = Statistics(lost=self._losses[:MAX_REASONS])
        for counted in self._counted.values():
            total = total.plus(counted)
        return total

    # --- the load ---

    def _start(self, **_: Any) -> None:
        self._is_started = True
        self._begin()

    def _begin(self) -> None:
        if self._is_started and self._endpoints:
            self._clock = LoadClock.going_on_since(self._goes_on_since_ms)
            for worker in self.asked:
                self._tell_begin(worker)

    def _tell_begin(self, worker: str) -> None:
        if self._clock is not None:
            self._send(worker, BEGIN, endpoints=self._endpoints, elapsed_ms=self._clock.now_ms())

    def _end(self, **_: Any) -> None:
        """Stop the workers, and wait for their counts."""
        self._is_started, self._clock = False, None
        self._unheard = self._reachable & self.asked
        for worker in self._unheard:
            self._send(worker, END)
        with gevent.Timeout(END_TIMEOUT_S, False):
            while self._unheard:
                gevent.sleep(LOOK_S)
        if self._unheard:
            self._notice(f"{len(self._unheard)} of the load's workers did not send at the end what they counted")

    # --- workers ---

    @property
    def _reachable(self) -> set[str]:
        return {client.id for client in self._runner.clients.all if client.state != STATE_MISSING}

    def _answer(self, msg: Any, **_: Any) -> None:
        self._send(msg.node_id, PLAN, plan=self._plan_json)
        self.asked.add(msg.node_id)
        self._tell_begin(msg.node_id)

    def _claim(self, msg: Any, **_: Any) -> None:
        self._pool.claim(msg.node_id)
        self._grant()

    def _release(self, msg: Any, **_: Any) -> None:
        self._pool.release(msg.node_id, msg.data["number"])
        self._grant()

    def _grant(self) -> None:
        for worker, claim in self._pool.granted():
            self._send(worker, NUMBER, **claim._asdict())

    def _count(self, msg: Any, **_: Any) -> None:
        self._counted[msg.node_id] = Statistics.model_validate_json(msg.data["statistics"])
        if msg.data["is_last"]:
            self._unheard.discard(msg.node_id)

    def _watch(self) -> None:
        """Watch the workers forever: free the numbers of lost ones, and tell those that return to claim again."""
        while True:
            gevent.sleep(WATCH_S)
            reachable = self._reachable
            for worker in self._pool.holders - reachable:
                self._pool.lose(worker)
                self._lost.add(worker)
                self._losses.append(f"worker {worker} was lost; others took over its users")
                self._notice(self._losses[-1])
            for worker in self._lost & reachable:
                self._lost.discard(worker)
                self._send(worker, REVOKED)
            self._unheard &= reachable
            self._grant()

    def _send(self, worker: str, kind: str, **data: Any) -> None:
        self._runner.send_message(kind, data, worker)


class LoadWorker:
    """A worker's side of a distributed load: gets the plan and its users' numbers from the master, and sends counts."""

    def __init__(self, environment: Environment, know: Callable[[Share], None]) -> None:
        """``know`` is called with this process's share of the load once the master has sent the plan."""
        runner = environment.runner
        assert isinstance(runner, WorkerRunner)
        self._runner, self._know = runner, know
        self._share: Share | None = None
        self._answers: Any = Queue()
        self._waiting = 0
        """Number of claims without an answer."""
        self._surplus = 0
        """Number of claims without an answer whose user has stopped; their numbers are given back on arrival."""
        for kind, handle in (
            (PLAN, self._learn), (BEGIN, self._begin), (MOVED, self._move), (NUMBER, self._take_answer),
            (REVOKED, self._revoke), (END, self._end),
        ):  # fmt: skip
            runner.register_message(kind, handle, concurrent=kind == END)
        runner.send_message(ASK)
        gevent.spawn(self._report)

    def take(self) -> Claim:
        while True:
            self._waiting += 1
            self._runner.send_message(CLAIM)
            try:
                answer: Claim | None = self._answers.get()
            except BaseException:
                self._surplus += 1
                raise
            if answer is not None:
                return answer

    def give_back(self, number: int) -> None:
        self._runner.send_message(RELEASE, {"number": number})

    def _learn(self, msg: Any, **_: Any) -> None:
        if self._share is None:
            self._share = Share(load_json(RunPlan, msg.data["plan"]), self)
            self._know(self._share)

    def _begin(self, msg: Any, **_: Any) -> None:
        assert self._share is not None, "the plan comes first"
        self._share.endpoints = msg.data["endpoints"]
        self._share.begin(msg.data["elapsed_ms"])

    def _move(self, msg: Any, **_: Any) -> None:
        if self._share is not None:
            self._share.endpoints = msg.data["endpoints"]

    def _take_answer(self, msg: Any, **_: Any) -> None:
        self._waiting -= 1
        if self._surplus:
            self._surplus -= 1
            self.give_back(msg.data["number"])
        else:
            self._answers.put(Claim(**msg.data))

    def _revoke(self, **_: Any) -> None:
        """Drop all numbers and pending claims, because the master considered this worker lost; users claim again."""
        for _user in range(self._waiting - self._surplus):
            self._answers.put(None)
        self._waiting = self._surplus = 0
        if self._share is not None:
            self._share.revoke()

    def _end(self, **_: Any) -> None:
        """End the load, wait for turns in progress, and send the last counts."""
        if self._share is not None:
            self._share.end()
            with gevent.Timeout(LAST_TURNS_S, False):
                while self._share.turns:
                    gevent.sleep(LOOK_S)
        self._send_counts(is_last=True)

    def _report(self) -> None:
        while True:
            gevent.sleep(COUNT_S)
            self._send_counts()

    def _send_counts(self, is_last: bool = False) -> None:
        counted = Statistics() if self._share is None else self._share.statistics()
        self._runner.send_message(COUNTED, {"statistics": counted.model_dump_json(), "is_last": is_last})
