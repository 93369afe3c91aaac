"""Seeds over Ray: worker processes, each of which runs one seed after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from cluster.common.errors import HarnessError
from cluster.common.interrupts import Interrupts
from cluster.live.driver.ray_session import RaySession, one_line

POLL_S: Final = 0.2

T = TypeVar("T")


def default_workers() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def fan_out(
    run: Callable[[int], T], seeds: Iterable[int], workers: int, interrupts: Interrupts, what: str = "seed"
) -> Generator[tuple[int, T], None, None]:
    """Run each seed in a worker; yields seed and result in the order in which they end.

    ``run`` can be pickled; ``what`` names the numbers in errors. Running seeds are abandoned at a signal, which raises
    :class:`KeyboardInterrupt`, and when the iterator is closed. Raises :class:`HarnessError` if a worker dies or
    ``run`` raises.
    """
    try:
        session = RaySession.start(workers)
    except SystemExit:
        raise KeyboardInterrupt from None  # Ray's own answer to a SIGTERM
    interrupts.install()
    ray, left = session.ray, iter(seeds)
    running: dict[Any, int] = {}
    try:
        task, shared = ray.remote(num_cpus=1, max_retries=0)(_call), ray.put(run)
        while True:
            while len(running) < workers and (seed := next(left, None)) is not None:
                running[task.remote(shared, seed)] = seed
            if not running:
                return
            interrupts.checkpoint()
            session.check()
            ended, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S)
            for answer in ended:
                seed = running.pop(answer)
                try:
                    result = ray.get(answer)
                except ray.exceptions.RayError as error:
                    raise HarnessError(f"{what} {seed} crashed: {one_line(error)}") from error
                yield seed, result
    finally:
        session.close([])


def _call(run: Callable[[int], T], seed: int) -> T:
    return run(seed)
