"""``stampede actor check``: the problems of an invalid program, and advice on a valid one with probable mistakes.

These are handlers that cannot be called, bids that leave no cycles, arguments that a call never takes. Only literals
and constants of the class are checked, and for ``sorted`` what a method puts into a variable. Nothing computed is. On
the chain such a mistake appears when a timer fires: the run is paid for and the timer is gone.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cluster.common.suggestions import closest
from cluster.common.wording import plural, printable
from cluster.local_chain.programs import meant, problem_line, read_source
from validator.chain.records import DEFAULT_HANDLER
from validator.primitives.params import DEFAULTS
from validator.pvm.compiler.programs import load_cycles
from validator.pvm.deployment import deploy_cycles
from validator.pvm.language.api import CONSTANTS, GAS_BID, HANDLER_PARAMETER, HOST_CALLS, YIELDING
from validator.pvm.language.source import Problem
from validator.pvm.language.subset import MAX_PROBLEMS, Program, ProgramError, parse
from validator.pvm.language.trees import SELF, Function
from validator.pvm.runtime.host import TIERS
from validator.pvm.runtime.operations import KINDS

SCHEDULES: Final = ("schedule", "schedule_timer", "schedule_timer_ex")
NAMINGS: Final = {**dict.fromkeys([*SCHEDULES, "request_job"], ""), "send": "to"}
"""The host calls that name a handler, each with the name of its parameter for the handler's actor. The name is empty if
the handler is always one of the calling actor."""
HANDLER: Final = "handler"
DATA: Final = ("", KINDS[str], KINDS[bytes], KINDS[int], KINDS[bool])
"""Kinds of values that ``emit`` takes, and what is not known."""
UNSORTED: Final = (KINDS[list], KINDS[dict], KINDS[type(None)])
"""Kinds of values that ``sorted`` takes nowhere."""


class Checked(NamedTuple):
    """The result of the check of a program's file."""

    is_fine: bool
    """Whether the program may be deployed, with or without advice."""
    lines: list[str]
    """The lines to print: the problems of an invalid program, or the warnings and a description of a valid one."""


def check(path: Path) -> Checked:
    """Check a program's file. Raises :class:`BadInput` if it cannot be read."""
    source = read_source(path)
    try:
        program = parse(source, meant)
    except ProgramError as error:
        lines = [printable(problem_line(path, problem)) for problem in error.problems]
        if len(lines) >= MAX_PROBLEMS:
            lines.append(f"{path}: these are the first {MAX_PROBLEMS} problems")
        return Checked(False, lines)
    warnings = [problem._replace(what=f"warning: {problem.what}") for problem in advice(program, source)]
    lines = [printable(problem_line(path, warning)) for warning in warnings]
    return Checked(True, [*lines, f"{path}: {_description(program, source, len(warnings))}"])


def _description(program: Program, source: str, warnings: int) -> str:
    """A description of a valid program, in one line."""
    handlers = ", ".join(program.handlers) or "none"
    bids = "bids for its timers" if program.bids else "leaves bidding to the default agent"
    cycles = DEFAULTS.tx_base_cycles + deploy_cycles(source)
    counted = "" if not warnings else f" but for {warnings} {plural(warnings, 'warning')}"
    return (
        f"{program.name} is fine{counted}: handlers {handlers}; {bids}; "
        f"{len(source):,} bytes; deploying it costs {cycles:,} cycles and {len(source):,} cells"
    )


def advice(program: Program, source: str) -> list[Problem]:
    """Find probable mistakes in a valid program; returns them in source order."""
    tree = ast.parse(source)
    found = [problem for node in ast.walk(tree) if isinstance(node, ast.Call) for problem in _of_call(node, program)]
    for method in program.methods.values():
        found += _of_sorting(method.node)
    if not program.handlers:
        shell = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        remedy = f"a handler is a method whose one parameter is {HANDLER_PARAMETER}"
        found.append(_problem(shell, "an actor without a handler, which cannot be called", remedy))
    for name in sorted(YIELDING & program.methods.keys()):
        what = f"its own method {name}, which hides the host's"
        found.append(_problem(program.methods[name].node, what, "give it another name, if the host's may be wanted"))
    price = load_cycles(source)
    if program.bids and price > DEFAULTS.gba_max_cycles // 2:
        what = f"{GAS_BID} has {DEFAULTS.gba_max_cycles:,} cycles, of which loading the program takes {price:,}"
        remedy = "make the program shorter, or let the default agent bid"
        found.append(_problem(program.methods[GAS_BID].node, what, remedy))
    return sorted(found)


def _problem(node: ast.expr | ast.stmt, what: str, remedy: str) -> Problem:
    return Problem(node.lineno, node.col_offset + 1, what, remedy)


def _of_call(node: ast.Call, program: Program) -> Iterator[Problem]:
    yield from _of_handler(node, program)
    called = next(
        (each for each in (*SCHEDULES, "emit") if each not in program.methods and _is_own(node.func, each)), ""
    )
    if called in SCHEDULES and (tier := _argument(node, called, "tier")) is not None:
        kind, text = _kind_of(tier), _text(tier, program)
        if kind not in ("", "None", KINDS[str]) or (text is not None and text not in TIERS):
            meant = closest(text.lower(), TIERS) if text else None
            remedy = f"did you mean {meant.upper()}?" if meant else f"tiers are: {', '.join(CONSTANTS)}"
            yield _problem(tier, f"no tier {ast.unparse(tier):.40}", remedy)
    data = _argument(node, called, "data") if called == "emit" else None
    if data is not None and (kind := _kind_of(data)) not in DATA:
        yield _problem(data, f"an event with {kind} as its data", "give it a text, a number or bytes")


def _of_sorting(method: Function) -> Iterator[Problem]:
    """Calls of ``sorted`` and ``sort`` on what is known to contain values that cannot be sorted."""
    nodes = list(ast.walk(method))
    held: dict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                held[name] += _elements(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                held[name].append(value)
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id="sorted"), args=[values, *_]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name() as values, attr="sort"), args=[]):
                pass
            case _:
                continue
        elements = held[values.id] if isinstance(values, ast.Name) else _elements(values)
        kind = next((kind for each in elements if (kind := _kind_of(each)) in UNSORTED), None)
        if kind is not None:
            remedy = "sort numbers, texts, bytes or tuples of these"
            yield _problem(node, f"values that cannot be sorted: {kind} among them", remedy)


def _elements(node: ast.expr) -> list[ast.expr]:
    """The expressions of the elements of a display or a comprehension; none of another expression."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return elements
        case ast.ListComp(elt=element):
            return [element]
    return []


def _kind_of(node: ast.expr) -> str:
    """What the value of a literal, a display or a comprehension is, in words; empty for another expression."""
    match node:
        case ast.Constant(value=value):
            return KINDS.get(type(value), "")
        case ast.List() | ast.ListComp():
            return KINDS[list]
        case ast.Dict() | ast.DictComp():
            return KINDS[dict]
        case ast.Tuple():
            return KINDS[tuple]
    return ""


def _of_handler(node: ast.Call, program: Program) -> Iterator[Problem]:
    call = next((each for each in NAMINGS if each not in program.methods and _is_own(node.func, each)), None)
    if call is None or (NAMINGS[call] and not _is_own(_argument(node, call, NAMINGS[call]), "address")):
        return
    place = _argument(node, call, HANDLER)
    if place is None:
        if call in SCHEDULES and DEFAULT_HANDLER not in program.handlers:
            what = f"a timer that names no handler calls {DEFAULT_HANDLER}, and there is none"
            yield _problem(node, what, "name one, or write it")
        return
    name = _text(place, program)
    if name is not None and name not in program.handlers:
        yield _problem(place, f"no handler {name!r}", _remedy(name, program))


def _remedy(name: str, program: Program) -> str:
    if name == GAS_BID:
        return "only the chain calls it, for bids"
    if name in program.methods:
        parameters = ", ".join((SELF, *program.methods[name].parameters))
        return f"{name}({parameters}) is a helper: a handler has one parameter, and it is called {HANDLER_PARAMETER}"
    meant = closest(name, program.handlers)
    return f"did you mean {meant}?" if meant else f"handlers are: {', '.join(program.handlers) or 'none'}"


def _is_own(node: ast.expr | None, name: str) -> bool:
    """Whether an expression is the attribute ``name`` of ``self``."""
    match node:
        case ast.Attribute(value=ast.Name(id=holder), attr=found):
            return holder == SELF and found == name
    return False


def _argument(node: ast.Call, call: str, parameter: str) -> ast.expr | None:
    """The expression that a host call passes for a parameter; ``None`` if the call omits it."""
    place = HOST_CALLS[call].parameters.index(parameter)
    if place < len(node.args):
        return node.args[place]
    return next((keyword.value for keyword in node.keywords if keyword.arg == parameter), None)


def _text(node: ast.expr, program: Program) -> str | None:
    """The text that an expression means if it is a literal or a constant of the class; ``None`` for others."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Attribute(value=ast.Name(id=holder), attr=name) if holder == SELF:
            constant = program.constants.get(name)
            return constant if isinstance(constant, str) else None
    return None
