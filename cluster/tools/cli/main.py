"""The ``stampede`` command.

Exit codes: 0 pass, 1 fail, 2 bad input or usage, 3 inconclusive. Whatever is wrong with what the user gave is one line
on standard error.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TextIO, cast

from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.interrupts import SIGNALS, is_unwanted
from cluster.common.suggestions import unknown
from cluster.common.wording import printable
from cluster.live.web.addresses import Served
from cluster.tools.actors.commands import add_commands as add_actor_commands
from cluster.tools.compare.commands import add_commands as add_archive_commands
from cluster.tools.console.options import add_bind_option, add_change_options, parse_port, parse_seed
from cluster.tools.console.output import LastingOutput
from cluster.tools.drills.commands import add_commands as add_drill_commands
from cluster.tools.explain.commands import add_commands as add_explain_commands
from cluster.tools.inspect.bisect_command import add_commands as add_divergence_commands
from cluster.tools.inspect.state import add_commands as add_state_commands
from cluster.tools.mutation.commands import add_commands as add_mutant_commands
from cluster.tools.rerun.commands import add_commands as add_rerun_commands
from cluster.tools.run.testnet_commands import add_commands as add_live_commands
from cluster.tools.sweeps.commands import add_commands as add_sweep_commands
from validator.pvm.host_python import UnfitPython, require_fit_python

MAX_HASH_SEED: Final = 2**32 - 1
"""What ``PYTHONHASHSEED`` takes."""


class _Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line, and whose help tells what would be right.

    Argparse leaves what a subcommand does not know to the whole command, whose help does not have that subcommand's
    options: here it is the innermost parser that refuses it.
    """

    fill: Callable[[_Parser], None] | None = None
    """Adds what takes long to load, once the arguments are for this parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's, with the choice that was probably meant; all choices stand in the help."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, unknown("choice", value, map(str, action.choices)))

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    """Says which code this is, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        from cluster.common.checkout import checkout_commit

        print(f"stampede {version('stampede')} ({checkout_commit()})")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the console command; returns the exit code.

    Without ``arguments`` they are the process's own, and it is about to end: nothing interrupts that any more.
    """
    for number in SIGNALS:
        if not is_unwanted(number):
            signal.signal(number, _as_interrupt)
    if arguments is None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # signs and names that a terminal's encoding lacks
        sys.stdout = cast(TextIO, LastingOutput(sys.stdout))
    try:
        return _perform(arguments)
    finally:
        if arguments is None:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)


def _perform(arguments: Sequence[str] | None) -> int:
    try:
        require_fit_python()
        options = _parser().parse_args(arguments)
        code: int = options.command(options)
    except HarnessError as error:
        _complain(str(error))
        return error.exit_code
    except UnfitPython as error:
        _complain(str(error))
        return ExitCode.BAD_INPUT
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INCONCLUSIVE
    return code


def _complain(text: str) -> None:
    """One line, fit for a terminal even where it quotes what the user gave."""
    with suppress(OSError):  # a terminal that was closed
        print(f"stampede: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def _as_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Every signal is like Ctrl-C. While a run goes on, :class:`~cluster.common.interrupts.Interrupts` has them
    instead."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="stampede", description="A testnet harness for chains whose actors schedule their own future."
    )
    parser.add_argument("--version", action=_Version, help="print version and commit of the code, and end")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    run = commands.add_parser("run", help="run a scenario and judge it")
    run.add_argument(
        "scenario",
        type=Path,
        metavar="SCENARIO",
        help="scenario file (YAML), or the name of one that ships, such as smoke",
    )
    run.add_argument("--backend", choices=("live", "sim"), default="live", help="real hosts on Ray, or the simulator")
    run.add_argument("--seed", type=parse_seed, metavar="N", help="overrides the scenario's seed")
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/<time>-<scenario>)")
    run.add_argument(
        "--check-determinism",
        action="store_true",
        help="with --backend sim: run it twice, and fail at the first event that differs",
    )
    run.add_argument(
        "--keep",
        action="store_true",
        help="with --backend live: keep the testnet of a run that does not pass up, at rest, until Ctrl-C",
    )
    add_bind_option(run)
    add_change_options(run)
    run.set_defaults(command=_run)

    up = commands.add_parser("up", help="keep a live testnet running until Ctrl-C, then judge it")
    up.add_argument("scenario", type=Path, metavar="SCENARIO", help="scenario file (YAML); its stop height is not used")
    up.add_argument("--seed", type=parse_seed, metavar="N", help="overrides the scenario's seed")
    up.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/<time>-<scenario>)")
    up.add_argument(
        "--port", type=parse_port, default=0, metavar="N", help="of the testnet's own endpoint (default: a free one)"
    )
    up.add_argument(
        "--faucet",
        action="store_true",
        help="pay whoever shows the token in the file faucet-token (POST /faucet), as chain.faucet says",
    )
    add_bind_option(up)
    add_change_options(up)
    up.set_defaults(command=_up)

    verify = commands.add_parser("verify-run", help="re-execute a run's blocks from genesis and compare the roots")
    verify.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/latest")
    verify.add_argument(
        "--python",
        dest="pythons",
        action="append",
        default=[],
        metavar="PATH",
        help="by this Python (default: this one); may be repeated",
    )
    verify.add_argument(
        "--hash-seeds", type=_hash_seed, nargs="+", default=[], metavar="N", help="under these hash seeds, each"
    )
    verify.set_defaults(command=_verify_run)

    t8n = commands.add_parser("t8n", help="run the pure state transition over blocks (conformance)")
    t8n.add_argument("--genesis", type=Path, required=True, metavar="G.json")
    t8n.add_argument("--blocks", type=Path, required=True, metavar="B.json")
    t8n.add_argument("--out", type=Path, required=True, metavar="O.json")
    t8n.set_defaults(command=_t8n)

    add_live_commands(commands)
    add_explain_commands(commands)
    add_actor_commands(commands)
    add_sweep_commands(commands)
    add_mutant_commands(commands)
    add_rerun_commands(commands)
    add_divergence_commands(commands)
    add_drill_commands(commands)
    add_state_commands(commands)
    add_archive_commands(commands)
    return parser


def _hash_seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_HASH_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is no hash seed: expected an integer from 0 to {MAX_HASH_SEED}")
    return int(text)


def _run(options: Any) -> int:
    from cluster.tools.run.running import LiveOptions, run_scenario

    verdict, _ = run_scenario(
        options.scenario,
        options.backend,
        options.seed,
        options.out,
        options.check_determinism,
        options.changes,
        LiveOptions(keep=options.keep, served=Served(options.bind)),
    )
    return verdict.exit_code


def _up(options: Any) -> int:
    from cluster.tools.run.running import LiveOptions, run_scenario

    live = LiveOptions(run_until_stopped=True, served=Served(options.bind, options.port), faucet=options.faucet)
    verdict, _ = run_scenario(options.scenario, "live", options.seed, options.out, changes=options.changes, live=live)
    return verdict.exit_code


def _verify_run(options: Any) -> int:
    from cluster.tools.inspect.verify_run import verify_run

    return verify_run(options.run, options.pythons, options.hash_seeds)


def _t8n(options: Any) -> int:
    from cluster.tools.inspect.t8n import run_t8n

    run_t8n(options.genesis, options.blocks, options.out)
    return ExitCode.PASS


if __name__ == "__main__":
    sys.exit(main())
