"""Completion for shells: static scripts from the argument parsers, with commands, options, choices and scenario names.

A script needs no Python when it completes, so it answers at once. It is written again after an upgrade. A word that is
no command, option or known value is completed as a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import shtab

from cluster.commands.console.command import Command, argument
from cluster.common.errors import ExitCode
from cluster.scenario.files import shipped_scenarios

SHELLS: Final = ("bash", "zsh", "fish")
SCENARIO_ARGUMENTS: Final = ("scenario", "scenarios")
"""Names of arguments for which the names of shipped scenarios are offered."""


def parsers_of(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """A parser and those of all its subcommands, parents first, each with the words up to it."""
    fill = getattr(parser, "fill", None)
    if fill is not None:
        parser.fill = None  # type: ignore[attr-defined]
        fill(parser)
    yield path, parser
    inner: dict[str, argparse.ArgumentParser] = dict(getattr(parser, "words", {}))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner |= action.choices
    for name, each in inner.items():
        yield from parsers_of(each, (*path, name))


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a shell. The parser gets what the library needs of it, and parses nothing afterwards."""
    for _, each in reversed(list(parsers_of(parser))):
        words: dict[str, argparse.ArgumentParser] = getattr(each, "words", {})
        for action in each._actions:
            action.metavar = None  # a colon in it would end the argument of zsh
            if action.nargs != 0 and not action.choices:
                is_scenario = action.dest in SCENARIO_ARGUMENTS
                action.complete = _names([*shipped_scenarios(), *words]) if is_scenario else shtab.FILE  # type: ignore[attr-defined]
        if words:
            inner = each.add_subparsers()
            for name, word in words.items():
                inner.add_parser(name, parents=[word], add_help=False, help=word.description)
    return shtab.complete(parser, shell)


def _names(names: list[str]) -> dict[str, Any]:
    """What the library needs to offer names and files."""
    listed = " ".join(sorted(names))
    return {
        **shtab.cmd(f"echo {listed}"),
        "zsh": f"{{compadd -- {listed}; _files}}",
        "fish": f"(string split ' ' '{listed}'; __fish_complete_path (commandline -ct))",
    }


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    RUNS_CODE = False
    shell: str = argument("SHELL", f"one of {', '.join(SHELLS)}", choices=SHELLS)
    parser: argparse.ArgumentParser
    """The parser of the whole command line."""

    def run(self) -> int:
        print(script(self.shell, self.parser))
        return ExitCode.PASS
