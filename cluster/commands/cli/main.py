"""The ``stampede`` command.

Exit codes: 0 pass, 1 fail, 2 bad input or usage, or an output that cannot be written, 3 inconclusive, 4 an exception
that was not expected. Wrong input is reported as one line on standard error.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from cluster.commands.compare import commands as compare
from cluster.commands.console.command import Command, Topic, add_commands
from cluster.commands.console.crashes import crash_line, show_traceback
from cluster.commands.console.output import LastingOutput
from cluster.commands.console.outputs import annotation
from cluster.commands.drills import commands as drills
from cluster.commands.explain import commands as explain
from cluster.commands.inspect import commands as inspect
from cluster.commands.inspect import disk_commands
from cluster.commands.load import commands as load_commands
from cluster.commands.rerun import commands as rerun
from cluster.commands.run import commands as run
from cluster.commands.sweeps import commands as sweeps
from cluster.common.errors import BadInput, ExitCode, HarnessError, crash_reason
from cluster.common.interrupts import SIGNALS, is_unwanted
from cluster.common.plugins import COMMANDS, lacking_library, load_all
from cluster.common.suggestions import unknown
from cluster.common.wording import SPELLED, printable
from validator.primitives.user_file import UserFileError
from validator.pvm.host_python import UnfitPython, require_fit_python

COMPLETION = "completion"
COMPLETION_HELP = "print a script for a shell (bash, zsh or fish) that completes commands, options and scenarios"


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line. The line names the command whose help to read.

    Unknown arguments are refused by the innermost parser, whose help lists the options of the subcommand. In argparse
    the outermost parser refuses them.
    """

    fill: Callable[[_Parser], None] | None = None
    """Function that adds arguments that are slow to load. It is called when this parser is first used."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.topic = Topic.TOOLS
        """The heading under which the help of the whole lists this command."""
        self.words: dict[str, _Parser] = {}
        """Parsers to use in place of this one, keyed by the first argument that selects them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        if args and args[0] in self.words:
            return self.words[args[0]].parse_known_args(args[1:], namespace)
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check that a value is among an option's choices.

        Unlike argparse's error, the error suggests a similar choice and does not list all choices: the help does.
        """
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, unknown("choice", value, map(str, action.choices)))

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see {self.prog} --help)")


class _AllCommands(_Parser):
    """The parser of the whole command line. Its help lists the commands by topic."""

    def format_help(self) -> str:
        (commands,) = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for topic in Topic:
            formatter.start_section(topic)
            listed = commands._choices_actions
            formatter.add_arguments([each for each in listed if commands.choices[each.dest].topic is topic])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([each for each in self._actions if each is not commands])
        formatter.end_section()
        formatter.add_text("stampede COMMAND --help has the options of a command.")
        return formatter.format_help()


class _Version(argparse.Action):
    """Prints the version and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from cluster.common.checkout import checkout_commit
        from cluster.common.checkout import version as code_version

        print(f"stampede {code_version()} ({checkout_commit()})")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console command; returns the exit code.

    Without ``arguments`` it uses the arguments of the process. The process exits afterwards, so signals are ignored at
    the end.
    """
    for number in SIGNALS:
        if not is_unwanted(number):
            signal.signal(number, _as_interrupt)
    if arguments is not None:
        return _perform(arguments)
    try:
        return _perform_process()
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _perform_process() -> int:
    """Perform the arguments of the process, on its own standard output and error."""
    if sys.stderr is None:  # it was closed: otherwise errors go to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _complain("standard output: is closed")
        return ExitCode.BAD_INPUT
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELLED)  # characters that the terminal's encoding lacks
    output = LastingOutput(sys.stdout)
    sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, LastingOutput(sys.stderr))
    try:
        code = _perform(None)
    except SystemExit as ended:  # --help and --version
        code = int(ended.code or 0)
    output.flush()
    if output.problem is not None:
        _complain(f"standard output: cannot be written: {output.problem.strerror or output.problem}")
        return ExitCode.BAD_INPUT
    return code


def _perform(arguments: Sequence[str] | None) -> int:
    try:
        require_fit_python()
        options = _parser().parse_args(arguments)
        command: Command = options.make(options)
        command.check_outputs()
        with command.permitted():
            code = command.run()
    except HarnessError as error:
        for line in error.args:
            _complain(str(line))
        return error.exit_code
    except (UnfitPython, UserFileError) as error:
        _complain(str(error))
        return ExitCode.BAD_INPUT
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INCONCLUSIVE
    except Exception as error:  # noqa: BLE001 (a bug is no verdict)
        if (lacking := lacking_library(error)) is not None:
            _complain(lacking)
            return ExitCode.BAD_INPUT
        _complain(crash_line(crash_reason(error), show_traceback()))
        return ExitCode.CRASH
    return code


def _complain(text: str) -> None:
    """Print one line on standard error, without control characters from the user's input.

    A workflow of GitHub also gets it as an annotation.
    """
    line = printable(" ".join(text.split()))
    with suppress(OSError):  # a terminal that was closed
        for each in (f"stampede: {line}", *annotation("error", "stampede", line)):
            print(each, file=sys.stderr, flush=True)


def _as_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Signal handler that raises :class:`KeyboardInterrupt`, as Ctrl-C does.

    During a run, :class:`~cluster.common.interrupts.Interrupts` handles signals instead.
    """
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = _AllCommands(prog="stampede", description="A testnet harness for chains whose actors schedule timers.")
    parser.add_argument("--version", action=_Version, help="print the version and commit, and exit")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for module in (run, load_commands, explain, drills, inspect, sweeps, rerun, disk_commands, compare):
        add_commands(subparsers, module.COMMANDS)
    load_all(COMMANDS, partial(_add_plugin, subparsers))
    completing = subparsers.add_parser(COMPLETION, help=COMPLETION_HELP, description=COMPLETION_HELP)
    completing.fill = lambda each: _add_completion(each, parser)
    return parser


def _add_plugin(subparsers: argparse._SubParsersAction[Any], found: Any) -> None:
    """Add the commands of an installed package. Raises an exception for what are none."""
    commands = dict(getattr(found, "COMMANDS", found))
    if taken := sorted(commands.keys() & subparsers.choices.keys()):
        raise ValueError(f"there is a command {taken[0]} already")
    add_commands(subparsers, commands)


def _add_completion(completing: argparse.ArgumentParser, parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``stampede completion``; what it needs of the scenarios is slow to load."""
    from cluster.commands.cli.completion import Completion

    Completion.add_to(completing)
    completing.set_defaults(make=lambda options: Completion.of_options(options, parser=parser))


if __name__ == "__main__":
    sys.exit(main())
