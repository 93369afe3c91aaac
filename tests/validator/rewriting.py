"""Functions with a fault in them: other words in their source."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest


def rewrite(patched: pytest.MonkeyPatch, function: Callable[..., Any], old: str, new: str) -> None:
    """Put a changed text of a function, or of a method, in its place, whoever imported it."""
    source, module = textwrap.dedent(inspect.getsource(function)), inspect.getmodule(function)
    assert source.count(old) == 1
    scope = dict(vars(module))
    text = "from __future__ import annotations\n" + source.replace(old, new)
    exec(compile(text, inspect.getfile(function), "exec"), scope)
    patched.setattr(function, "__code__", scope[function.__name__].__code__)
