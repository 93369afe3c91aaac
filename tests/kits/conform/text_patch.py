"""Bugs that are planted by a change of text, in the validator or in the specification."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import getsource
from typing import Any

from cluster.common.checkout import ROOT
from kits.mutation.planting import ChangedModule, replaced


@dataclass(frozen=True, slots=True)
class TextPatch:
    """A change of the source of a module or of one function: a text in it, and what is there in its place."""

    where: str
    """``package.module`` or ``package.module:Class.function``. A function's text is without indentation."""
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The changed source. The old text must be in it exactly once."""
        assert source.count(self.old) == 1, f"{source.count(self.old)} times in {self.where}: {self.old!r}"
        return source.replace(self.old, self.new)

    @contextmanager
    def in_function(self) -> Iterator[None]:
        """Have the changed function within the block, wherever it was imported by its package."""
        module_name, _, path = self.where.partition(":")
        owner: Any = import_module(module_name)
        module, (*classes, name) = owner, path.split(".")
        for each in classes:
            owner = getattr(owner, each)
        original = vars(owner)[name]
        function: Any = original.fget if isinstance(original, property) else original
        scope: dict[str, Any] = {}
        # Names are looked up in the module as before, so the copy runs with the module's globals.
        code = compile(
            "from __future__ import annotations\n" + self.applied(textwrap.dedent(getsource(function))),
            self.where,
            "exec",
        )
        exec(code, vars(module), scope)
        package = f"{module_name.partition('.')[0]}."
        importing = [each for key, each in list(sys.modules.items()) if key.startswith(package)]
        holders = [each for each in importing if vars(each).get(name) is original] if owner is module else [owner]
        with ExitStack() as planted:
            for holder in holders:
                planted.enter_context(replaced(holder, name, scope[name]))
            yield

    @contextmanager
    def in_module(self, afresh: Sequence[str]) -> Iterator[None]:
        """Have the changed module within the block. Modules whose names begin with one of ``afresh`` are imported
        again."""
        path = f"{self.where.replace('.', '/')}.py"
        finder = ChangedModule(path, self.applied((ROOT / path).read_text(encoding="utf-8")))
        prefixes = tuple(afresh)
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(prefixes)}
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.startswith(prefixes)]:
                del sys.modules[name]
            sys.modules.update(kept)
