"""Profiler of programs: it counts the cycles that are charged to each line.

Compiled programs report each piece of code that runs; other charges are traced to their line. There are three kinds of
charges:

- *pieces*: straight-line code, from the compiler's table of lines;
- *sizes*: charges of operators, builtins and methods for the size of their values, on the calling line;
- *host*: charges of host calls, with their arguments and results.

Charges before the first line (loading the program, unpacking the payload) belong to the handler's ``def``. When cycles
run out, the last charge counts only up to the cycles that were left, as in the meter. So the lines of a program add up
exactly to the use of its runs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from validator.pvm.compiler.compiler import FILE_NAME, compile_program, piece_lines
from validator.pvm.compiler.programs import methods_of
from validator.pvm.language.api import GAS_BID
from validator.pvm.language.subset import Program, parse
from validator.pvm.runtime.host import Host
from validator.pvm.runtime.machine import BidFigures, LoadedProgram, Runtime, pay_for_loading
from validator.pvm.runtime.operations import Value


@dataclass(slots=True)
class LineProfile:
    """The cycles charged to each line of a program, over all its runs, by kind of charge."""

    pieces: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    host: Counter[int] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    """Number of times that each line was reached."""

    def cycles(self, line: int) -> int:
        """All cycles charged to a line."""
        return self.pieces[line] + self.sizes[line] + self.host[line]

    @property
    def total(self) -> int:
        return self.pieces.total() + self.sizes.total() + self.host.total()


class ProfilingVm:
    """VM that runs programs as a validator does, and keeps a line profile of each. Implements ``Vm``."""

    def __init__(self) -> None:
        self.profiles: dict[str, LineProfile] = {}
        """Profile of each program that ran, keyed by its source text."""
        self._loaded: dict[str, tuple[LoadedProgram, _ObservedRuntime]] = {}

    def run(self, code: str, handler: str, payload: bytes, context: Host) -> None:
        self._load(code, context, handler).run_handler(handler, payload, context)

    def bid(self, code: str, offered: dict[str, int | bytes], context: Host) -> BidFigures:
        return self._load(code, context, GAS_BID).bid(offered, context)

    def _load(self, code: str, context: Host, method: str) -> LoadedProgram:
        if code not in self._loaded:
            source = context.world.source(code)
            self.profiles[source] = LineProfile()
            self._loaded[code] = _observed(parse(source), self.profiles[source])
        program, runtime = self._loaded[code]
        runtime.enter_method(method)
        runtime.pay_for_loading(code, context)
        return program


def _observed(program: Program, profile: LineProfile) -> tuple[LoadedProgram, _ObservedRuntime]:
    """Load a program such that its charges are recorded per line; returns it with its runtime."""
    runtime = _ObservedRuntime(program, profile)
    return LoadedProgram(methods_of(program), compile_program(program, observed=True), runtime), runtime


class _ObservedRuntime(Runtime):
    """Runtime of one program, which records the program's charges in its profile."""

    def __init__(self, program: Program, profile: LineProfile) -> None:
        self._methods = program.methods
        self._profile = profile
        self._pieces = piece_lines(program)
        self._reached = [frozenset(line for line, _ in piece) for piece in self._pieces]
        self._first_line = 0
        super().__init__()

    def enter_method(self, name: str) -> None:
        """Note which method the VM is about to run: charges before its first line belong to its ``def``."""
        method = self._methods.get(name)
        self._first_line = 0 if method is None else method.node.lineno

    def pay_for_loading(self, code: str, context: Host) -> None:
        """Charge for loading the program as a validator does, and record that charge on the method's first line."""
        before = context.meter.cycles_used
        try:
            pay_for_loading(code, context)
        finally:
            self._profile.host[self._first_line] += context.meter.cycles_used - before

    # --- calls from compiled code -------------------------------------------------------------------------------------

    def _namespace(self) -> dict[str, Any]:
        charge = self._charge

        def charge_size(cycles: int) -> None:
            self._note(self._profile.sizes, self._line(), cycles)
            charge(cycles)

        self.work.charge = charge_size
        return {**super()._namespace(), "_observe": self._observe}

    def _observe(self, piece: int) -> None:
        """Record the cycles of a piece of code on its lines. Called before they are charged."""
        left = self._remaining()
        for line, cycles in self._pieces[piece]:
            self._profile.pieces[line] += min(cycles, left)
            left -= min(cycles, left)
        self._profile.runs.update(self._reached[piece])

    def _pay(self, cycles: int, piece: int | None) -> bool:
        assert piece is not None, "observed programs number their pieces"
        self._note(self._profile.pieces, self._pieces[piece][0][0], cycles)
        return super()._pay(cycles, piece)

    def _through_host(self, call: Callable[..., Value]) -> Callable[..., Value]:
        performed = super()._through_host(call)

        def noted(*arguments: Value, **named: Value) -> Value:
            line, before = self._line(), self._remaining()
            try:
                return performed(*arguments, **named)
            finally:
                self._profile.host[line] += before - self._remaining()

        return noted

    def _note(self, charges: Counter[int], line: int, cycles: int) -> None:
        charges[line] += min(cycles, self._remaining())

    def _line(self) -> int:
        """The number of the program's current line; the line of the handler's ``def`` if none has run yet."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == FILE_NAME:
                return frame.f_lineno
            frame = frame.f_back
        return self._first_line
