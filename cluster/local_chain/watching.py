"""A VM that records each run of a program: actor, handler, cycles, and the lines at which it failed.

Compiled programs keep the line numbers of their source, so a failure's traceback has them. The recording changes
neither behaviour nor charges.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from validator.execution.handler_context import HandlerContext
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import MAX_ERROR_TEXT
from validator.primitives.types import Address
from validator.pvm.compiler.compiler import FILE_NAME
from validator.pvm.compiler.expressions import FUNCTION
from validator.pvm.language.api import GAS_BID
from validator.pvm.runtime.host import Host
from validator.pvm.runtime.machine import BidFigures, Vm

T = TypeVar("T")


class Place(NamedTuple):
    """A place in a program: a line, and the method that contains it."""

    method: str
    line: int


class ProgramRun(NamedTuple):
    """The record of one run of a program's handler or of its bid method."""

    source: str
    actor: Address
    sender: Address
    handler: str
    payload: bytes
    cycles: int
    """Cycles that the run used, without those that its caller had used before."""
    error: str
    why: str
    """The error in words, without its name; empty if there are none. It is in no receipt."""
    places: tuple[Place, ...]
    """Traceback of the failure, the handler first. It is empty if the run did not fail, or if it failed outside the
    program's code."""
    bid: BidFigures | None
    in_transaction: bool


class WatchingVm:
    """Runs programs in another VM and records each run. Implements ``Vm``."""

    def __init__(self, vm: Vm) -> None:
        self._vm = vm
        self._runs: list[ProgramRun] = []

    def take(self) -> list[ProgramRun]:
        """Return the runs recorded since the last call of this method, in order."""
        taken, self._runs = self._runs, []
        return taken

    def run(self, code: str, handler: str, payload: bytes, context: Host) -> None:
        self._watched(code, handler, payload, context, lambda: self._vm.run(code, handler, payload, context))

    def bid(self, code: str, offered: dict[str, int | bytes], context: Host) -> BidFigures:
        return self._watched(code, GAS_BID, b"", context, lambda: self._vm.bid(code, offered, context))

    def _watched(self, code: str, handler: str, payload: bytes, context: Host, perform: Callable[[], T]) -> T:
        assert isinstance(context, HandlerContext), "the transition runs programs on its own host"
        before, source = context.meter.cycles_used, context.world.source(code)

        def note(error: str, why: str, places: tuple[Place, ...], bid: BidFigures | None = None) -> None:
            cycles = context.meter.cycles_used - before
            is_first = context.allowance is not None  # only transactions have one
            run = ProgramRun(
                source, context.actor, context.sender, handler, payload, cycles, error, why, places, bid, is_first
            )
            self._runs.append(run)

        try:
            answer = perform()
        except HandlerFailure as failure:
            note(failure.name, failure.why[:MAX_ERROR_TEXT], places_of(failure))
            raise
        note("", "", (), answer if isinstance(answer, tuple) else None)
        return answer


def places_of(failure: HandlerFailure) -> tuple[Place, ...]:
    """The program's lines in the traceback of a failure, outermost first.

    If the VM replaced a Python error, the lines come from that error, which is the context of the VM's error.
    """
    error: BaseException | None = failure
    while error is not None:
        places: list[Place] = []
        for frame, line in traceback.walk_tb(error.__traceback__):
            name = frame.f_code.co_name
            if frame.f_code.co_filename != FILE_NAME:
                continue
            if name.startswith(FUNCTION):
                places.append(Place(name.removeprefix(FUNCTION), line))
            elif name.startswith("<") and places:  # a comprehension, which has its own frame before Python 3.12
                places[-1] = places[-1]._replace(line=line)
        if places:
            return tuple(places)
        error = error.__context__
    return ()
