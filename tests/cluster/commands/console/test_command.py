"""Commands as dataclasses: what argparse reads is what the command has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import _parser
from cluster.commands.console.command import (
    OPTIONAL,
    SEVERAL,
    Command,
    Filled,
    Group,
    Topic,
    add_commands,
    argument,
    flag,
    option,
)


@dataclass(frozen=True, kw_only=True)
class Seeded(Command):
    RUNS_CODE = False
    seed: int = option("seed (default %(default)s)", "N", int, default=1)
    folder: Path = argument("DIR", "folder", Path)


@dataclass(frozen=True, kw_only=True)
class Paint(Seeded):
    HELP = "paint a wall"

    colours: Sequence[str] = option("colours", name="--colour", repeats=True)
    sizes: Sequence[int] = option("sizes", "N", int, nargs=SEVERAL, repeats=True)
    is_wet: bool = flag("leave it wet")
    wall: str = argument("WALL", "the wall", nargs=OPTIONAL, default="north")

    def run(self) -> int:
        return len(self.colours)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="house")
    tools = Group("tools", {"paint": Paint}, "TOOL")
    add_commands(made.add_subparsers(required=True), {"paint": Paint, "tools": tools})
    return made


def read(*words: str) -> Command:
    options = parser().parse_args(words)
    made: Command = options.make(options)
    return made


def test_options_that_are_not_given_have_their_defaults() -> None:
    assert read("paint", "here") == Paint(seed=1, folder=Path("here"), colours=[], sizes=[], is_wet=False, wall="north")


def test_given_options_are_parsed_and_repeated() -> None:
    words = ["--colour", "red", "--colour", "blue", "--sizes", "1", "2", "--sizes", "3", "--is-wet", "--seed", "7"]
    command = read("tools", "paint", *words, "--", "there", "south")
    assert command == Paint(
        seed=7, folder=Path("there"), colours=["red", "blue"], sizes=[1, 2, 3], is_wet=True, wall="south"
    )
    assert command.run() == 2


def test_a_list_of_one_command_is_not_that_of_the_next() -> None:
    read("paint", "--colour", "red", "here")
    assert read("paint", "here").run() == 0


def test_arguments_of_a_base_come_first_and_its_options_last() -> None:
    usage = " ".join(subparsers(parser()).choices["paint"].format_usage().split())
    assert usage.endswith("[--colour COLOURS] [--sizes N [N ...]] [--is-wet] [--seed N] DIR [WALL]")


def test_slow_options_are_added_when_they_are_asked_for() -> None:
    filled: list[argparse.ArgumentParser] = []
    made = _parser()
    add_commands(subparsers(made), {"slow": Filled("slow", filled.append, Topic.TOOLS)})
    assert filled == []
    made.parse_args(["slow"])
    assert [each.prog for each in filled] == ["stampede slow"]


def subparsers(made: argparse.ArgumentParser) -> Any:
    return next(each for each in made._actions if isinstance(each, argparse._SubParsersAction))


def test_an_option_is_called_by_its_name_or_by_that_of_its_field() -> None:
    assert [Paint.option_name(name) for name in ("colours", "is_wet", "seed")] == ["--colour", "--is-wet", "--seed"]


def test_a_command_that_does_nothing_is_none() -> None:
    with pytest.raises(NotImplementedError):
        Seeded(seed=1, folder=Path()).run()
