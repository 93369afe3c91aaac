"""Rules of texts: what pure code may not do, what tests may not do, and what no file may say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.repository.rule import Finding, Rule
from tests.repository.sources import is_pure, is_python, is_test, name_of, parsed, touches_nothing

IMPURE_CALLS = frozenset({"breakpoint", "eval", "exec", "id", "input", "open", "print"})

INDEX_ADDRESS = re.compile(
    r"--(?:extra-)?index[-]url\b|--find[-]links\b|\b(?:PIP|UV)_\w*INDEX\w*\s*=|resolved\s\"?https?:|\bregistry\s*=\s*\"?https?:"
)

USERS_POLICIES = "validator/policies/own.py"
"""The one module that executes a user's text."""

HOME_PATH = re.compile(r"(?<![\w.~}-])/(?:home|root|Users|work)/[\w.]")


def pure_code_has_no_floats(path: str, source: str) -> Iterator[Finding]:
    """No float takes part in consensus: no literal, no true division, no conversion."""
    for node in parsed(source)[1]:
        match node:
            case ast.Constant(value=float() | complex()):
                yield node.lineno, f"float literal {node.value!r}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield node.lineno, "true division"
            case ast.Call(func=ast.Name(id="float" | "complex" as name)):
                yield node.lineno, f"call of {name}()"


def pure_code_calls_nothing_impure(path: str, source: str) -> Iterator[Finding]:
    """No ``open``, ``print``, ``id`` …; and no ``hash``, which differs from process to process, but in ``__hash__``."""
    nodes = parsed(source)[1]
    inside = {
        id(node)
        for function in nodes
        if isinstance(function, ast.FunctionDef) and function.name == "__hash__"
        for node in ast.walk(function)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            is_allowed = name == "exec" and path == USERS_POLICIES
            if (name in IMPURE_CALLS and not is_allowed) or (name == "hash" and id(node) not in inside):
                yield node.lineno, f"call of {name}()"


def failures_are_named(path: str, source: str) -> Iterator[Finding]:
    """No bare ``except``."""
    for node in parsed(source)[1]:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except"


def is_program(path: str) -> bool:
    """Whether a file is the program of an actor: in another language, which looks like this one."""
    return path.startswith("actors/")


def modules_say_what_they_are(path: str, source: str) -> Iterator[Finding]:
    """Every module that holds anything has a docstring; an actor's program says it in its class."""
    tree: ast.Module | ast.ClassDef = parsed(source)[0]
    if tree.body and is_program(path) and isinstance(tree.body[0], ast.ClassDef):
        tree = tree.body[0]
    if tree.body and ast.get_docstring(tree) is None:
        yield 1, "no module docstring"


def suites_never_sleep(path: str, source: str) -> Iterator[Finding]:
    """Tests advance a clock, or wait for an event."""
    for node in parsed(source)[1]:
        if isinstance(node, ast.Call) and name_of(node.func) == "sleep":
            yield node.lineno, "sleeps"


def suites_can_fail(path: str, source: str) -> Iterator[Finding]:
    """No assertion of a constant, no test that is skipped for good."""
    for node in parsed(source)[1]:
        match node:
            case ast.Assert(test=ast.Constant(value=value)) if value:
                yield node.lineno, f"asserts {value!r}"
            case ast.Assert(test=ast.Tuple(elts=[_, *_])):
                yield node.lineno, "asserts a tuple"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                decorators = [ast.unparse(each) for each in node.decorator_list]
                if any(re.match(r"pytest\.mark\.skip\b(?!if)", each) for each in decorators):
                    yield node.lineno, "is skipped for good"


def texts_name_no_package_index(path: str, source: str) -> Iterator[Finding]:
    """Which index packages come from is the user's configuration."""
    yield from _lines_with(INDEX_ADDRESS, source, "names a package index")


def texts_name_no_home(path: str, source: str) -> Iterator[Finding]:
    """No path that exists on one machine only."""
    yield from _lines_with(HOME_PATH, source, "absolute path of a machine")


def _lines_with(pattern: re.Pattern[str], source: str, reason: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), start=1):
        if found := pattern.search(line):
            yield number, f"{reason}: {found[0]}"


# --- planted faults --------------------------------------------------------------------------------------------------

SLEEP = "sleep"

INDEX = "--index" + "-url"

HOME = "/" + "home"

RULES = (
    Rule(
        pure_code_has_no_floats,
        is_pure,
        faults=(
            ("validator/a.py", "share = 0.5"),
            ("validator/a.py", "def f(a=1e3): ..."),
            ("validator/a.py", "x = a / b"),
            ("validator/a.py", "x /= 2"),
            ("validator/a.py", "x = float(y)"),
            ("validator/a.py", "x = 1j"),
        ),
        fine=(("validator/a.py", '"""0.5 / 2"""\nx = a // b\nx //= 2\ny = 10**24\nz: float'),),
    ),
    Rule(
        pure_code_calls_nothing_impure,
        touches_nothing,
        faults=(
            ("cluster/run/a.py", "open('state')"),
            ("validator/a.py", "open('state')"),
            ("validator/a.py", "print(1)"),
            ("validator/a.py", "order = sorted(timers, key=lambda timer: hash(timer))"),
            ("validator/a.py", "order = id(timer)"),
            ("validator/a.py", "exec(text)"),
        ),
        fine=(
            (USERS_POLICIES, "exec(text)"),
            ("validator/a.py", "disk.open('state')\nclass A:\n    def __hash__(self):\n        return hash(self.key)"),
        ),
    ),
    Rule(
        failures_are_named,
        is_python,
        faults=(("a.py", "try:\n    f()\nexcept:\n    raise"),),
        fine=(("a.py", "try:\n    f()\nexcept ValueError:\n    pass"),),
    ),
    Rule(
        modules_say_what_they_are,
        is_python,
        faults=(("a.py", "x = 1"), ("actors/a.py", "class A(Actor):\n    x = 1")),
        fine=(
            ("actors/a.py", 'class A(Actor):\n    """What it is."""'),
            ("a.py", ""),
            ("a.py", '"""What it is."""\nx = 1'),
        ),
    ),
    Rule(
        suites_never_sleep,
        is_test,
        faults=(
            ("tests/a.py", f"import time\ntime.{SLEEP}(1)"),
            ("tests/a.py", f"from time import {SLEEP}\n{SLEEP}(0.1)"),
            ("tests/a.py", f"async def test_a():\n    await asyncio.{SLEEP}(0)"),
            ("tests/a.py", f"gevent.{SLEEP}()"),
        ),
        fine=(("tests/a.py", "clock.advance(1)\nprocess.wait(timeout=5)"),),
    ),
    Rule(
        suites_can_fail,
        is_test,
        faults=(
            ("tests/a.py", "def test_a():\n    assert " + "True"),
            ("tests/a.py", "assert 1"),
            ("tests/a.py", "assert (x == 1, 'x is wrong')"),
            ("tests/a.py", "@pytest.mark." + "skip\ndef test_a(): ..."),
            ("tests/a.py", "@pytest.mark." + "skip(reason='later')\nclass TestA: ..."),
        ),
        fine=(
            (
                "tests/a.py",
                "@pytest.mark.skipif(x, reason='no Chromium')\ndef test_a():\n    assert x\n    assert False",
            ),
        ),
    ),
    Rule(
        texts_name_no_package_index,
        lambda path: True,
        faults=(
            ("requirements.lock", f"{INDEX} https://example.org/simple"),
            ("Makefile", "pip install --find" + "-links wheels -r requirements.lock"),
            ("k8s/Dockerfile", "ENV PIP_INDEX" + "_URL=https://example.org/simple"),
            ("package-lock.json", "resolved" + ' "https://example.org/a.tgz"'),
        ),
        fine=(("Makefile", "uv pip compile --no-emit-index-url pyproject.toml"),),
    ),
    Rule(
        texts_name_no_home,
        lambda path: True,
        faults=(
            ("README.md", f"cd {HOME}/somebody/stampede"),
            ("a.py", f"'{HOME}/a'"),
            ("a.py", "'/" + "root/.cache'"),
        ),
        fine=(("README.md", f"https://example.org{HOME}/page, ~{HOME}/a and /tmp/x"),),
    ),
)
