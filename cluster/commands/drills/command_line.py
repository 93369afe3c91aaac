"""The arguments of ``stampede drill``: the drills, their options, and ``--list``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from cluster.commands.console.command import FOLDER, Command, flag, option
from cluster.commands.console.options import (
    BackendOption,
    ChangeOptions,
    CodeOptions,
    ForceOption,
    StopOnFailOption,
    parse_seed,
    whole_number,
)
from cluster.commands.console.outputs import TracedOutputOptions
from cluster.commands.drills.base import Drill, option_name
from cluster.commands.drills.registry import DRILLS
from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown


@dataclass(frozen=True, kw_only=True)
class RunDrill(BackendOption, StopOnFailOption, ForceOption, ChangeOptions, CodeOptions, TracedOutputOptions):
    seed: int | None = option("seed (default 1)", "N", parse_seed)
    out: Path | None = option("the run's folder (default runs/<time>-drill-<name>)", writes=FOLDER)
    drill: Drill

    def run(self) -> int:
        from cluster.commands.drills.drill_run import run_drill

        outputs = self.outputs
        return run_drill(self.drill, self.backend, self.seed, self.out, self.changes, self.stop_on_fail, outputs)


@dataclass(frozen=True, kw_only=True)
class ListDrills(Command):
    RUNS_CODE = False
    list: bool = flag("list the drills and their options")

    def run(self) -> int:
        if not self.list:
            raise BadInput(f"which drill? {', '.join(DRILLS)} (see stampede drill --list)")
        for name, drill in DRILLS.items():
            print(f"{name:12} {drill.summary}")
            for each in fields(drill):
                print(f"{'':12}   --{option_name(each)} {_values(each)}: {each.metadata['text']}")
        return ExitCode.PASS


def add_drills(parser: ArgumentParser) -> None:
    """Add a subcommand for each drill, and ``--list``."""
    ListDrills.add_to(parser)
    drills = parser.add_subparsers(metavar="NAME", parser_class=type(parser))
    for name, drill in DRILLS.items():
        _add_drill(drills.add_parser(name, help=drill.summary, description=drill.summary), drill)


def drill_with(name: str, settings: Sequence[str]) -> Drill:
    """A drill by its name and options, each as ``name=value`` (``how=pod``). Raises :class:`BadInput`."""
    if name not in DRILLS:
        raise BadInput(unknown("drill", name, DRILLS))
    options = {option_name(each): each for each in fields(DRILLS[name])}
    given: dict[str, Any] = {}
    for setting in settings:
        option, _, text = setting.partition("=")
        if option not in options:
            raise BadInput(f"drill {name}: {unknown('option', option, options)}")
        given[options[option].name] = _read(options[option], text)
    return DRILLS[name](**given)


def _read(each: Field[Any], text: str) -> Any:
    """Parse the value of an option. Raises :class:`BadInput`."""
    name, choices = option_name(each), each.metadata["choices"]
    if choices:
        if text not in choices:
            raise BadInput(f"{name}: got {text!r}, expected one of {', '.join(choices)}")
        return text
    try:
        return whole_number(f"value of {name}", each.metadata["least"], each.metadata["most"])(text)
    except ArgumentTypeError as error:
        raise BadInput(str(error)) from None


def _add_drill(parser: ArgumentParser, drill: type[Drill]) -> None:
    RunDrill.add_to(parser)
    for each in fields(drill):
        _add_option(parser, each)

    def make(options: Namespace) -> Command:
        return RunDrill.of_options(
            options, drill=drill(**{each.name: getattr(options, each.name) for each in fields(drill)})
        )

    parser.set_defaults(make=make)


def _add_option(parser: ArgumentParser, each: Field[Any]) -> None:
    metadata, name = each.metadata, f"--{option_name(each)}"
    help_text = f"{metadata['text']} (default %(default)s)"
    if metadata["choices"]:
        parser.add_argument(name, choices=metadata["choices"], default=each.default, help=help_text)
        return
    number = whole_number(f"value of {name}", metadata["least"], metadata["most"])
    parser.add_argument(name, type=number, metavar="N", default=each.default, help=help_text)


def _values(each: Field[Any]) -> str:
    metadata, default = each.metadata, each.default
    if metadata["choices"]:
        return f"{'|'.join(metadata['choices'])} ({default})"
    return f"{metadata['least']:,}..{metadata['most']:,} ({default:,})"
