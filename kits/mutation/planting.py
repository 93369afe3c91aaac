"""How bugs are planted in a process: a value or a module in place of the original. Lines that run are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from inspect import getattr_static
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from cluster.common.checkout import ROOT

MUTATED: Final = ("consensus", "validator")
"""The packages whose modules can be changed."""


class _ChangedLoader(SourceFileLoader):
    """Loads one module from a text. It does not read the module's file, and keeps no bytecode."""

    def __init__(self, module: str, file: str, source: str) -> None:
        super().__init__(module, file)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class ChangedModule(MetaPathFinder):
    """Import finder for one module: it supplies the changed source, and leaves all other modules to other finders."""

    def __init__(self, path: str, source: str) -> None:
        """``path`` is the module's path relative to the root of the code. ``source`` is its changed source text."""
        self._file = str(ROOT / path)
        self._module = module_name(path)
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _ChangedLoader(fullname, self._file, self._source)
        return spec_from_file_location(fullname, self._file, loader=loader)


def module_name(path: str) -> str:
    """The dotted name of the module at a path relative to the root of the code."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def plant(path: str, source: str) -> None:
    """Let this process import a changed module. No module of :data:`MUTATED` may be imported yet."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in MUTATED]
    assert not loaded, f"{loaded[0]} is imported already"
    sys.meta_path.insert(0, ChangedModule(path, source))


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have another value of an attribute within the block."""
    original = getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


class LineRecorder:
    """Records the lines of the code that run in this process."""

    def __init__(self, root: Path = ROOT) -> None:
        self._prefixes = tuple(f"{root / package}/" for package in MUTATED)
        self._root = root
        self._tracers: dict[int, tuple[CodeType, Callable[..., Any] | None]] = {}
        """Code object and trace function of each function, keyed by ``id`` of the code object: code objects of two
        files may be equal. The trace function is ``None`` once all lines ran."""
        self._ran: dict[str, set[int]] = {}

    @property
    def ran(self) -> dict[str, list[int]]:
        """The line numbers that ran, sorted, keyed by path relative to the root of the code."""
        return {str(Path(file).relative_to(self._root)): sorted(lines) for file, lines in sorted(self._ran.items())}

    def start(self) -> None:
        """Record lines from the next function call on."""
        sys.settrace(self._enter)

    def stop(self) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self._prefixes):
            return None
        if id(code) not in self._tracers:
            self._tracers[id(code)] = code, self._tracer(code)
        return self._tracers[id(code)][1]

    def _tracer(self, code: CodeType) -> Callable[..., Any]:
        ran = self._ran.setdefault(code.co_filename, set())
        left = {line for _, _, line in code.co_lines() if line}

        def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
            if event != "line":
                return trace
            ran.add(frame.f_lineno)
            left.discard(frame.f_lineno)
            if not left:
                self._tracers[id(code)] = code, None
            return trace

        return trace
