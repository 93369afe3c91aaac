"""The arguments of ``stampede drill``: the drills, their options, and ``--list``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown
from cluster.tools.console.options import add_change_options, add_stop_on_fail, parse_seed, whole_number
from cluster.tools.drills.base import Drill, option_name
from cluster.tools.drills.registry import DRILLS


def add_drills(parser: Any) -> None:
    """Add a subcommand for each drill, and ``--list``."""
    parser.add_argument("--list", action="store_true", help="list the drills and their options")
    drills = parser.add_subparsers(metavar="NAME", parser_class=type(parser))
    for name, drill in DRILLS.items():
        _add_drill(drills.add_parser(name, help=drill.summary, description=drill.summary), drill)
    parser.set_defaults(command=_list)


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


def _add_drill(parser: Any, drill: type[Drill]) -> None:
    parser.add_argument(
        "--backend",
        choices=("live", "sim"),
        default="live",
        help="real processes on Ray, or the simulator (default %(default)s)",
    )
    parser.add_argument("--seed", type=parse_seed, metavar="N", help="seed (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/<time>-drill-<name>)")
    add_stop_on_fail(parser)
    add_change_options(parser)
    for each in fields(drill):
        _add_option(parser, each)
    parser.set_defaults(command=_run, drill=drill)


def _add_option(parser: Any, each: Field[Any]) -> None:
    metadata, name = each.metadata, f"--{option_name(each)}"
    help_text = f"{metadata['text']} (default %(default)s)"
    if metadata["choices"]:
        parser.add_argument(name, choices=metadata["choices"], default=each.default, help=help_text)
        return
    number = whole_number(f"value of {name}", metadata["least"], metadata["most"])
    parser.add_argument(name, type=number, metavar="N", default=each.default, help=help_text)


def _run(options: Any) -> int:
    from cluster.tools.drills.drill_run import run_drill

    given = {each.name: getattr(options, each.name) for each in fields(options.drill)}
    drill, changes, stops = options.drill(**given), options.changes, options.stop_on_fail
    return run_drill(drill, options.backend, options.seed, options.out, changes, stops)


def _list(options: Any) -> int:
    if not options.list:
        raise BadInput(f"which drill? {', '.join(DRILLS)} (see stampede drill --list)")
    for name, drill in DRILLS.items():
        print(f"{name:12} {drill.summary}")
        for each in fields(drill):
            print(f"{'':12}   --{option_name(each)} {_values(each)}: {each.metadata['text']}")
    return ExitCode.PASS


def _values(each: Field[Any]) -> str:
    metadata, default = each.metadata, each.default
    if metadata["choices"]:
        return f"{'|'.join(metadata['choices'])} ({default})"
    return f"{metadata['least']:,}..{metadata['most']:,} ({default:,})"
