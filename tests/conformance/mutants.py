"""Small falsifications of the specification, one rule each: `(name, module, text in it, what stands there instead)`.

A rule that can be broken without any default case noticing is a rule that the comparison does not check. The generator
is good enough when every one of these changes the answer to some default case.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.repository.sources import ROOT

MUTANTS: list[tuple[str, str, str, str]] = [
    ("nonce not raised", "spec.block", "world.put(world.nonce, sender, transaction.nonce + 1)", "pass"),
    ("cell fee not checked", "spec.block", "transaction.max_fee_per_cell < world.basefee_cell", "False"),
    ("failed handler keeps effects", "spec.runs", "        world.back(mark)\n", "        pass\n"),
    ("upper median tip", "spec.fees", "ascending[(len(ascending) - 1) // 2]", "ascending[len(ascending) // 2]"),
    ("starving a block later", "spec.policies.gba_auction", "timer.trigger_height < p[", "timer.trigger_height <= p["),
]


AFRESH = ("spec", "cluster.audit.specified", "cluster.tools.inspect.t8n_by_spec", "tests.conformance.compare")
"""What is imported anew for a mutant: the specification, and what answers by it."""


class _Mutated(MetaPathFinder, Loader):
    """Finder and loader of one module with another text."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(self, name: str, *_others: Any) -> Any:
        return spec_from_loader(name, self) if name == self._name else None

    def create_module(self, _found: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"{self._name} mutated", "exec"), module.__dict__)


@contextmanager
def mutated(module: str, old: str, new: str) -> Iterator[Callable[..., Any]]:
    """What answers by the specification with one text replaced, which must stand in the module exactly once."""
    source = Path(ROOT, *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{source.count(old)} times in {module}: {old!r}"
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(AFRESH)}
    finder = _Mutated(module, source.replace(old, new))
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("tests.conformance.compare").specs_answer
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(AFRESH)]:
            del sys.modules[name]
        sys.modules.update(kept)
