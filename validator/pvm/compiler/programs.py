"""The cache of compiled programs, as bytes. A process compiles no program twice while the cache has room for it.

Compiling takes a thousand times as long as loading the result, and only the deployer of a program pays for it. So the
marshalled code is cached by the program's hash, and calls of the program load it from there. Loading has a price
(:func:`load_cycles`), which is the same whether or not the code was still loaded.

The cache holds :data:`MAX_KEPT_BYTES`. Deploying a program costs at least about 13 cycles for each byte that it takes
in the cache. So evicting all other programs costs more than three thousand million cycles: with the default parameters
about 650 blocks of only deployments, at a basefee that rises with each. An evicted program is compiled again at its
next call, like every program after a restart, free of charge.

The cache is never written to disk. Marshalled code is valid for one version of Python and one version of the compiler;
loaded by another it would behave differently or crash the process.
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
"""Total size of a process's compiled programs; usual programs have 5 to 15 kB."""
ENTRY_BYTES: Final = 1_000
"""Bytes that a program counts for in addition to its code."""

Methods = dict[str, tuple[bool, bool]]
"""For each method by name: whether it is a handler, whether it is async."""


class CompiledProgram(NamedTuple):
    """A checked and compiled program, in the form that the cache holds."""

    load_cycles: int
    bids: bool
    """Whether the program has its own gas bidding agent."""
    content: bytes
    """Marshalled methods and code."""

    @property
    def size(self) -> int:
        """Number of bytes that the program counts for in the cache."""
        return ENTRY_BYTES + len(self.content)

    def load(self) -> tuple[Methods, CodeType]:
        methods, code = marshal.loads(self.content)
        return methods, code


_kept: Final[SizedCache[CompiledProgram]] = SizedCache(MAX_KEPT_BYTES)


def compiled(source: str) -> CompiledProgram:
    """Compile a source text, or take its program from the cache.

    Raises :class:`~validator.pvm.language.subset.ProgramError` if it is not a valid program.
    """
    return compiled_as(python_code(source)[0], lambda: source)


def compiled_as(code: str, source: Callable[[], str]) -> CompiledProgram:
    """The compiled program of an actor's ``code``, which has the source's hash. It is compiled if it is not cached."""
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
    """Cycles for deploying a program, by the size of its source. They are charged before the source is parsed."""
    return DEPLOY_CYCLES_PER_BYTE * len(source)


def token_cycles(source: str) -> int:
    """Further cycles for deploying a dense program, by the number of tokens above the usual one for its size."""
    return DEPLOY_CYCLES_PER_TOKEN * max(0, count_tokens(source) - len(source) // DEPLOY_BYTES_PER_TOKEN)


def load_cycles(source: str) -> int:
    """Cycles for loading a program, in each block in which it runs."""
    return LOAD + (byte_cycles(source) + token_cycles(source)) // DEPLOY_CYCLES_PER_LOAD
