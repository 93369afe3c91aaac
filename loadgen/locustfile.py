"""The Locust users: each signs and posts the transactions of one :class:`loadgen.workloads.LoadUser`.

Locust loads this file; :mod:`loadgen.run` starts Locust and says through the environment which plan and which share
of the users it is. A user talks to one validator and moves on to the next when a request fails, so the load outlives
any validator. What the users know of the chain (height, basefees) is fetched once for all users of a process, at most
twice a second.

The process ends when the pipe that its parent holds open is closed, however the parent ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import gevent  # type: ignore[import-untyped]
import gevent.socket  # type: ignore[import-untyped]
import msgspec
from gevent.event import Event  # type: ignore[import-untyped]
from locust import FastHttpUser, events, task
from locust.env import Environment

from loadgen.client import json_object
from loadgen.runplan import PlanError, RunPlan, Statistics, bounded_reasons
from loadgen.workloads import LoadUser, Observation
from validator.primitives.types import address_text

PLAN_VARIABLE: Final = "STAMPEDE_LOAD_PLAN"
"""Path of the plan file."""
PROCESS_VARIABLE: Final = "STAMPEDE_LOAD_PROCESS"
"""Which of the plan's processes this is."""
PIPE_VARIABLE: Final = "STAMPEDE_LOAD_PIPE"
"""File descriptor whose end of file means that the parent is gone."""

WRONG_PLAN: Final = 2
"""Exit code if the file has no endpoints."""
LOOK_S: Final = 0.05
"""How often, in seconds, it is looked whether the endpoints are known."""
MOVED_S: Final = 1.0
"""How often, in seconds, it is looked whether a validator has another endpoint."""
REFRESH_S: Final = 0.5
"""How old, in seconds, what a user knows may be before it asks again."""
CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 5.0
ORPHAN_GRACE_S: Final = 10
"""How long an orphaned process may take to end in good order."""
FINAL_STATUSES: Final = frozenset({400, 413})
"""Answers to a batch that sending it again would not change."""
UNTOLD: Final = "untold"
"""Why a validator of a version without reasons refused a transaction."""
MAX_TOLD_APART: Final = 1_000
"""Different rejections that are kept while running."""


class Share:
    """This process's part of the load, and what its users have in common."""

    def __init__(self, plan: RunPlan, process: int) -> None:
        self.endpoints: list[str] = []
        self.has_endpoints = Event()
        self.waiting: deque[LoadUser] = deque(plan.share(process))
        self.stats_file = plan.share_file(process)
        self.chain: dict[str, int] | None = None
        """Height and basefees of the newest final block that a validator has reported."""
        self.chain_asked_at = float("-inf")
        self.transactions_sent = 0
        self.transactions_rejected = 0
        self.rejections: Counter[str] = Counter()

    def count_rejection(self, reason: str) -> None:
        self.transactions_rejected += 1
        if reason in self.rejections or len(self.rejections) < MAX_TOLD_APART:
            self.rejections[reason] += 1

    def write_statistics(self, environment: Environment) -> None:
        """Leave this process's share of the statistics."""
        errors: Counter[str] = Counter()
        for error in environment.stats.errors.values():
            errors[f"{error.method} {error.name}: {error.error}"] += error.occurrences
        Statistics(
            requests=environment.stats.total.num_requests,
            failures=environment.stats.total.num_failures,
            transactions_sent=self.transactions_sent,
            transactions_rejected=self.transactions_rejected,
            errors=bounded_reasons(errors),
            rejections=bounded_reasons(self.rejections),
        ).write(self.stats_file)


@events.init.add_listener
def _prepare(environment: Environment, **_: Any) -> None:
    """Build the users, and arrange for the end."""
    plan = RunPlan.read(Path(os.environ[PLAN_VARIABLE]))
    process = int(os.environ.get(PROCESS_VARIABLE, "0"))
    share = Share(plan, process)
    ChainUser.share = share
    events.quit.add_listener(lambda **_: share.write_statistics(environment))
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is not None:
        gevent.spawn(_end_with_parent, int(pipe))
    gevent.spawn(_follow_endpoints, plan, share)
    if plan.endpoints_file is not None:
        plan.ready_file(process).touch()


def _follow_endpoints(plan: RunPlan, share: Share) -> None:
    """Let the users begin once the validators' endpoints are known, and learn it when one moves. A file that cannot be
    read ends the process at first; later it changes nothing.
    """
    try:
        while (endpoints := plan.known_endpoints()) is None:
            gevent.sleep(LOOK_S)
    except PlanError as error:
        print(f"loadgen: {error}", file=sys.stderr, flush=True)
        os._exit(WRONG_PLAN)
    share.endpoints = endpoints
    share.has_endpoints.set()
    while plan.endpoints_file is not None:
        gevent.sleep(MOVED_S)
        with suppress(PlanError):
            share.endpoints = plan.known_endpoints() or share.endpoints


def _end_with_parent(pipe: int) -> None:
    """Wait for the parent's end of the pipe to close, then end: in good order, or at the alarm."""
    gevent.socket.wait_read(pipe)
    signal.alarm(ORPHAN_GRACE_S)
    os.kill(os.getpid(), signal.SIGTERM)


class ChainUser(FastHttpUser):
    """One load user. Turns are as far apart as the user says, begun to begun."""

    host = "http://127.0.0.1"  # every request names its endpoint
    connection_timeout = CONNECT_TIMEOUT_S
    network_timeout = ANSWER_TIMEOUT_S
    max_retries = 0
    share: Share

    def on_start(self) -> None:
        self.load_user = self.share.waiting.popleft()
        self.share.has_endpoints.wait()
        self._endpoint = self.load_user.number
        self._account: tuple[int, int, tuple[bytes, ...]] | None = None
        self._account_asked_at = float("-inf")
        self._next_turn_at = time.monotonic() + self.load_user.first_delay_ms / 1_000
        gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Seconds until the next turn; turns that were missed are not made up for."""
        now = time.monotonic()
        wait = max(0.0, self._next_turn_at - now)
        self._next_turn_at = now + wait + self.load_user.next_delay_ms() / 1_000
        return wait

    @task
    def turn(self) -> None:
        """Look at the chain, and post what the workload wants."""
        observation = self._observe()
        if observation is None:
            return
        wires = self.load_user.next_transactions(observation)
        if wires:
            self._post(wires)

    # --- observing ---

    def _observe(self) -> Observation | None:
        """The newest observation, refreshed if it is too old; ``None`` if there is none yet."""
        self._refresh_chain()
        self._refresh_account()
        if self.share.chain is None or self._account is None:
            return None
        nonce, live_timers, open_jobs = self._account
        return Observation(confirmed_nonce=nonce, live_timers=live_timers, open_jobs=open_jobs, **self.share.chain)

    def _refresh_chain(self) -> None:
        now = time.monotonic()
        if now - self.share.chain_asked_at < REFRESH_S:
            return
        self.share.chain_asked_at = now
        status = self._get("/status", "/status")
        if status is None or status["height"] == 0:
            return  # the genesis is no block that is served; the first one comes soon
        block = self._get(f"/blocks/{status['height']}", "/blocks/{height}")
        if block is not None:
            names = ("height", "basefee_cycle", "basefee_cell", "basefee_lane_timer")
            self.share.chain = {name: block[name] for name in names}

    def _refresh_account(self) -> None:
        now = time.monotonic()
        if now - self._account_asked_at < REFRESH_S:
            return
        account = self._get(f"/accounts/{address_text(self.load_user.address)}", "/accounts/{address}")
        actor = account and self._get(f"/accounts/{address_text(self.load_user.actor)}", "/accounts/{address}")
        if account and actor:
            open_jobs = tuple(map(bytes.fromhex, actor["open_jobs"]))
            self._account = (account["nonce"], actor["live_timers"], open_jobs)
            self._account_asked_at = now

    # --- posting ---

    def _post(self, wires: list[bytes]) -> None:
        with self.client.post(
            self._url("/transactions"),
            name="/transactions",
            data=msgspec.msgpack.encode(wires),  # type: ignore[arg-type]  # bytes are fine
            headers={"Content-Type": "application/msgpack"},
            catch_response=True,
        ) as response:
            results = _results_of(response, len(wires))
            if results is None and response.status_code == 200:
                response.failure("no list of results")
        if results is None and response.status_code in FINAL_STATUSES:
            results = [f"status {response.status_code}"] * len(wires)
        if results is None:
            self.load_user.undelivered(wires)
            self._move_on()
            return
        self.share.transactions_sent += len(wires)
        for wire, reason in zip(wires, results, strict=True):
            if reason is not None:
                self.share.count_rejection(reason)
                self.load_user.rejected(wire)

    # --- requests ---

    def _get(self, path: str, name: str) -> dict[str, Any] | None:
        """A JSON page, or ``None`` if there was none; the user then moves on to another validator."""
        with self.client.get(self._url(path), name=name, catch_response=True) as response:
            page = _page_of(response)
            if page is None and response.status_code == 200:
                response.failure("no JSON object")
        if page is None:
            self._move_on()
        return page

    def _url(self, path: str) -> str:
        return self.share.endpoints[self._endpoint % len(self.share.endpoints)] + path

    def _move_on(self) -> None:
        self._endpoint += 1


def _page_of(response: Any) -> dict[str, Any] | None:
    """The JSON object of a good answer."""
    return json_object(response.content) if response.status_code == 200 else None


def _results_of(response: Any, count: int) -> list[str | None] | None:
    """Why each transaction was refused, from a good answer to a batch; ``None`` of those that were taken."""
    page = _page_of(response)
    results = page.get("results") if page is not None else None
    if not isinstance(results, list) or len(results) != count:
        return None
    return [None if result["error"] is None else result.get("reason", UNTOLD) for result in results]
