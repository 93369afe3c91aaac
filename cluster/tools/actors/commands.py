"""``stampede actor check``, ``run``, ``profile`` and ``stub``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import whole_number
from cluster.tools.console.output import console

if TYPE_CHECKING:
    from cluster.tools.actors.session import Session
    from validator.pvm.runtime.machine import Vm

DEFAULT_BLOCKS: Final = 10
MAX_BLOCKS: Final = 100_000
DEFAULT_BALANCE: Final = 10**18
MAX_BALANCE: Final = 10**30
BALANCE_HELP: Final = "balance of each actor at its deployment, in the smallest unit (default 10**18)"
DEFAULT_GAS_LIMIT: Final = 1_000_000
VALUES: Final = """\
calls:
  HANDLER is a handler of FILE's actor; NAME.HANDLER one of the actor of class
  NAME, from --other. Each call gets its own block, in the order given.
  Without --call, the first handler named start, init or setup, if there is
  one, is called with None.

payloads:
  JSON texts, integers (of up to 256 bits; there are no fractions), true, false,
  null, lists and objects become str, int, True, False, None, list and dict.
  {"hex": "00ff"} gives bytes, {"address_of": "NAME"} the address of an
  actor of this chain. Without =JSON the payload is None.

examples:
  stampede actor %(tool)s counter.py --blocks 20
  stampede actor %(tool)s counter.py --call start=3 --call 'pay={"amount": 5}'
  stampede actor %(tool)s a.py --other b.py --call 'tell={"address_of": "B"}'

The output is deterministic. Exit codes: 0 everything ran; 1 a call, a fire, a
message or a bid failed; 2 bad input.
"""


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    actor = commands.add_parser("actor", help="check, run and profile Python actors on this machine")
    tools = actor.add_subparsers(required=True, metavar="TOOL", parser_class=type(actor))

    check = tools.add_parser("check", help="report every error in a program, with its line and a correction")
    check.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a program")
    check.set_defaults(command=_check)

    for name, purpose, perform in (
        ("run", "deploy a program on a local chain, call it, and print each block", _run),
        ("profile", "the same, and print the cycles of each line", _profile),
    ):
        tool = tools.add_parser(
            name,
            help=purpose,
            epilog=VALUES.replace("%(tool)s", name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_session_options(tool)
        tool.set_defaults(command=perform)

    stub = tools.add_parser("stub", help="write the type stub (.pyi) from which editors complete what programs may use")
    stub.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="such as __builtins__.pyi in the editor's root folder (default: print it)",
    )
    stub.set_defaults(command=_stub)


def _add_session_options(command: argparse.ArgumentParser) -> None:
    amount = whole_number("amount", 0, MAX_BALANCE)
    command.add_argument("file", type=Path, metavar="FILE", help="the program")
    command.add_argument(
        "--blocks",
        type=whole_number("number of blocks", 0, MAX_BLOCKS),
        default=DEFAULT_BLOCKS,
        metavar="N",
        help="blocks after the calls (default %(default)s)",
    )
    command.add_argument(
        "--call", action="append", default=[], metavar="HANDLER[=JSON]", help="call a handler; repeatable"
    )
    command.add_argument(
        "--other", type=Path, action="append", default=[], metavar="FILE", help="also deploy this program; repeatable"
    )
    for name, kind, default, purpose in (
        ("--balance", amount, DEFAULT_BALANCE, BALANCE_HELP),
        ("--gas-limit", _gas_limit, DEFAULT_GAS_LIMIT, "cycles that a call may use (default 10**6)"),
        ("--value", amount, 0, "amount that each call pays to its actor (default 0)"),
        ("--timer-allowance", amount, 0, "amount that the timers of a call may take from the caller (default 0)"),
    ):
        command.add_argument(name, type=kind, default=default, metavar="N", help=purpose)
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the output to FILE as JSON")


def _gas_limit(text: str) -> int:
    from validator.primitives.params import DEFAULTS

    return whole_number("gas limit", DEFAULTS.tx_base_cycles, DEFAULTS.lane_user_cycles)(text)


# --- commands ---------------------------------------------------------------------------------------------------------


def _check(options: Any) -> int:
    from cluster.common.wording import printable
    from cluster.tools.actors.programs import check

    are_fine = True
    for path in options.files:
        try:
            result = check(path)
        except BadInput as error:  # the other files are checked nevertheless
            print(printable(f"stampede: {error}"), file=sys.stderr)
            are_fine = False
        else:
            print("\n".join(result.lines), flush=True)  # the next file may give an error on stderr
            are_fine = are_fine and result.is_fine
    return ExitCode.PASS if are_fine else ExitCode.BAD_INPUT


def _run(options: Any) -> int:
    from cluster.tools.actors.pages import session_page
    from cluster.tools.actors.session_output import print_session
    from validator.pvm.runtime.machine import PythonVm

    session = _play(options, PythonVm())
    print_session(console(), session)
    return _end(options, session, lambda: session_page(session))


def _profile(options: Any) -> int:
    from cluster.tools.actors.pages import profile_page
    from cluster.tools.actors.profiler import ProfilingVm
    from cluster.tools.actors.session_output import print_profile

    vm = ProfilingVm()
    session = _play(options, vm)
    print_profile(console(), session, vm.profiles)
    return _end(options, session, lambda: profile_page(session, vm.profiles))


def _play(options: Any, vm: Vm) -> Session:
    from cluster.common.files import check_target
    from cluster.tools.actors.programs import read_program
    from cluster.tools.actors.session import Limits, play

    check_target(options.json)
    files = [read_program(path) for path in (options.file, *options.other)]
    limits = Limits(options.balance, options.gas_limit, options.value, options.timer_allowance)
    return play(files, options.call, options.blocks, limits, vm)


def _end(options: Any, session: Session, page: Callable[[], dict[str, Any]]) -> int:
    """Write the page if requested; returns the exit code."""
    from cluster.common.files import write_for_user

    if options.json is not None:
        write_for_user(options.json, json.dumps(page(), indent=1) + "\n")
    return ExitCode.FAIL if session.failures else ExitCode.PASS


def _stub(options: Any) -> int:
    from cluster.common.files import write_for_user
    from cluster.tools.actors.stub import stub_text

    if options.out is None:
        print(stub_text(), end="")
        return ExitCode.PASS
    write_for_user(options.out, stub_text())
    reading = "editors that read __builtins__.pyi in their root folder complete the names of the language"
    print(f"{options.out}: written; {reading}")
    return ExitCode.PASS
