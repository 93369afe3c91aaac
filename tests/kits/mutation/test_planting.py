"""A changed module is imported in place of its file, and no other; lines that run are recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest

from cluster.common.checkout import ROOT
from kits.mutation.planting import ChangedModule, LineRecorder, module_name, plant

SOURCE = """def f(a):
    if a:
        return 1
    return 2


b = 3
"""


def test_one_module_is_served_and_no_other() -> None:
    finder = ChangedModule("consensus/types.py", "A = 41 + 1\n")
    assert finder.find_spec("consensus", None) is None
    assert finder.find_spec("consensus.types.more", None) is None
    spec = finder.find_spec("consensus.types", None)
    assert spec is not None and spec.loader is not None
    assert spec.origin == str(ROOT / "consensus" / "types.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.A == 42
    assert module.__file__ == spec.origin


def test_a_package_is_served_as_one() -> None:
    assert module_name("validator/state/__init__.py") == "validator.state"
    spec = ChangedModule("validator/state/__init__.py", "").find_spec("validator.state", None)
    assert spec is not None
    assert spec.submodule_search_locations == [str(ROOT / "validator" / "state")]


def test_a_module_that_is_imported_already_is_not_changed() -> None:
    import consensus.types

    with pytest.raises(AssertionError, match="is imported already"):
        plant("consensus/types.py", "")
    assert isinstance(consensus.types, ModuleType)
    assert not any(isinstance(finder, ChangedModule) for finder in sys.meta_path)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[LineRecorder]:
    before = sys.gettrace()
    recorder = LineRecorder(tmp_path)
    yield recorder
    recorder.stop()
    sys.settrace(before)


def test_lines_that_run_are_recorded(tmp_path: Path, recorder: LineRecorder) -> None:
    inside = compile(SOURCE, str(tmp_path / "consensus" / "a.py"), "exec")
    outside = compile(SOURCE, str(tmp_path / "cluster" / "a.py"), "exec")
    names: dict[str, object] = {}
    recorder.start()
    exec(inside, names)
    exec(outside, {})
    recorder.stop()
    assert recorder.ran == {"consensus/a.py": [1, 7]}
    f = names["f"]
    assert callable(f)
    recorder.start()
    f(1)
    f(1)
    recorder.stop()
    assert recorder.ran == {"consensus/a.py": [1, 2, 3, 7]}
    recorder.start()
    f(0)
    recorder.stop()
    assert recorder.ran == {"consensus/a.py": [1, 2, 3, 4, 7]}
