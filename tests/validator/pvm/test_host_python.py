"""How Python was started changes nothing that a program does, or it runs none."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tests.validator.pvm.attacks import running_program
from tests.validator.pvm.pythons import ROOT, answers, here
from tests.validator.pvm.running import program, run
from validator.pvm import host_python
from validator.pvm.compiler import programs
from validator.pvm.compiler.programs import compiled
from validator.pvm.host_python import FRAMES_NEEDED, UnfitPython
from validator.pvm.runtime.machine import Runtime

NOTICED = (
    "return [b'a' == 'a', 'a' != b'a', b'a' in ['a'], payload == b'', {'a': 1, b'a': 2}[b'a'], {b'k': 1}.get('k')]",
    "d = {str(i): i for i in range(99)}\nd.update({b: 1 for b in [str(i).encode() for i in range(99)]})\nreturn len(d)",
    "assert 1 == 2, 'always'",
    "assert (1, 'always')\nreturn '\\d' + '\\q'",
    "return [~True, int('9' * 77), str(2 ** 255), 5 is None, len('9' * 5000)]",
    "x = []\ny = []\nfor i in range(60):\n    x = [x]\n    y = [y]\nreturn self.deep(50, x, y)",
    "return " + "+" * 70 + "1",
)
"""Bodies that would notice: bytes beside texts, assertions, odd escapes, long numbers, deep calls and texts."""
DEEP = "def deep(self, n, x, y):\n    if n:\n        return self.deep(n - 1, x, y)\n    return x == y and x <= y"
TABLE = [[program(body, DEEP), 10**6] for body in NOTICED] + [
    [running_program(name), 10**6] for name in ("recursion", "async recursion", "digits", "numbers from texts")
]


@pytest.fixture(scope="module")
def plain() -> object:
    found = answers(here(), "elsewhere.py", TABLE, flags=())
    assert [error for error, *_ in found[: len(NOTICED)]] == ["", "", "ActorError: always", "", "", "", ""]
    return found


FLAGS = {
    "warnings are errors": ("-W", "error"),
    "warnings are shown": ("-W", "always"),
    "no assertions": ("-O",),
    "no assertions, no docstrings": ("-OO",),
    "few digits": ("-X", "int_max_str_digits=640"),
    "any digits": ("-X", "int_max_str_digits=0"),
    "development mode": ("-X", "dev"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_changes_nothing(name: str, plain: object) -> None:
    assert answers(here(), "elsewhere.py", TABLE, flags=FLAGS[name]) == plain


FRAMES_BETWEEN = 20
"""From a test to where the frames are asked for."""
ASKED = 'from tests.validator.pvm import running; {}; print(running.value_of(\'return b"a" == "a"\'))'


def refused(code: str, *flags: str) -> str:
    """The last line of what a Python says that runs no program."""
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr.splitlines()[-1].removeprefix("validator.pvm.host_python.UnfitPython: ")


@pytest.mark.parametrize("flag", ["-b", "-bb"])
def test_a_python_that_tells_bytes_from_texts_aloud_runs_no_program(flag: str) -> None:
    assert refused(ASKED.format("pass"), flag) == (
        "Python was started with -b, which makes a comparison of bytes with a text warn or fail: start it without -b"
    )


def test_a_python_with_few_frames_runs_no_program() -> None:
    assert refused(ASKED.format("import sys; sys.setrecursionlimit(200)")) == (
        "Python's recursion limit leaves less than 400 frames to programs: leave it at 1,000"
    )


def test_what_is_asked_for_is_enough() -> None:
    """The deepest program of all runs in the frames that must be left."""
    before, depth = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(depth + FRAMES_NEEDED + FRAMES_BETWEEN)
    try:
        assert run(program(NOTICED[-2], DEEP)).error == ""
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("start", [Runtime, lambda: compiled(program("pass"))])
def test_neither_compiling_nor_running_begins_there(start: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_python, "_tells_bytes_from_texts", lambda: True)
    programs._kept.clear()
    with pytest.raises(UnfitPython, match="started with -b, "):
        start()  # type: ignore[operator]
