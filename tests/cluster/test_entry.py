"""The console command's entry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from cluster import entry


class Interrupting:
    """Whoever imports the command line meanwhile presses Ctrl-C."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        if name == "cluster.cli":
            raise KeyboardInterrupt


def test_an_interrupt_while_the_command_is_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "cluster.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    assert entry.main() == 3
    assert capsys.readouterr().err == "stampede: interrupted\n"


def test_the_options_of_all_commands_are_known_without_loading_what_performs_them() -> None:
    slow = {"numba", "numpy", "pydantic", "ray"}
    code = f"import sys, cluster.cli; cluster.cli._parser(); print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
