"""Runs the load on the cluster's nodes for load: on each a worker actor has its share of the Locust processes.

The workers need no master: the plan says which process has which users. A load that does need one runs on one node. A
lost node takes only its own users with it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.common.wording import counted
from cluster.live.driver.load_process import (
    ENDPOINTS_FILE,
    LOG_FILE,
    POLL_S,
    STATS_FILE,
    STOP_TIMEOUT_S,
    LoadProcess,
    now_epoch_ms,
    record_of,
)
from cluster.live.driver.ray_session import RaySession, raise_bug
from cluster.live.nodes.ray_nodes import RayNode
from cluster.live.processes.processes import Process
from cluster.record.run import LoadRecord
from loadgen.runplan import RunPlan, Statistics, dump_json, load_json

MAX_LOG_BYTES: Final = 2**20
"""Only this many bytes from the end of a worker's log are fetched."""
ANSWER_TIMEOUT_S: Final = 10.0
"""Time for a worker's last answer, in addition to the time for the end of its processes."""
CALLS: Final = 4
"""Calls that a worker answers at a time."""


class LoadWorker:
    """An actor of a load node: a :class:`LoadProcess` with its files in a temporary folder there."""

    def __init__(self, plan_json: bytes, processes: Sequence[int]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stampede-load-")
        folder = Path(self._folder.name)
        files = {"endpoints_file": str(folder / ENDPOINTS_FILE), "stats_file": str(folder / STATS_FILE)}
        plan = load_json(RunPlan, plan_json).model_copy(update=files)
        self._load = LoadProcess(plan, folder, processes)
        self._log = folder / LOG_FILE
        self._answer: tuple[str, bytes] | None = None

    def wait_until_ready(self) -> None:
        """Wait until the load is ready, that is waits only for endpoints, or has ended."""
        while not self._load.is_ready and self._load.exit_code is None:
            time.sleep(POLL_S)

    def wait_until_ended(self) -> int:
        """Wait until the load has ended. Returns its exit code."""
        while self._load.exit_code is None:
            time.sleep(POLL_S)
        return self._load.exit_code

    def go(self, urls: Mapping[int, str]) -> None:
        self._load.go(urls)

    def stop(self) -> None:
        self._load.stop()

    def finish(self) -> tuple[str, bytes]:
        """End the load. Returns the statistics as JSON, and the end of the log."""
        if self._answer is None:
            stats = self._load.finished(lambda: None)
            self._answer = stats.model_dump_json(), self._log.read_bytes()[-MAX_LOG_BYTES:]
            self._folder.cleanup()
        return self._answer


@dataclass(slots=True)
class _Worker:
    """A load worker as the driver knows it: its node, its actor, and the state of its load."""

    node: RayNode
    actor: Any
    users: int
    ready: Any
    """Pending answer of :meth:`LoadWorker.wait_until_ready`."""
    ended: Any
    """Pending answer of :meth:`LoadWorker.wait_until_ended`."""
    is_ready: bool = False
    is_lost: bool = False
    exit_code: int | None = None


class LoadNodes:
    """The load of a run, on several nodes. It has the interface of a :class:`LoadProcess`."""

    process: Process | None = None
    """The driver's own load process: always ``None``, since workers on the nodes run the load."""
    reason = ""
    """The load's reason for an early end: always empty, since the nodes report only at the end."""

    def __init__(
        self,
        session: RaySession,
        nodes: Sequence[RayNode],
        plan: RunPlan,
        folder: Path,
        notice: Callable[[str], None],
        before: Statistics | None = None,
    ) -> None:
        """Start the load, with its processes assigned to the nodes in turn.

        ``before`` are the counts of a load that ended earlier, which this one continues.
        """
        self.before = Statistics() if before is None else before
        self.began_epoch_ms = plan.began_epoch_ms
        """When the load began, in milliseconds since the epoch; ``None`` before that."""
        self.was_told_to_stop = False
        self._ray = session.ray
        self._folder = folder
        self._notice = notice
        self._lost: list[str] = []
        self._record: LoadRecord | None = None
        self._urls: dict[int, str] = {}
        self._workers: list[_Worker] = []
        self._good_codes = (None,) if plan.load.locust is None else (None, 0)
        plan_json = dump_json(plan, exclude_none=True).encode()
        used = nodes[: 1 if plan.needs_master else plan.process_count]
        for position, node in enumerate(used):
            numbers = list(range(position, plan.process_count, len(used)))
            users = sum(len(plan.load.users_of(client)) for number in numbers for client in plan.share(number))
            actor = session.actor_on(node.node_id, LoadWorker, plan_json, numbers, max_concurrency=CALLS)
            ready, ended = actor.wait_until_ready.remote(), actor.wait_until_ended.remote()
            self._workers.append(_Worker(node, actor, users, ready, ended))
        notice(f"the load runs on {', '.join(node.name for node in used)}")

    @property
    def is_ready(self) -> bool:
        """Whether all workers are, or were, waiting only for the endpoints."""
        self._look()
        return all(worker.is_ready for worker in self._alive())

    def go(self, urls: Mapping[int, str]) -> None:
        """Give the workers the addresses of the validators, by index: the load begins (:meth:`LoadProcess.go`)."""
        if dict(urls) != self._urls:
            self._urls = dict(urls)
            self.began_epoch_ms = self.began_epoch_ms or now_epoch_ms()
            for worker in self._alive():
                worker.actor.go.remote(self._urls)

    @property
    def ended_early(self) -> bool:
        """Whether the load ended before :meth:`stop`: all nodes are lost, or a worker's processes ended for another
        reason than the end of the user's own load shape.
        """
        self._look()
        has_ended = any(worker.exit_code not in self._good_codes for worker in self._workers)
        return not self.was_told_to_stop and (has_ended or not list(self._alive()))

    @property
    def exit_code(self) -> int | None:
        """The worst exit code of the workers that ended."""
        codes = [worker.exit_code for worker in self._workers if worker.exit_code is not None]
        return max(codes, key=abs, default=None)

    def stop(self) -> None:
        """Ask the load to end; returns at once."""
        if not self.was_told_to_stop:
            self.was_told_to_stop = True
            for worker in self._alive():
                worker.actor.stop.remote()

    def finish(self, checkpoint: Callable[[], None]) -> LoadRecord:
        """Stop the load, wait for its end, and fetch logs and statistics. Later calls return the same record.

        ``checkpoint`` may raise to end the wait.
        """
        if self._record is not None:
            return self._record
        self.stop()
        total = self.before
        asked = {worker.actor.finish.remote(): worker for worker in self._alive()}
        left, deadline = list(asked), time.monotonic() + STOP_TIMEOUT_S + ANSWER_TIMEOUT_S
        while left and time.monotonic() < deadline:
            checkpoint()
            answered, left = self._ray.wait(left, num_returns=len(left), timeout=POLL_S)
            for answer in answered:
                total = total.plus(self._fetch(asked[answer], answer))
        for answer in left:
            self._lose(asked[answer], "it did not answer at the end")
        total.write(self._folder / STATS_FILE)
        self._record = record_of(total, self.exit_code, self._lost)
        return self._record

    def _fetch(self, worker: _Worker, answer: Any) -> Statistics:
        try:
            stats, log = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            raise_bug(error)
            self._lose(worker, "it ended before its statistics were fetched")
            return Statistics()
        if worker.exit_code is None:
            worker.exit_code = 0
        place = self._workers.index(worker)
        target = (self._folder / LOG_FILE).with_suffix(f".{place}.log")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(log)
        return Statistics.model_validate_json(stats)

    def _alive(self) -> Iterator[_Worker]:
        return (worker for worker in self._workers if not worker.is_lost)

    def _look(self) -> None:
        """Note which workers are ready, have ended, or are lost."""
        for worker in list(self._alive()):
            try:
                if not worker.is_ready and self._ray.wait([worker.ready], timeout=0)[0]:
                    self._ray.get(worker.ready)
                    worker.is_ready = True
                if worker.exit_code is None and self._ray.wait([worker.ended], timeout=0)[0]:
                    worker.exit_code = self._ray.get(worker.ended)
            except self._ray.exceptions.RayTaskError as error:
                raise_bug(error)
                raise
            except self._ray.exceptions.RayError:
                self._lose(worker, "its worker or the node is gone")

    def _lose(self, worker: _Worker, reason: str) -> None:
        if worker.is_lost:
            return
        worker.is_lost = True
        self._lost.append(
            f"node {worker.node.name} was lost with {counted(worker.users, 'user')} of the load: {reason}"
        )
        self._notice(self._lost[-1])
