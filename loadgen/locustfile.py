"""The Locust users: each signs and posts the transactions of one or several :class:`loadgen.workloads.LoadUser`.

Locust loads this file in a single process with all or some users, in a master with the plan, or in a worker
(:mod:`loadgen.distribution`). :mod:`loadgen.run` starts such processes and sets their role in the environment;
``locust --locustfile loadgen/locustfile.py --plan FILE`` does the same with Locust's own options. A custom locustfile
imports :class:`ChainUser` from here and adds users.

A user talks to one validator and moves on to the next when a request fails, so the load outlives any validator. The
users' view of the chain (height, basefees, backlog) is fetched once for all users of a process, at most twice a second.

A Locust user with several load users batches their requests: it reads their accounts in one request, and posts their
transactions in one. It prepares and signs them :data:`AHEAD_S` ahead, and posts them when they are due.

A process ends when its parent's end of a pipe is closed, which happens however the parent ends.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import gevent  # type: ignore[import-untyped]
import gevent.socket  # type: ignore[import-untyped]
import msgspec
from gevent.event import AsyncResult  # type: ignore[import-untyped]
from locust import FastHttpUser, events, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadgen.client import json_object
from loadgen.distribution import LoadMaster, LoadWorker
from loadgen.lag import LoopLag
from loadgen.numbers import OwnNumbers
from loadgen.own_code import begin_with_load, end_when_broken, hold_shape
from loadgen.runplan import LateCause, PlanError, RunPlan, Statistics, write_whole
from loadgen.share import Share
from loadgen.signing import SigningError
from loadgen.workloads import LoadUser, Observation
from loadgen.workloads.user import Outgoing
from validator.primitives.types import Address, address_text

PLAN_VARIABLE: Final = "STAMPEDE_LOAD_PLAN"
"""Environment variable with the path of the plan file."""
PROCESS_VARIABLE: Final = "STAMPEDE_LOAD_PROCESS"
"""Environment variable with the number of this process in the plan."""
PIPE_VARIABLE: Final = "STAMPEDE_LOAD_PIPE"
"""Environment variable with the file descriptor of a pipe; its end of file means that the parent has ended."""

WRONG_PLAN: Final = 2
"""Exit code if the plan or the file of endpoints is unusable, or a custom workload has raised an exception."""
SIGNING_FAILED: Final = 3
"""Exit code if a signing process has ended."""
LOOK_S: Final = 0.05
"""Interval, in seconds, at which workers and the file of endpoints are polled until the load begins."""
MOVED_S: Final = 1.0
"""Interval, in seconds, at which the file of endpoints is read again, to notice changed endpoints."""
REFRESH_S: Final = 0.5
"""Maximum age, in seconds, of a user's data about the chain."""
AHEAD_S: Final = 0.05
"""Seconds by which a Locust user with several load users makes and signs transactions before they are due."""
ACCOUNTS_AT_A_TIME: Final = 512
"""Maximum number of load users whose accounts one request reads; each user has two addresses, account and actor."""
TRANSACTIONS_AT_A_TIME: Final = 1_024
BYTES_AT_A_TIME: Final = 4 * 1024 * 1024
"""Maximum bytes of transactions in one request; docs/http.md has a validator's bounds."""
CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 5.0
ORPHAN_GRACE_S: Final = 10
"""Seconds that a process has to end normally after its parent has ended."""
FINAL_STATUSES: Final = frozenset({400, 413})
"""HTTP statuses after which a batch of transactions is not sent again, because it would fail again."""
UNTOLD: Final = "untold"
"""Reason under which refusals are counted if the validator's version gives no reasons."""


_share: Any = AsyncResult()
"""The process's :class:`Share`, once there is a plan."""
_lag: Final = LoopLag()
"""Lag of the process's event loop."""


@events.init_command_line_parser.add_listener
def _add_arguments(parser: Any) -> None:
    parser.add_argument(
        "--plan",
        metavar="FILE",
        env_var=PLAN_VARIABLE,
        help="the plan of the load, made by stampede load --write-plan; workers have it from their master",
    )


@events.init.add_listener
def _prepare(environment: Environment, **_: Any) -> None:
    """Prepare this process, as a master, a worker or a single process, before the first user starts.

    A master or single process writes its statistics when Locust quits.
    """
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is not None:
        gevent.spawn(_end_with_parent, int(pipe))
    broken = end_when_broken(environment, _notice, WRONG_PLAN)
    for kind in environment.user_classes:
        if not issubclass(kind, ChainUser):
            begin_with_load(kind, _share.get)
    if isinstance(environment.runner, WorkerRunner):
        LoadWorker(environment, _run_share)
        return
    assert environment.parsed_options is not None
    try:
        if not environment.parsed_options.plan:
            raise PlanError(f"no plan; expected --plan FILE or {PLAN_VARIABLE}")
        plan = RunPlan.read(Path(environment.parsed_options.plan))
    except PlanError as error:
        _give_up(error)
    if len(environment.user_classes) > 1:
        ChainUser.fixed_count = plan.load.client_count  # further users that Locust starts are of the other classes
    process = int(os.environ.get(PROCESS_VARIABLE, "0"))
    source: LoadMaster | Share
    if isinstance(environment.runner, MasterRunner):
        source = LoadMaster(environment, plan, _notice)
        write_whole(plan.port_file, str(environment.runner.server.port))
        gevent.spawn(_wait_for_workers, source, environment.parsed_options.expect_workers, plan.ready_file(process))
    else:
        source = Share(plan, OwnNumbers(plan.share(process)))
        events.test_start.add_listener(source.start)
        events.test_stopping.add_listener(source.end)
        _run_share(source)
        if plan.endpoints_file is not None:
            plan.ready_file(process).touch()
    if environment.shape_class is not None:
        hold_shape(environment.shape_class, source.is_going_on)
    events.quit.add_listener(
        lambda **_: source.statistics().plus(Statistics(lost=broken)).write(plan.share_file(process))
    )
    gevent.spawn(_follow_endpoints, plan, source.know)


def _run_share(share: Share) -> None:
    """Give a share of the load to this process's users, and start to count requests and to measure the lag."""
    events.request.add_listener(share.count_request)
    gevent.spawn(_lag.run)
    _share.set(share)


def _wait_for_workers(master: LoadMaster, count: int, ready_file: Path) -> None:
    """Create the ready file once ``count`` workers have requested the plan."""
    while len(master.asked) < count:
        gevent.sleep(LOOK_S)
    ready_file.touch()


def _follow_endpoints(plan: RunPlan, know: Callable[[list[str]], None]) -> None:
    """Pass the validators' endpoints to ``know``, once they are known and whenever they change. An unreadable file of
    endpoints ends the process at first; later it is ignored."""
    try:
        while (endpoints := plan.known_endpoints()) is None:
            gevent.sleep(LOOK_S)
    except PlanError as error:
        _give_up(error)
    know(endpoints)
    while plan.endpoints_file is not None:
        gevent.sleep(MOVED_S)
        with suppress(PlanError):
            moved = plan.known_endpoints() or endpoints
            if moved != endpoints:
                endpoints = moved
                know(endpoints)


def _notice(line: str) -> None:
    print(f"loadgen: {line}", file=sys.stderr, flush=True)


def _give_up(error: PlanError | SigningError, code: int = WRONG_PLAN) -> NoReturn:
    _notice(str(error))
    os._exit(code)


def _end_with_parent(pipe: int) -> None:
    """Wait until the parent's end of the pipe is closed, then end this process: by SIGTERM, or by an alarm later on."""
    gevent.socket.wait_read(pipe)
    signal.alarm(ORPHAN_GRACE_S)
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass(slots=True)
class Driven:
    """A load user, when it is next checked for due turns (its next look), and what was last read of its account."""

    user: LoadUser
    due_at: float
    """Time at which the user is next checked for due turns, in seconds of the monotonic clock."""
    account: dict[str, Any] | None = None
    """The fields of an :class:`Observation` about the user's account and actor; ``None`` until they have been read."""
    asked_at: float = float("-inf")
    is_new: bool = True
    """Whether the user has not been checked for due turns yet."""
    is_held: bool = False
    """Whether the last check left due turns, because the user had the maximum number of unconfirmed transactions."""

    def __lt__(self, other: Driven) -> bool:
        return (self.due_at, self.user.number) < (other.due_at, other.user.number)


class ChainUser(FastHttpUser):
    """A Locust user that runs one or several load users. In a closed loop, a load user's turns begin at its interval.
    In an open loop, it is checked when a turn is due, or as soon as possible after that."""

    host = "http://127.0.0.1"  # every request names its endpoint
    connection_timeout = CONNECT_TIMEOUT_S
    network_timeout = ANSWER_TIMEOUT_S
    max_retries = 0

    def on_start(self) -> None:
        self.share: Share = _share.get()
        self._begin()
        gevent.sleep(self.wait_time())

    def on_stop(self) -> None:
        if hasattr(self, "_loaded"):
            self.share.give_back(self._loaded)

    def _begin(self) -> None:
        """Take load users from the process's share, waiting until some are available."""
        self._loaded = self.share.take_client()
        self._endpoint = self._loaded.number
        self._clock = self.share.clock
        begun = time.monotonic()
        self._waiting = [Driven(user, begun + user.first_delay_ms / 1_000) for user in self._loaded.users]
        heapq.heapify(self._waiting)
        self._ahead_s = AHEAD_S if len(self._waiting) > 1 else 0.0

    def wait_time(self) -> float:
        """Seconds until :meth:`turn` is called again: until a load user is due, less the time to make transactions."""
        return max(0.0, self._waiting[0].due_at - self._ahead_s - time.monotonic())

    @task
    def turn(self) -> None:
        """Take the turns of the load users that are due: read the chain, then make and post their transactions."""
        if not self.share.has_begun.is_set():
            return
        if not self.share.has_client(self._loaded):
            self._begin()
            return
        self.share.turns += 1
        try:
            self._take_turns()
        finally:
            self.share.turns -= 1

    def _take_turns(self) -> None:
        """Make the transactions of users that are due within ``_ahead_s`` seconds, and post them after that time."""
        end_at = time.monotonic() + self._ahead_s
        end_ms = self._clock.now_ms() + int(self._ahead_s * 1_000)
        due = []
        while self._waiting and self._waiting[0].due_at <= end_at:
            due.append(heapq.heappop(self._waiting))
        try:
            batch = self._make(due, end_at, end_ms)
        finally:
            for driven in due:
                heapq.heappush(self._waiting, driven)
        gevent.sleep(max(0.0, end_at - time.monotonic()))
        for part in parted(batch):
            self._post(part)

    def _make(self, due: list[Driven], end_at: float, end_ms: int) -> list[tuple[LoadUser, Outgoing]]:
        """The signed transactions of due users, for which it also sets the next due time. A closed loop does not make
        up for missed turns."""
        for driven in due:
            if not driven.user.is_open:
                driven.due_at = end_at + driven.user.next_delay_ms(end_ms) / 1_000
        self._refresh_chain()
        self._refresh_accounts([each for each in due if end_at - each.asked_at >= REFRESH_S])
        batch: list[tuple[LoadUser, Outgoing]] = []
        for driven in due:
            user = driven.user
            at_ms = max(end_ms, self._clock.now_ms()) if user.is_open else end_ms
            if self.share.chain is not None and driven.account is not None:
                observation = Observation(**self.share.chain, **driven.account)
                late = self.share.late
                batch += [(user, each) for each in user.next_outgoing(observation, at_ms)]
                self._count_late(driven, self.share.late - late)
                driven.is_held = user.is_open and user.has_due_turns(at_ms)
            driven.is_new = False
            if user.is_open:
                driven.due_at = time.monotonic() + user.next_delay_ms(at_ms) / 1_000
        try:
            self.share.sign(batch)
        except SigningError as error:
            _give_up(error, SIGNING_FAILED)
        return batch

    def _count_late(self, driven: Driven, count: int) -> None:
        """Count ``count`` late transactions of a user by their cause. Unless unconfirmed transactions held up the user,
        the cause is the loop if the user is new, or if the loop was behind for at least half the time since it was due.
        """
        if not count:
            return
        now, due_at = time.monotonic(), driven.due_at
        cause = LateCause.ANSWERS
        if driven.is_held:
            cause = LateCause.UNCONFIRMED
        elif driven.is_new or (now > due_at and _lag.behind_s(due_at, now) >= (now - due_at) / 2):
            cause = LateCause.LOOP
        self.share.count_late(cause, count)

    # --- observing ---

    def _refresh_chain(self) -> None:
        now = time.monotonic()
        if now - self.share.chain_asked_at < REFRESH_S:
            return
        self.share.chain_asked_at = now
        status = self._get("/status", "/status")
        if status is None or status["height"] == 0:
            return  # the genesis block is not served; the first block comes soon
        block = self._get(f"/blocks/{status['height']}", "/blocks/{height}")
        if block is not None:
            names = ("height", "basefee_cycle", "basefee_cell", "basefee_lane_timer")
            self.share.chain = {name: block[name] for name in names} | {"backlog": status.get("backlog", 0)}

    def _refresh_accounts(self, users: list[Driven]) -> None:
        if len(self._loaded.users) == 1:
            for driven in users:
                pages = [self._account(driven.user.address), self._account(driven.user.actor)]
                if None not in pages:
                    _note(driven, *pages)
            return
        for first in range(0, len(users), ACCOUNTS_AT_A_TIME):
            part = users[first : first + ACCOUNTS_AT_A_TIME]
            addresses = [address for each in part for address in (each.user.address, each.user.actor)]
            accounts = self._accounts(addresses)
            if accounts is not None:
                for driven, account, actor in zip(part, accounts[::2], accounts[1::2], strict=True):
                    _note(driven, account, actor)

    def _account(self, address: Address) -> dict[str, Any] | None:
        return self._get(f"/accounts/{address_text(address)}", "/accounts/{address}")

    def _accounts(self, addresses: list[Address]) -> list[dict[str, Any]] | None:
        """Get accounts as JSON objects. After a failed request ``None``, and the user moves to the next validator."""
        with self._send("/accounts", addresses) as response:
            page = _page_of(response)
            accounts = page.get("accounts") if page is not None else None
            if accounts is not None and len(accounts) != len(addresses):
                accounts = None
            if accounts is None and response.status_code == 200:
                response.failure("no list of accounts")
        if accounts is None:
            self._move_on()
        return accounts

    # --- posting ---

    def _post(self, batch: list[tuple[LoadUser, Outgoing]]) -> None:
        wires = [outgoing.wire for _, outgoing in batch]
        with self._send("/transactions", wires) as response:
            results = _results_of(response, len(wires))
            if results is None and response.status_code == 200:
                response.failure("no list of results")
        if results is None and response.status_code in FINAL_STATUSES:
            results = [f"status {response.status_code}"] * len(wires)
        if results is None:
            for user, outgoing in batch:
                user.undelivered([outgoing.wire])
            self._move_on()
            return
        self.share.count_answers(results)
        for (user, outgoing), reason in zip(batch, results, strict=True):
            if reason is not None:
                user.rejected(outgoing.wire)

    def _send(self, page: str, items: list[Any]) -> Any:
        """Post items as a MessagePack array. Returns a context manager that gives the response."""
        return self.client.post(
            self._url(page),
            name=page,
            data=msgspec.msgpack.encode(items),  # type: ignore[arg-type]  # bytes are fine
            headers={"Content-Type": "application/msgpack"},
            catch_response=True,
        )

    # --- requests ---

    def _get(self, path: str, name: str) -> dict[str, Any] | None:
        """Get a JSON object. After a failed request ``None``, and the user moves to the next validator."""
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


def parted(batch: list[tuple[LoadUser, Outgoing]]) -> Iterator[list[tuple[LoadUser, Outgoing]]]:
    """Split a batch of transactions into parts that each fit into one request."""
    part: list[tuple[LoadUser, Outgoing]] = []
    size = 0
    for each in batch:
        length = len(each[1].wire)
        if part and (len(part) == TRANSACTIONS_AT_A_TIME or size + length > BYTES_AT_A_TIME):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part


def _note(driven: Driven, account: Any, actor: Any) -> None:
    """Store what an observation shows of a user's account and actor, which are given as JSON objects."""
    driven.account = {
        "confirmed_nonce": account["nonce"],
        "live_timers": actor["live_timers"],
        "open_jobs": tuple(map(bytes.fromhex, actor["open_jobs"])),
        "balance": account["balance"],
        "actor_balance": actor["balance"],
    }
    driven.asked_at = time.monotonic()


def _page_of(response: Any) -> dict[str, Any] | None:
    """The JSON object of a response with status 200; ``None`` for any other response."""
    return json_object(response.content) if response.status_code == 200 else None


def _results_of(response: Any, count: int) -> list[str | None] | None:
    """For each transaction of a posted batch the reason of its refusal, or ``None`` if it was accepted. Returns
    ``None`` instead of the list if the response does not have ``count`` results."""
    page = _page_of(response)
    results = page.get("results") if page is not None else None
    if not isinstance(results, list) or len(results) != count:
        return None
    return [None if result["error"] is None else result.get("reason", UNTOLD) for result in results]
