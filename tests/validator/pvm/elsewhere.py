"""Runs programs under whatever Python starts this file, without third-party packages.

Reads a JSON list of ``[source, cycles]`` from standard input, writes what each did. The host, the codec of values and
keccak are stand-ins: they need packages that another Python may not have.
"""

from __future__ import annotations

import hashlib
import json
import sys
import types
from typing import Any


def stand_in(name: str, **names: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module


class Host:
    """A host that charges nothing and keeps what it is told."""

    def __init__(self) -> None:
        self.context: Any = None
        self._stored: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments, **_named: 7 if name.startswith("read_") else None


class Context:
    """A meter, and nothing else of a host."""

    def __init__(self, cycles: int) -> None:
        self.meter = self
        self.cycles_limit, self.cycles_used = cycles, 0


stand_in("validator.primitives.codec", keccak256=lambda data: hashlib.sha256(data).digest())
stand_in("validator.pvm.runtime.host", Host=Context)
stand_in("validator.pvm.runtime.hostcalls", HostCalls=Host)
stand_in("validator.pvm.runtime.values", unpack=lambda _encoded, _charge: None)
stand_in("validator.chain.records", python_code=lambda source: (source, b""))
stand_in("validator.primitives.types", PRICE_LIMIT=2**64)

from validator.primitives.errors import HandlerFailure  # noqa: E402
from validator.pvm.compiler.compiler import compile_program  # noqa: E402
from validator.pvm.compiler.programs import methods_of  # noqa: E402
from validator.pvm.language.subset import ProgramError, parse  # noqa: E402
from validator.pvm.runtime.machine import LoadedProgram  # noqa: E402
from validator.pvm.runtime.operations import shown_key  # noqa: E402
from validator.pvm.runtime.tasks import TaskQueue  # noqa: E402


def shape(value: Any, depth: int = 6) -> Any:
    """A value for comparing, cut off where it goes deep."""
    kind = type(value).__name__
    if not depth:
        return "…"
    if isinstance(value, list | tuple):
        return [kind, [shape(part, depth - 1) for part in value[:50]]]
    if isinstance(value, dict):
        return [kind, [[shape(shown_key(key)), shape(part, depth - 1)] for key, part in list(value.items())[:50]]]
    return [kind, str(value) if isinstance(value, str | int | None) else value.hex() if kind == "bytes" else ""]


def outcome(source: str, cycles: int) -> list[Any]:
    """The error, the cycles used and the result of a program's first handler; its problems where it is refused."""
    try:
        program = parse(source)
    except ProgramError as refused:
        return ["refused", [[problem.line, problem.column] for problem in refused.problems]]
    loaded = LoadedProgram(methods_of(program), compile_program(program))
    found: list[Any] = []
    context: Any = Context(cycles)
    error = ""
    name = program.handlers[0]

    async def first() -> None:
        found.append(await loaded.functions[name](0, None))

    def body() -> None:
        if program.methods[name].is_async:
            loaded.runtime.tasks = TaskQueue()
            loaded.runtime.tasks.run(first())
        else:
            found.append(loaded.functions[name](0, None))

    try:
        loaded.runtime.metered(context, body)
    except HandlerFailure as failure:
        error = failure.name
    return [error, context.cycles_used, shape(found)]


if __name__ == "__main__":
    json.dump([outcome(source, cycles) for source, cycles in json.load(sys.stdin)], sys.stdout)
