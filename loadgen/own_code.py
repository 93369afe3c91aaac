"""Custom workloads, Locust users and load shapes in a Locust process: their errors, and when they start.

An exception of a workload ends the load and is reported. Locust starts its users, and the time of a load shape, before
the testnet is up. So custom users and shapes are held until the load begins.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import gevent  # type: ignore[import-untyped]
from locust import LoadTestShape, User
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadgen.share import Share
from loadgen.workloads import WorkloadError

LATER: Final = "http://0.0.0.0"
"""Placeholder for the host of custom users that name none; a real host replaces it when the load begins."""
BROKEN: Final = "stampede_broken"
"""Message to the master: a workload has raised an exception in a worker."""


def end_when_broken(environment: Environment, notice: Callable[[str], None], exit_code: int) -> list[str]:
    """Register handlers that end the load if a workload raises an exception, in this process or in a worker.

    Returns a list that is empty until then, and then has the exception's message, which is one line.
    """
    runner, lines = environment.runner, list[str]()
    assert runner is not None

    def end(line: str) -> None:
        if not lines:
            lines.append(line)
            notice(line)
            environment.process_exit_code = exit_code
            gevent.spawn(runner.quit)

    def on_user_error(exception: BaseException, **_: Any) -> None:
        if not isinstance(exception, WorkloadError):
            return
        if isinstance(runner, WorkerRunner):
            runner.send_message(BROKEN, {"line": str(exception)})
        else:
            end(str(exception))

    if isinstance(runner, MasterRunner):
        runner.register_message(BROKEN, lambda msg, **_: end(msg.data["line"]))
    environment.events.user_error.add_listener(on_user_error)
    return lines


def begin_with_load(kind: type[User], share: Callable[[], Share]) -> None:
    """Hold custom users of this class until the load begins. Users without a host get a validator's endpoint.

    ``share`` returns the process's part of the load, and waits until there is one.
    """
    on_start, numbers = kind.on_start, count()
    if kind.host is None:
        kind.host = LATER

    def wait_and_start(user: User) -> None:
        load = share()
        load.has_begun.wait()
        if user.host == LATER:
            user.host = user.environment.host or load.endpoints[next(numbers) % len(load.endpoints)]
            client: Any = getattr(user, "client", None)
            if hasattr(client, "base_url"):
                client.base_url = user.host
        on_start(user)

    kind.on_start = wait_and_start  # type: ignore[assignment, method-assign]


def hold_shape(shape: LoadTestShape, has_begun: Callable[[], bool]) -> None:
    """Hold a load shape until the load begins: its time starts then, and there are no users before."""
    tick, is_held = shape.tick, True

    def held_tick() -> Any:
        nonlocal is_held
        if is_held and not has_begun():
            return 0, 1
        if is_held:
            is_held = False
            shape.reset_time()
        return tick()

    shape.tick = held_tick  # type: ignore[method-assign]
