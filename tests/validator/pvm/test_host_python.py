"""How Python was started changes nothing that a program does, or it runs none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.validator.pvm.attacks import running_program
from tests.validator.pvm.pythons import ROOT, answers, here
from tests.validator.pvm.running import program
from validator.pvm import host_python, programs
from validator.pvm.host_python import UnfitPython
from validator.pvm.machine import Runtime
from validator.pvm.programs import compiled

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


def test_a_low_recursion_limit_changes_nothing(plain: object) -> None:
    assert answers(here(), "elsewhere.py", TABLE, flags=(), arguments=["150"]) == plain


@pytest.mark.parametrize("flag", ["-b", "-bb"])
def test_a_python_that_tells_bytes_from_texts_aloud_runs_no_program(flag: str) -> None:
    code = 'from tests.validator.pvm import running; print(running.value_of(\'return b"a" == "a"\'))'
    done = subprocess.run([sys.executable, flag, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        f"validator.pvm.host_python.UnfitPython: Python was started with {flag}, which makes a comparison of bytes "
        f"with a text fail or warn: start it without {flag}"
    )


@pytest.mark.parametrize("start", [Runtime, lambda: compiled(program("pass"))])
def test_neither_compiling_nor_running_begins_there(start: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flags:
        bytes_warning = 1

    monkeypatch.setattr(host_python.sys, "flags", Flags)
    programs._kept.clear()
    with pytest.raises(UnfitPython, match="started with -b, "):
        start()  # type: ignore[operator]
