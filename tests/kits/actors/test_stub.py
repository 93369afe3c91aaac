"""The editor's stub: up to date, valid, and saying the same as the check."""

from __future__ import annotations

import ast
from pathlib import Path

from mypy import api

from cluster.commands.cli.main import main
from kits.actors.stub import stub_text
from tests.kits.actors.programs import BUSY, COUNTER
from tests.kits.actors.reference import STUB
from validator.pvm.language.api import BASE, CONSTANTS, ERROR, HOST_CALLS, HOST_READS, TASK_CALLS

MISTAKES = """
class Mistakes(Actor):
    def start(self, payload):
        self.schedule("soon")
        self.gett("key")
        self.height = 3
        self.send(b"", "handler", None, None, None, None)
        self.transfer(self.sender)
        keccak256("text")
        raise ActorError(3)
"""


def test_the_committed_stub_is_up_to_date(tmp_path: Path) -> None:
    assert STUB.read_text(encoding="utf-8") == stub_text(), "write it anew: python -m tests.kits.actors.reference"
    assert main(["actor", "stub", "--out", str(tmp_path / "stub.pyi")]) == 0
    assert (tmp_path / "stub.pyi").read_text(encoding="utf-8") == stub_text()


def test_the_stub_has_all_names_and_no_others() -> None:
    tree = ast.parse(stub_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    targets = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    constants = {target.id for target in targets if isinstance(target, ast.Name)}
    assert set(classes) == {BASE, ERROR} and constants == set(CONSTANTS) and "keccak256" in functions
    methods = {node.name for node in classes[BASE].body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert methods == {*HOST_CALLS, *HOST_READS, *TASK_CALLS}


def test_programs_type_check_with_the_stub_and_mistakes_do_not(tmp_path: Path) -> None:
    """mypy reads no ``__builtins__.pyi`` of its own accord, so the programs import the stub under another name."""
    (tmp_path / "stub.pyi").write_text(stub_text(), encoding="utf-8")
    for name, source in (("fine", COUNTER), ("busy", BUSY), ("mistakes", MISTAKES)):
        (tmp_path / f"{name}.py").write_text(f"from stub import *{source}", encoding="utf-8")
    options = ["--config-file=", "--cache-dir", str(tmp_path / "cache"), "--check-untyped-defs", "--no-error-summary"]
    said, broken, _ = api.run([*options, *map(str, sorted(tmp_path.glob("*.py*")))])
    assert not broken
    found = [line.partition(": ")[0].removeprefix(str(tmp_path)) for line in said.splitlines() if ": error: " in line]
    assert [place.rpartition("mistakes.py:")[2] for place in found] == ["4", "5", "6", "7", "8", "9", "10"], said
