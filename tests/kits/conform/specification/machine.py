"""Bugs made from the text of ``spec/``, and which of them the default corpus of ``stampede conform`` catches.

``python -m tests.kits.conform.specification.machine --seeds 0:20 --out survivors.json`` changes one operator, constant
or statement at a time (:mod:`kits.mutation.generated.operators`, and arithmetic), answers the cases that reach the
changed function by the changed specification, and stops at the first answer that differs. A bug that makes a case crash
or last too long is caught. ``--every N --from I`` takes the N-th part of the bugs that begins with bug I.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from cluster.common.checkout import ROOT
from kits.conform.case import Reference
from kits.conform.families import encodings
from kits.conform.families.table import TABLE
from kits.conform.source import GeneratedCases
from kits.conform.t8n_by_spec import answer_and_rules
from kits.conform.t8n_input import InputBlock, blocks_of, genesis_of
from kits.mutation.generated.operators import candidates
from tests.kits.conform.specification.mutants import AFRESH
from tests.kits.conform.text_patch import TextPatch
from validator.chain.genesis import Genesis

MOST_TIMES_LONGER: Final = 50
LEAST_LIMIT_S: Final = 5
MOST_WITH_ROOTS_S: Final = 0.05
OF_ROOTS: Final = frozenset({"spec/leaves.py", "spec/tree.py"})
"""Modules that only state roots depend on."""
Place = tuple[str, int]
"""A function: its file and its first line."""
ARITHMETIC: Final[dict[type[ast.operator], str]] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Mod: "//"}


@dataclass(frozen=True, slots=True)
class Bug:
    """A change of one module of the specification."""

    path: str
    line: int
    what: str
    source: str
    """The changed text of the module."""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(slots=True)
class Prepared:
    """A case, ready to be answered."""

    reference: Reference
    genesis: Genesis
    blocks: list[InputBlock]
    expected: str = ""
    seconds: float = 0.0
    reached: set[Place] = field(default_factory=set)
    has_roots: bool = False
    """Whether the answer has state roots, which take long."""

    def answer(self) -> str:
        """The answer of the specification that is imported now."""
        answers = importlib.import_module("kits.conform.t8n_by_spec")
        if self.has_roots:
            return json.dumps(answers.answer_of(self.genesis, self.blocks), sort_keys=True)
        return json.dumps(answers.answer_and_rules(self.genesis, self.blocks)[0], sort_keys=True)


def bugs_of(path: str, source: str) -> Iterator[Bug]:
    """All changes of a module, without those of marks (``world.reached``), on which no answer depends."""
    lines = source.splitlines()
    return (bug for bug in _changes(path, source) if "reached(" not in lines[bug.line - 1])


def _changes(path: str, source: str) -> Iterator[Bug]:
    for each in candidates(path, source):
        yield Bug(path, each.line, each.diff(source).strip(), each.applied(source))
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in range(len(lines))]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.BinOp) or "f'" in ast.unparse(node):
            continue
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.op, ast.FloorDiv):
            text = f"(-(-({left}) // ({right})))"
        elif type(node.op) in ARITHMETIC:
            text = f"(({left}) {ARITHMETIC[type(node.op)]} ({right}))"
        else:
            continue
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        text += "\n" * (node.end_lineno - node.lineno)  # in parentheses: lines keep their numbers
        data = source.encode()
        changed = (data[:start] + text.encode() + data[end:]).decode()
        yield Bug(path, node.lineno, f"{ast.unparse(node)} -> {text.strip()}", changed)


def functions_of(source: str) -> list[tuple[int, int]]:
    """First and last lines of the functions of a module, those inside others last; decorators belong to them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node.end_lineno is not None:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            found.append((first, node.end_lineno))
    return sorted(found)


ABOUT_BLOCKS: Final = tuple(name for name in TABLE.families if name not in encodings.family.families)


def prepared(seeds: range, names: tuple[str, ...] = ABOUT_BLOCKS) -> list[Prepared]:
    """The cases of a range of seeds, with their answers and the functions that they reach."""
    found = []
    for reference in GeneratedCases(names, seeds).references():
        case, _ = TABLE.families[reference.family].case(reference.number)
        genesis = genesis_of(case.genesis)
        each = Prepared(reference, genesis, blocks_of(case.blocks, genesis))
        codes: set[Any] = set()

        def note(frame: FrameType, event: str, _: Any, codes: set[Any] = codes) -> None:
            if event == "call":
                codes.add(frame.f_code)

        sys.setprofile(note)
        try:
            answer_and_rules(each.genesis, each.blocks)
        finally:
            sys.setprofile(None)
        begin = time.process_time()
        each.expected = each.answer()
        each.seconds = time.process_time() - begin
        each.reached = {(code.co_filename, code.co_firstlineno) for code in codes}
        found.append(each)
    return found


def order(cases: list[Prepared]) -> list[Prepared]:
    """The cases, with one of each family first, the cheapest ones before others."""
    rounds: defaultdict[str, int] = defaultdict(int)
    placed = []
    for each in sorted(cases, key=lambda case: case.seconds):
        placed.append((rounds[each.reference.family], each.seconds, each))
        rounds[each.reference.family] += 1
    return [each for _, _, each in sorted(placed, key=lambda item: item[:2])]


def with_roots(cases: list[Prepared]) -> list[Prepared]:
    """The first case of each family with the state roots in its answer, the cheapest ones first."""
    first = {case.reference.family: case for case in reversed(cases)}
    chosen = [replace(case, has_roots=True) for case in first.values() if case.seconds < MOST_WITH_ROOTS_S]
    for case in chosen:
        case.expected = case.answer()
    return sorted(chosen, key=lambda case: case.seconds)


def _too_long(*_: Any) -> None:
    raise TimeoutError


def caught_by(bug: Bug, cases: list[Prepared]) -> str | None:
    """The case that catches a bug, with how; ``None`` if none does."""
    source = (ROOT / bug.path).read_text(encoding="utf-8")
    patch = TextPatch(bug.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"), source, bug.source)
    try:
        with patch.in_module(AFRESH):
            for case in cases:
                signal.alarm(LEAST_LIMIT_S + int(MOST_TIMES_LONGER * case.seconds))
                try:
                    is_same = case.answer() == case.expected
                finally:
                    signal.alarm(0)
                if not is_same:
                    return case.reference.name
    except Exception as error:  # noqa: BLE001 (whatever the changed code does is no answer)
        return f"it fails: {type(error).__name__}"
    return None


def measure(seeds: range, every: int, first: int, out: Path, names: tuple[str, ...] = ABOUT_BLOCKS) -> None:
    """Try the bugs; write those that survive, and print the share that is caught."""
    signal.signal(signal.SIGALRM, _too_long)
    cases = order(prepared(seeds, names))
    rooted = with_roots(cases)
    bugs: list[tuple[Bug, list[tuple[int, int]]]] = []
    for path in sorted((ROOT / "spec").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        places = functions_of(source)
        bugs += [(bug, places) for bug in bugs_of(str(path.relative_to(ROOT)), source)]
    chosen, survivors = bugs[first::every], []
    for number, (bug, places) in enumerate(chosen, 1):
        around = [first for first, last in places if first <= bug.line <= last]
        place = (str(ROOT / bug.path), around[0]) if around else None
        reaching = [case for case in cases if place is None or place in case.reached]
        how = caught_by(bug, rooted if bug.path in OF_ROOTS else reaching)
        if how is None:
            survivors.append({"bug": bug.name, "what": bug.what, "cases": len(reaching)})
        page = {"tried": number, "of": len(bugs), "survivors": survivors}
        out.write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} bugs caught by {len(cases)} cases")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:20")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    begin, _, end = given.seeds.partition(":")
    measure(range(int(begin), int(end)), given.every, given.first, given.out)


if __name__ == "__main__":
    main()
