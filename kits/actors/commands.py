"""``stampede actor check``, ``run``, ``profile`` and ``stub``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.command import FILE, SEVERAL, Command, Group, argument, option
from cluster.commands.console.options import whole_number
from cluster.commands.console.output import console
from cluster.common.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from kits.actors.session import Session
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


def _gas_limit(text: str) -> int:
    from validator.primitives.params import DEFAULTS

    return whole_number("gas limit", DEFAULTS.tx_base_cycles, DEFAULTS.lane_user_cycles)(text)


_amount: Final = whole_number("amount", 0, MAX_BALANCE)


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    HELP = "report every error in a program, with its line and a correction"
    RUNS_CODE = False

    files: Sequence[Path] = argument("FILE", "a program", Path, nargs=SEVERAL)

    def run(self) -> int:
        from cluster.common.wording import printable
        from kits.actors.check import check

        are_fine = True
        for path in self.files:
            try:
                result = check(path)
            except BadInput as error:  # the other files are checked nevertheless
                print(printable(f"stampede: {error}"), file=sys.stderr)
                are_fine = False
            else:
                print("\n".join(result.lines), flush=True)  # the next file may give an error on stderr
                are_fine = are_fine and result.is_fine
        return ExitCode.PASS if are_fine else ExitCode.BAD_INPUT


@dataclass(frozen=True, kw_only=True)
class SessionOptions(Command):
    """What ``run`` and ``profile`` have in common."""

    RUNS_CODE = False

    file: Path = argument("FILE", "the program", Path)
    blocks: int = option(
        "blocks after the calls (default %(default)s)",
        "N",
        whole_number("number of blocks", 0, MAX_BLOCKS),
        default=DEFAULT_BLOCKS,
    )
    call: Sequence[str] = option("call a handler; repeatable", "HANDLER[=JSON]", repeats=True)
    other: Sequence[Path] = option("also deploy this program; repeatable", "FILE", Path, repeats=True)
    balance: int = option(BALANCE_HELP, "N", _amount, default=DEFAULT_BALANCE)
    gas_limit: int = option("cycles that a call may use (default 10**6)", "N", _gas_limit, default=DEFAULT_GAS_LIMIT)
    value: int = option("amount that each call pays to its actor (default 0)", "N", _amount, default=0)
    timer_allowance: int = option(
        "amount that the timers of a call may take from the caller (default 0)", "N", _amount, default=0
    )
    json: Path | None = option("also write the output to FILE as JSON", writes=FILE)

    def play(self, vm: Vm) -> Session:
        """Deploy the programs on a local chain and call their handlers, as the options say."""
        from cluster.local_chain.programs import read_program
        from kits.actors.session import Limits, play

        files = [read_program(path) for path in (self.file, *self.other)]
        limits = Limits(self.balance, self.gas_limit, self.value, self.timer_allowance)
        return play(files, self.call, self.blocks, limits, vm)

    def end(self, session: Session, page: Callable[[], dict[str, Any]]) -> int:
        """Write the session's JSON page if the option ``--json`` is given; returns the exit code."""
        from cluster.common.files import write_json_for_user

        if self.json is not None:
            write_json_for_user(self.json, page(), indent=1)
        return ExitCode.FAIL if session.failures else ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Run(SessionOptions):
    HELP = "deploy a program on a local chain, call it, and print each block"
    EPILOG = VALUES.replace("%(tool)s", "run")

    def run(self) -> int:
        from kits.actors.pages import session_page
        from kits.actors.session_output import print_session
        from validator.pvm.runtime.machine import PythonVm

        session = self.play(PythonVm())
        print_session(console(), session)
        return self.end(session, lambda: session_page(session))


@dataclass(frozen=True, kw_only=True)
class Profile(SessionOptions):
    HELP = "the same, and print the cycles of each line"
    EPILOG = VALUES.replace("%(tool)s", "profile")

    def run(self) -> int:
        from kits.actors.pages import profile_page
        from kits.actors.profiler import ProfilingVm
        from kits.actors.session_output import print_profile

        vm = ProfilingVm()
        session = self.play(vm)
        print_profile(console(), session, vm.profiles)
        return self.end(session, lambda: profile_page(session, vm.profiles))


@dataclass(frozen=True, kw_only=True)
class Stub(Command):
    HELP = "write the type stub (.pyi) from which editors complete what programs may use"
    RUNS_CODE = False

    out: Path | None = option("such as __builtins__.pyi in the editor's root folder (default: print it)", writes=FILE)

    def run(self) -> int:
        from cluster.common.files import write_for_user
        from kits.actors.stub import stub_text

        if self.out is None:
            print(stub_text(), end="")
            return ExitCode.PASS
        write_for_user(self.out, stub_text())
        reading = "editors that read __builtins__.pyi in their root folder complete the names of the language"
        print(f"{self.out}: written; {reading}")
        return ExitCode.PASS


TOOLS: Final = {"check": Check, "run": Run, "profile": Profile, "stub": Stub}
COMMANDS: Final = {"actor": Group("check, run and profile Python actors on this machine", TOOLS, "TOOL")}
