"""A stub that tells editors which names programs may use, made from the actor VM's table of names.

Pyright and Pylance treat declarations in a ``__builtins__.pyi`` in their root as builtins. So programs need no imports,
which the language does not have, and authors get completion and checking of host calls.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

from validator.pvm.language.api import BASE, BUILTINS, CONSTANTS, ERROR, HOST_CALLS, HOST_READS, TASK_CALLS, Signature
from validator.pvm.runtime.hostcalls import HostCalls

HEAD: Final = '''\
"""Names that programs of actors may use, for editors (https://github.com/microsoft/pyright/blob/main/docs/builtin-types.md).

Written by `stampede actor stub`; docs/actors.md describes the language.
"""

from collections.abc import Awaitable as _Awaitable
from collections.abc import Coroutine as _Coroutine
from collections.abc import Iterable as _Iterable
from typing import Any as _Any
from typing import Final as _Final
from typing import TypeVar as _TypeVar

_T = _TypeVar("_T")
_Value = _Any  # None, bool, int, str, bytes, list, tuple or dict
'''
TASKS: Final[dict[str, str]] = {
    "spawn": '''\
    def spawn(self, work: _Coroutine[_Any, _Any, _T], /) -> _Awaitable[_T]:
        """Start an async method of this actor as a task, which may be awaited: self.spawn(self.method(…))."""
''',
    "pause": '''\
    async def pause(self) -> None:
        """Let all other tasks that are ready go first: await self.pause()."""
''',
}
FUNCTIONS: Final[dict[str, str]] = {
    "keccak256": '''\
def keccak256(data: bytes, /) -> bytes:
    """The 32 bytes of the hash."""
''',
    "sorted": '''\
def sorted(values: _Iterable[_T], descending: bool = False, /) -> list[_T]:
    """A new list: of numbers, texts, bytes, or tuples of these, all of one kind."""
''',
}
"""Stubs of the language's functions that Python lacks or has with other parameters, keyed by name."""


def stub_text() -> str:
    """The text of the whole stub file."""
    assert set(TASKS) == TASK_CALLS and set(FUNCTIONS) <= set(BUILTINS), "the table of names has changed"
    constants = "".join(f'{name}: _Final = "{value}"\n' for name, value in CONSTANTS.items())
    tiers = '"""A tier of a timer\'s priority, as schedule takes it."""\n'
    functions = "\n".join(FUNCTIONS.values())
    return "\n".join([HEAD, constants + tiers, functions, _error(), _base()])


def _error() -> str:
    return f'''\
class {ERROR}(Exception):
    """Ends the handler and reverts everything that it did: raise {ERROR}("why")."""

    def __init__(self, why: str = "", /) -> None: ...
'''


def _base() -> str:
    purpose = "What every program derives from; a handler is a method whose one parameter is payload."
    parts = [f'class {BASE}:\n    """{purpose}"""\n']
    for name, (kind, meaning) in HOST_READS.items():
        parts.append(f'    @property\n    def {name}(self) -> {kind}:\n        """{meaning}"""\n')
    parts += [_method(name, signature) for name, signature in HOST_CALLS.items()]
    parts += TASKS.values()
    return "\n".join(parts)


def _method(name: str, signature: Signature) -> str:
    """The stub of a host call, as a method with the default arguments of its implementation."""
    defaults = inspect.signature(getattr(HostCalls, name)).parameters
    parameters = ["self"]
    for parameter, kind in zip(signature.parameters, signature.annotations, strict=True):
        default = defaults[parameter].default
        given = "" if default is inspect.Parameter.empty else f" = {_literal(default)}"
        parameters.append(f"{parameter}: {_kind(kind)}{given}")
    head = f"    def {name}({', '.join(parameters)}) -> {_kind(signature.result)}:"
    if len(head) > LINE_LENGTH:
        lines = "".join(f"        {parameter},\n" for parameter in parameters)
        head = f"    def {name}(\n{lines}    ) -> {_kind(signature.result)}:"
    return f'{head}\n        """{signature.purpose}"""\n'


LINE_LENGTH: Final = 120


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kind(annotation: str) -> str:
    return re.sub(r"\bValue\b", "_Value", annotation)
