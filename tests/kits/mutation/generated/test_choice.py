"""Which changes are drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput
from kits.mutation.generated.choice import all_candidates, draw, executed, module_paths
from kits.mutation.generated.operators import Candidate, Operator
from tests.hangs import HANGS_AFTER_S

SOURCES = {
    "consensus/__init__.py": "",
    "consensus/votes.py": "a = 1\nif a < 2:\n    f(a, 3)\n",
    "validator/kernels.py": "import numba\nfrom validator.rows import b\na = 1\n",
    "validator/order.py": "from validator.primitives.compiled import compiled\nfrom validator.rows import b\n",
    "validator/rows.py": "a = 1\n",
    "validator/state/store.py": "a = 1\nb = 2\nc = 3\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, source in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    return tmp_path


def test_compiled_modules_and_what_they_import_are_left_out(tree: Path) -> None:
    assert module_paths((), tree) == ["consensus/__init__.py", "consensus/votes.py", "validator/state/store.py"]
    assert module_paths(("validator/",), tree) == ["validator/state/store.py"]
    assert module_paths(("validator/state/store.py",), tree) == ["validator/state/store.py"]
    with pytest.raises(BadInput, match="--only validator/rows: no module to change; expected a path in consensus/, "):
        module_paths(("validator/rows",), tree)


def test_of_the_code_itself_the_kernels_are_left_out() -> None:
    paths = module_paths()
    assert "validator/scheduler/calendar.py" in paths
    assert not {
        "validator/state/engines/kernels.py",
        "validator/scheduler/order.py",
        "validator/scheduler/overflow.py",
    } & set(paths)


def test_only_lines_that_ran_are_drawn(tree: Path) -> None:
    every = all_candidates(module_paths((), tree), tree)
    ran = executed(every, {"consensus/votes.py": [2], "validator/state/store.py": [1, 3]})
    assert {one.place for one in ran} == {"consensus/votes.py:2", *(f"validator/state/store.py:{n}" for n in (1, 3))}
    assert executed(every, {}) == []


def test_modules_and_operators_take_turns_and_no_line_is_drawn_twice() -> None:
    def one(path: str, line: int, operator: Operator) -> Candidate:
        return Candidate(path, line, line, line + 1, operator, "x")

    many = [one("a.py", line, Operator.CONSTANT) for line in range(20)] + [one("a.py", 30, Operator.LOGIC)]
    twice = [one("b.py", 1, operator) for operator in Operator]
    drawn = draw([*many, *twice], 4, 0)
    assert sorted(each.path for each in drawn) == ["a.py", "a.py", "a.py", "b.py"]
    assert {each.operator for each in drawn if each.path == "a.py"} == {Operator.CONSTANT, Operator.LOGIC}
    assert len(draw([*many, *twice], 100, 0)) == len(many) + 1
    assert draw(many[::-1], 5, 3) == draw(many, 5, 3) != draw(many, 5, 4)


DRAW = """
from kits.mutation.generated.choice import all_candidates, draw, module_paths
print([one.place for one in draw(set(all_candidates(module_paths(["consensus"]))), 9, 1)])
"""


@pytest.mark.slow
def test_the_draw_does_not_depend_on_hash_seeds() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", DRAW],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("consensus/") == 9
