"""Compiled programs, kept as bytes: no program is compiled twice while the process lives and has room for it.

Compiling takes a thousand times as long as loading what it made, and only who deploys a program pays for it. So the
code stays, marshalled, by the program's hash, and whoever calls the program loads it from there: for that there is a
price (:func:`load_cycles`), the same whether the code was still loaded or not.

There is room for :data:`MAX_KEPT_BYTES`. The programs that take most of it for their price take a byte for some 13
cycles of their deployment: to push all others out takes more than three thousand million cycles, some 650 blocks that
hold nothing but deployments, with the default parameters and at a basefee that rises from each to the next. What was
pushed out is compiled anew when it is next called, as everything is once after a restart, and for that nobody pays.

Nothing of it is written to disk. What Python marshals is good for one version of Python and for one version of the
compiler; read back by any other it would be another chain's code, or crash the process.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from types import CodeType
from typing import Final, NamedTuple

from validator.chain.records import python_code
from validator.primitives.cache import SizedCache
from validator.pvm.compiler.compiler import compile_program
from validator.pvm.compiler.weights import (
    DEPLOY_BYTES_PER_TOKEN,
    DEPLOY_CYCLES_PER_BYTE,
    DEPLOY_CYCLES_PER_LOAD,
    DEPLOY_CYCLES_PER_TOKEN,
    LOAD,
)
from validator.pvm.garbage_collection import YoungAlone
from validator.pvm.host_python import require_fit_python
from validator.pvm.language.source import count_tokens
from validator.pvm.language.subset import Program, parse

MAX_KEPT_BYTES: Final = 256 << 20
"""Of all compiled programs of a process; usual ones have 5 to 15 kB."""
ENTRY_BYTES: Final = 1_000
"""Bytes that a program counts for besides its code."""

Methods = dict[str, tuple[bool, bool]]
"""Of each method by name: whether it is a handler, whether it is async."""


class CompiledProgram(NamedTuple):
    """A checked program, ready to be loaded."""

    load_cycles: int
    bids: bool
    """Whether it has a gas bidding agent of its own."""
    content: bytes
    """Its methods and its code, marshalled."""

    @property
    def size(self) -> int:
        """Bytes that it counts for when it is kept."""
        return ENTRY_BYTES + len(self.content)

    def load(self) -> tuple[Methods, CodeType]:
        methods, code = marshal.loads(self.content)
        return methods, code


_kept: Final[SizedCache[CompiledProgram]] = SizedCache(MAX_KEPT_BYTES)


def compiled(source: str) -> CompiledProgram:
    """A text's program. Raises :class:`~validator.pvm.language.subset.ProgramError` if it is none."""
    return compiled_as(python_code(source)[0], lambda: source)


def compiled_as(code: str, source: Callable[[], str]) -> CompiledProgram:
    """A program by its hash; if it is not kept, compiled from its text."""
    found = _kept.get(code)
    if found is None:
        found = _compile(source())
        _kept.put(code, found, found.size)
    return found


def _compile(source: str) -> CompiledProgram:
    require_fit_python()
    with YoungAlone():
        program = parse(source)
        content = marshal.dumps((methods_of(program), compile_program(program)))
    return CompiledProgram(load_cycles(source), program.bids, content)


def methods_of(program: Program) -> Methods:
    return {name: (method.is_handler, method.is_async) for name, method in program.methods.items()}


# --- prices -----------------------------------------------------------------------------------------------------------


def byte_cycles(source: str) -> int:
    """Cycles for deploying a program before anything about it is looked at."""
    return DEPLOY_CYCLES_PER_BYTE * len(source)


def token_cycles(source: str) -> int:
    """Further cycles for deploying a program that is dense."""
    return DEPLOY_CYCLES_PER_TOKEN * max(0, count_tokens(source) - len(source) // DEPLOY_BYTES_PER_TOKEN)


def load_cycles(source: str) -> int:
    """Cycles for loading it, in each block in which it runs."""
    return LOAD + (byte_cycles(source) + token_cycles(source)) // DEPLOY_CYCLES_PER_LOAD
