"""Processes next to a benchmark that do not import it again.

A process that :mod:`multiprocessing` spawns imports the program that spawns it, in case that has what it runs. These
run functions of other modules, and a benchmark takes seconds of a processor to import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def started(target: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> BaseProcess:
    """A process that runs a function, and ends with this one at the latest."""
    process = get_context("spawn").Process(target=target, args=arguments, kwargs=options, daemon=True)
    with _nameless_program():
        process.start()
    return process


def result_of(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a function returns, or raises, in a separate process."""
    with _nameless_program(), ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *arguments, **options).result()


@contextmanager
def _nameless_program() -> Iterator[None]:
    """A process imports only a program whose file it is told."""
    program: dict[str, Any] = vars(sys.modules["__main__"])
    file = program.pop("__file__", None)
    try:
        yield
    finally:
        if file is not None:
            program["__file__"] = file
