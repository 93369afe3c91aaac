"""Advice on valid programs with probable mistakes: handlers that cannot be called, bids that leave no cycles.

Only literal names and constants of the class are checked, no computed ones. On the chain such a mistake shows when a
timer fires: the run is paid for and the timer is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from cluster.common.suggestions import closest
from validator.chain.records import DEFAULT_HANDLER
from validator.primitives.params import DEFAULTS
from validator.pvm.compiler.programs import load_cycles
from validator.pvm.language.api import GAS_BID, HANDLER_PARAMETER, HOST_CALLS, YIELDING
from validator.pvm.language.source import Problem
from validator.pvm.language.subset import Program
from validator.pvm.language.trees import SELF


class Naming(NamedTuple):
    """A host call with the name of a handler, of this actor or of the one in a parameter."""

    call: str
    receiver: str = ""
    """The parameter with the actor of the handler; empty if it is always this actor."""


SCHEDULES: Final = ("schedule", "schedule_timer", "schedule_timer_ex")
NAMINGS: Final = (*map(Naming, SCHEDULES), Naming("request_job"), Naming("send", receiver="to"))
HANDLER: Final = "handler"


def advice(program: Program, source: str) -> list[Problem]:
    """Advice for the author, in the order of the text."""
    tree = ast.parse(source)
    found = [problem for node in ast.walk(tree) if isinstance(node, ast.Call) for problem in _of_call(node, program)]
    if not program.handlers:
        shell = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        remedy = f"a handler is a method whose one parameter is {HANDLER_PARAMETER}"
        found.append(
            Problem(shell.lineno, shell.col_offset + 1, "an actor without a handler, which nobody can call", remedy)
        )
    for name in sorted(YIELDING & program.methods.keys()):
        own = program.methods[name].node
        what = f"a method {name} of its own, which hides the host's"
        found.append(Problem(own.lineno, own.col_offset + 1, what, "give it another name, if the host's may be wanted"))
    price = load_cycles(source)
    if program.bids and price > DEFAULTS.gba_max_cycles // 2:
        bid = program.methods[GAS_BID].node
        what = f"{GAS_BID} has {DEFAULTS.gba_max_cycles:,} cycles, of which loading the program takes {price:,}"
        found.append(
            Problem(bid.lineno, bid.col_offset + 1, what, "make the program shorter, or let the default agent bid")
        )
    return sorted(found)


def _of_call(node: ast.Call, program: Program) -> Iterator[Problem]:
    host = (naming for naming in NAMINGS if naming.call not in program.methods)
    naming = next((naming for naming in host if _is_own(node.func, naming.call)), None)
    if naming is None or (naming.receiver and not _is_own(_argument(node, naming.call, naming.receiver), "address")):
        return
    place = _argument(node, naming.call, HANDLER)
    if place is None:
        if naming.call in SCHEDULES and DEFAULT_HANDLER not in program.handlers:
            what = f"a timer that names no handler calls {DEFAULT_HANDLER}, and there is none"
            yield Problem(node.lineno, node.col_offset + 1, what, "name one, or write it")
        return
    name = _text(place, program)
    if name is not None and name not in program.handlers:
        yield Problem(place.lineno, place.col_offset + 1, f"no handler {name!r}", _remedy(name, program))


def _remedy(name: str, program: Program) -> str:
    if name == GAS_BID:
        return "the chain asks it for bids, and nobody else can"
    if name in program.methods:
        parameters = ", ".join((SELF, *program.methods[name].parameters))
        return f"{name}({parameters}) is a helper: a handler has one parameter, and it is called {HANDLER_PARAMETER}"
    meant = closest(name, program.handlers)
    return f"did you mean {meant}?" if meant else f"handlers are: {', '.join(program.handlers) or 'none'}"


def _is_own(node: ast.expr | None, name: str) -> bool:
    """Whether this is ``self.name``."""
    match node:
        case ast.Attribute(value=ast.Name(id=holder), attr=found):
            return holder == SELF and found == name
    return False


def _argument(node: ast.Call, call: str, parameter: str) -> ast.expr | None:
    """The argument for a parameter of a call; ``None`` if it is left out."""
    place = HOST_CALLS[call].parameters.index(parameter)
    if place < len(node.args):
        return node.args[place]
    return next((keyword.value for keyword in node.keywords if keyword.arg == parameter), None)


def _text(node: ast.expr, program: Program) -> str | None:
    """The text of a literal expression or constant, or ``None``."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Attribute(value=ast.Name(id=holder), attr=name) if holder == SELF:
            constant = program.constants.get(name)
            return constant if isinstance(constant, str) else None
    return None
