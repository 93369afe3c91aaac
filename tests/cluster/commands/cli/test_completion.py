"""Completion for shells: what the scripts offer."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from cluster.commands.cli.completion import SHELLS, parsers_of, script
from cluster.commands.cli.main import main
from cluster.commands.drills.registry import DRILLS
from cluster.scenario.files import shipped_scenarios
from tests.hangs import HANGS_AFTER_S
from tests.tools import BASH, FISH, ZSH, needs

ASKED = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_stampede; echo "${COMPREPLY[@]}"',
    "fish": "source $argv[1]; complete -C (string join ' ' -- $argv[2..-1]) | string split -f 1 \\t; true",
}
"""Programs that print what a shell offers after some words."""
PROGRAMS = {tool.name: tool for tool in (BASH, FISH, ZSH)}


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
    return folder


def offered(scripts: Path, shell: str, *words: str) -> set[str]:
    given = (ASKED[shell], *(["bash"] if shell == "bash" else []), str(scripts / shell), "stampede", *words)
    return set(ran(str(PROGRAMS[shell]), "-c", *given).split())


@pytest.mark.kits
@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(PROGRAMS[shell])) for shell in ASKED])
def test_commands_options_values_and_scenarios_are_offered(scripts: Path, shell: str) -> None:
    assert {"run", "sweep", "completion"} <= offered(scripts, shell, "")
    assert offered(scripts, shell, "swe") == {"sweep"}
    assert offered(scripts, shell, "drill", "") >= set(DRILLS)
    assert offered(scripts, shell, "run", "--jun") == {"--junit"}
    assert "--grid" not in offered(scripts, shell, "run", "--")
    assert offered(scripts, shell, "run", "--backend", "") == {"live", "sim"}
    assert offered(scripts, shell, "run", "hailst") == {"hailstorm"}
    assert offered(scripts, shell, "drill", "outage", "--") != offered(scripts, shell, "drill", "reorg", "--")
    assert offered(scripts, shell, "completion", "") >= set(SHELLS)
    assert offered(scripts, shell, "dos", "sea") == {"search"}
    assert offered(scripts, shell, "dos", "search", "--obj") == {"--objective"}
    assert offered(scripts, shell, "dos", "search", "hailst") == {"hailstorm"}
    assert offered(scripts, shell, "run", "--out", str(scripts / "zs")) == {str(scripts / "zsh")}


def test_every_place_and_scenario_is_in_each_script(scripts: Path) -> None:
    for shell in SHELLS:
        text = (scripts / shell).read_text(encoding="utf-8")
        assert [
            name for name in [*shipped_scenarios(), *DRILLS, "check-determinism", "min-passed"] if name not in text
        ] == []


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(PROGRAMS[shell])) for shell in SHELLS])
def test_shells_can_read_the_scripts(scripts: Path, shell: str) -> None:
    ran(str(PROGRAMS[shell]), "-n", str(scripts / shell))


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(PROGRAMS[shell])) for shell in ASKED])
def test_no_help_ends_a_quotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    """A planted help has quotes, a backslash and a command."""
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser(prog="stampede")
    odd = 'it\'s \\ a "$(touch planted)" `touch planted`'
    parser.add_argument("--odd", help=odd)
    parser.add_subparsers().add_parser("command", help=odd)
    Path(shell).write_text(script(shell, parser), encoding="utf-8")
    assert "--odd" in offered(tmp_path, shell, "--o") and "command" in offered(tmp_path, shell, "com")
    assert not Path("planted").exists()


def test_the_parsers_are_those_of_all_subcommands() -> None:
    parser = argparse.ArgumentParser(prog="stampede")
    parser.add_subparsers().add_parser("outer").add_subparsers().add_parser("inner")
    assert [path for path, _ in parsers_of(parser)] == [(), ("outer",), ("outer", "inner")]


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fsh"]) == 2
    assert "did you mean fish?" in capsys.readouterr().err
