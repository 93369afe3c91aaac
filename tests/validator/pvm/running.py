"""Runs one handler of one program on a small world, and says all that can be seen of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.validator.chains import ACTOR, ALICE, Chain
from validator.chain.records import python_code
from validator.execution.handler_context import HandlerContext, run_handler
from validator.execution.timer_calls import Allowance, SchedulingTerms
from validator.policies.cip1 import Cip1Phase
from validator.primitives.errors import HandlerFailure
from validator.primitives.meter import Meter
from validator.pvm.compiler.programs import compiled
from validator.pvm.runtime.machine import LoadedProgram
from validator.pvm.runtime.values import pack
from validator.state.working_set import World

PLENTY = 10**9


@cache
def small_chain() -> Chain:
    return Chain()


def new_context(cycles: int = PLENTY, cells: int = PLENTY) -> HandlerContext:
    """A call of a rich actor by a rich user, at height 1 of a chain that is never changed."""
    chain = small_chain()
    terms = SchedulingTerms(1, 10**6, 7, chain.parameters, Cip1Phase.rules)
    return HandlerContext(
        World(chain.view), Meter(cycles, cells), ACTOR, ALICE, terms, Allowance(ALICE, 10**6), 8, value=5
    )


def nothing(_cycles: int) -> None:
    """A charge that costs nothing."""


def packed(value: Any) -> bytes:
    return b"" if value is None else pack(value, nothing)


@dataclass(frozen=True)
class Run:
    """What one run of a handler did."""

    error: str
    cycles: int
    cells: int
    effects: Any
    storage: dict[bytes, Any]


def observe(context: HandlerContext, body: Callable[[HandlerContext], None]) -> Run:
    """Run something as a handler and look at all that it leaves."""
    result = run_handler(context, body)
    changes = {change.key: change.after for change in context.world.changes()}
    return Run(result.error, context.meter.cycles_used, context.meter.cells_used, result.effects, changes)


def stored(context: HandlerContext, source: str) -> str:
    """The code of an actor whose program this is; the program stands in the run's state."""
    code, key = python_code(source)
    context.world.put(key, source)
    return code


def load(source: str) -> LoadedProgram:
    return LoadedProgram(*compiled(source).load())


def run(source: str, payload: Any = None, handler: str = "handle", cycles: int = PLENTY, cells: int = PLENTY) -> Run:
    """Run a handler of a program by the VM."""
    loaded = load(source)
    given = packed(payload)
    return observe(new_context(cycles, cells), lambda context: loaded.run_handler(handler, given, context))


def error_of(source: str, payload: Any = None, cycles: int = PLENTY) -> str:
    return run(source, payload, cycles=cycles).error


def program(body: str, *methods: str) -> str:
    """A program whose handler has this body."""
    indented = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    others = "".join("\n" + "".join(f"    {line}\n" for line in each.strip("\n").split("\n")) for each in methods)
    return f"class Case(Actor):\n    def handle(self, payload):\n{indented}{others}"


def value_of(body: str, payload: Any = None) -> Any:
    """What a handler's body returns; the failure where it fails."""
    loaded = load(program(body))
    context = new_context()
    found: list[Any] = []
    function = loaded.functions["handle"]
    try:
        loaded.runtime.metered(context, lambda: found.append(function(0, payload)))
    except HandlerFailure as failure:
        return failure.name
    return found[0]
