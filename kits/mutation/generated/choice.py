"""The choice of the code changes to try: on lines that ran, spread over modules, and determined by a seed."""

from __future__ import annotations

import ast
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput
from kits.mutation.generated.operators import Candidate, candidates
from kits.mutation.planting import MUTATED, module_name

COMPILERS: Final = {"numba", "validator.primitives.compiled"}
"""What a module imports that has functions for numba to compile."""


def module_paths(prefixes: Sequence[str] = (), root: Path = ROOT) -> list[str]:
    """Sorted paths of the modules that can be changed: those below one of ``prefixes``, or all if there are none.

    Modules that numba compiles are left out, and so are modules that they import from: numba would use its cached code
    in place of the changed source. Raises :class:`BadInput` if there is no module below a prefix.
    """
    every = sorted(path.relative_to(root).as_posix() for package in MUTATED for path in (root / package).rglob("*.py"))
    imported = {path: _imports((root / path).read_text(encoding="utf-8")) for path in every}
    kernels = [path for path in every if not COMPILERS.isdisjoint(imported[path])]
    behind = {name for path in kernels for name in imported[path]}
    possible = [path for path in every if path not in kernels and module_name(path) not in behind]
    for prefix in prefixes:
        if not any(_is_below(path, prefix) for path in possible):
            folders = ", ".join(f"{package}/" for package in MUTATED)
            raise BadInput(
                f"--only {prefix}: no module to change; expected a path in {folders} such as validator/scheduler"
            )
    return [path for path in possible if not prefixes or any(_is_below(path, prefix) for prefix in prefixes)]


def _is_below(path: str, prefix: str) -> bool:
    return Path(path).is_relative_to(prefix) if prefix else False


def _imports(source: str) -> set[str]:
    """Names of the modules that the source text of a module imports, and of their top-level packages."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names | {name.partition(".")[0] for name in names}


def all_candidates(paths: Iterable[str], root: Path = ROOT) -> list[Candidate]:
    """All possible changes of these modules."""
    return [one for path in paths for one in candidates(path, (root / path).read_text(encoding="utf-8"))]


def executed(every: Iterable[Candidate], lines: Mapping[str, Iterable[int]]) -> list[Candidate]:
    """The changes on lines that ran."""
    ran = {path: set(numbers) for path, numbers in lines.items()}
    return [one for one in every if one.line in ran.get(one.path, ())]


def draw(possible: Iterable[Candidate], count: int, seed: int) -> list[Candidate]:
    """Draw ``count`` changes (fewer if there are not as many), at most one per line of code.

    The modules take turns, and in a module the operators take turns, in an order drawn from the seed.
    """
    chance = random.Random(seed)
    modules: dict[str, list[Candidate]] = {}
    for one in sorted(possible):
        modules.setdefault(one.path, []).append(one)
    queues = {path: _mixed(modules[path], chance) for path in sorted(modules)}
    order = list(queues)
    chance.shuffle(order)
    drawn: dict[str, Candidate] = {}
    while len(drawn) < count and any(queues.values()):
        for path in order:
            left = queues[path]
            while left and left[0].place in drawn:
                left.popleft()
            if left and len(drawn) < count:
                one = left.popleft()
                drawn[one.place] = one
    return list(drawn.values())


def _mixed(ones: Iterable[Candidate], chance: random.Random) -> deque[Candidate]:
    """The changes of one module in the order in which they are drawn: operators take turns, in random order."""
    kinds: dict[str, list[Candidate]] = {}
    for one in ones:
        kinds.setdefault(one.operator, []).append(one)
    for each in kinds.values():
        chance.shuffle(each)
    order = sorted(kinds)
    chance.shuffle(order)
    turns = zip_longest(*(kinds[kind] for kind in order))
    return deque(one for turn in turns for one in turn if one is not None)
